"""How biased PARSEC's gradients are (Casale et al. 2019, Eqs. 6 to 8), in spaces small enough to enumerate.

    python -m reproduce.parsec --quick            # seconds: the toy of six lines
    python -m reproduce.parsec --full             # ten to twenty minutes: also all 15,625 cells of nasbench201
    python -m reproduce.parsec --table            # what was found, as Markdown

K samples with weights omega estimate the gradient of the marginal likelihood (Eq. 3). The weights are normalised by
their own sum (Eq. 8), so the estimate is biased; only as K grows does its mean become the gradient. Here the likelihood
of every architecture is known, so is the gradient, and estimates are cheap: many are averaged for every K.

Writes docs/results/parsec/bias.json (rows, the command, seeds, machine).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import polyarch as pa
from polyarch.data.task import Split
from polyarch.distributions import Categorical, uniform
from polyarch.distributions.categorical import masked
from polyarch.methods.parsec import effective_samples, importance_weights
from polyarch.spaces.base import Supernet
from polyarch.spaces.views import Sparse
from polyarch.streams import Streams
from polyarch.testing.toy import Lines, every_choice, log_likelihoods, toy_task
from polyarch.training.dry_run import prepare
from reproduce.showing import Columns, Part, Row, grouped, keep, mean_table, read, sized_parser

SAMPLES = (1, 2, 4, 8, 16, 64)
MANY = (256, 1024, 4096, 16384)
"""More than a search can afford, to see where the mean goes."""
ESTIMATES, DRAWN = 20_000, 4_000_000
"""For every K so many estimates, and at most so many samples in all; a tenth of both for --quick."""


@dataclass(frozen=True)
class Enumerated:
    """Belief, and for every architecture what a search batch says of it; in double precision."""

    belief: Categorical
    fits: Tensor
    """Log-likelihoods of the batch, summed over its examples, [architectures]."""
    batch_size: int

    def exact(self, temperature: float) -> Tensor:
        """The gradient of log sum_a p(a | pi) p(y | a)^(1 / temperature) in the logits; at temperature 1, of Eq. 3.

        With many samples, this is what weights of that temperature lead to.
        """
        logits = self.belief.logits.detach().requires_grad_()
        belief = Categorical(self.belief.decisions, logits)
        choices = torch.cartesian_prod(*(torch.arange(len(d)) for d in belief.decisions))
        marginal = (belief.log_prob(choices) + self.fits / temperature).logsumexp(-1)
        return torch.autograd.grad(marginal, logits)[0]

    def omega(self, choices: Tensor, temperature: float) -> Tensor:
        """The method's weights [estimates, K] of choices [estimates, K, decisions]."""
        places = torch.zeros_like(choices[..., 0])
        for k, decision in enumerate(self.belief.decisions):
            places = places * len(decision) + choices[..., k]
        return importance_weights(self.fits[places], temperature)

    def estimates(self, choices: Tensor, omega: Tensor) -> Tensor:
        """The method's gradients: of every row's weighted sum of log p(choice | pi) in the logits."""
        logits = self.belief.logits.detach().expand(len(choices), -1, -1).clone().requires_grad_()
        score = (omega * Categorical(self.belief.decisions, logits).log_prob(choices)).sum(-1)
        return torch.autograd.grad(score.sum(), logits)[0]


def measured(given: Enumerated, samples: int, temperature: float, effort: float, generator: torch.Generator) -> Row:
    """The mean of many estimates beside the exact gradient; lengths are in units of that gradient's."""
    count = int(min(ESTIMATES * effort, max(DRAWN * effort // samples, 100)))
    plain, centred, effective = [], [], []
    for part in torch.arange(count).split(max(1, 200_000 // samples)):
        choices = given.belief.sample(len(part) * samples, generator).unflatten(0, (len(part), samples))
        omega = given.omega(choices, temperature)
        plain.append(given.estimates(choices, omega))
        # The mean of log p's gradients is 0 on average: without it the mean is the same, and chance is in it less.
        centred.append(given.estimates(choices, omega - 1 / samples))
        effective.append(effective_samples(omega))
    own, printed = given.exact(temperature), given.exact(1.0)
    unit, mean = own.norm().item(), torch.cat(centred).mean(0)
    noise, centred_noise = (torch.cat(each).var(0).sum().sqrt().item() / unit for each in (plain, centred))
    return {
        "temperature": temperature,
        "samples": samples,
        "estimates": count,
        "bias": (mean - own).norm().item() / unit,
        "error": centred_noise / count**0.5,
        "length": mean.norm().item() / unit,
        "cosine": cosine(mean, own),
        "noise": noise,
        "centred_noise": centred_noise,
        "cosine_eq3": cosine(mean, printed),
        "effective_samples": torch.cat(effective).mean().item(),
    }


def cosine(one: Tensor, other: Tensor) -> float:
    """Of the angle between two gradients."""
    return (one.flatten() @ other.flatten() / (one.norm() * other.norm()).clamp_min(1e-300)).item()


# ---------------------------------------------------------------------------------------------------------------------
# What is enumerated.


def lines(seed: int) -> Enumerated:
    """Six lines on 8 of 40 points; the points, the offset and belief are the seed's."""
    generator = torch.Generator().manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        task = toy_task(Path(folder))
    rows = torch.randperm(len(task.train), generator=generator)[:8]
    examples = Split(task.train.x[rows], task.train.y[rows])
    problem, state, feed = prepare(pa.methods.Parsec(), Lines(), task, examples, 1)
    with torch.no_grad():
        state.weights["offset"].copy_(torch.randn(1, generator=generator))
        [batch] = feed.batches["search"]
        fits = log_likelihoods(problem, batch.x, batch.y)[0].double().sum(-1)
    logits = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    return Enumerated(Categorical(Lines().decisions, masked(logits, Lines().decisions)), fits, len(rows))


def cells(seed: int, epochs: int) -> Enumerated:
    """All cells of nasbench201 (C=4, N=1) on a search batch of 64 digits, after some epochs of PARSEC with K=4."""
    space, task = pa.spaces.NasBench201(channels=4, cells=1), pa.data.load("digits", select=0.3)
    assert task.select is not None
    supernet: Supernet = space.supernet(task.shape)
    belief = uniform(space.decisions)
    supernet.reset_parameters([Streams(seed)["init"]])
    if epochs:
        with tempfile.TemporaryDirectory() as folder:
            method = pa.methods.Parsec(samples=4, epochs=epochs, evaluation={"every": epochs})
            run = pa.search(space, task, method, out=Path(folder) / "run", seed=seed)
            assert isinstance(run, pa.Run)
            supernet, learnt = run.supernet(), run.distribution
            assert isinstance(learnt, Categorical)
            belief = learnt
    rows = torch.randperm(len(task.select), generator=torch.Generator().manual_seed(seed))[:64]
    x, y = task.preprocess(task.select.x[rows]), task.select.y[rows]
    fits = fits_of(supernet, task, x, y, every_choice(space))
    return Enumerated(Categorical(space.decisions, belief.logits.detach().double()), fits, len(rows))


@torch.no_grad()
def fits_of(supernet: Supernet, task: pa.data.Task, x: Tensor, y: Tensor, choices: Tensor) -> Tensor:
    """The summed log-likelihood of a batch under each of the architectures, with shared weights and as in a step."""
    supernet.train()
    outputs = (supernet(x.unsqueeze(0), Sparse(tuple(choice)))[0] for choice in choices.tolist())
    return torch.stack([task.likelihood.log_likelihood(output, y).sum(dtype=torch.float64) for output in outputs])


def measurements(quick: bool, seeds: int) -> Iterator[Row]:
    """Every case, seed, temperature and K."""
    cases: dict[str, Callable[[int], Enumerated]] = {"six lines": lines}
    if not quick:
        cases |= {"cells, untrained": partial(cells, epochs=0), "cells, after 5 epochs": partial(cells, epochs=5)}
    for case, make in cases.items():
        for seed in range(seeds):
            given, generator = make(seed), torch.Generator().manual_seed(seed)
            about = {"case": case, "seed": seed, "spread": given.fits.std().item()}
            for temperature in (1.0, float(given.batch_size)):
                for samples in (*SAMPLES, *MANY):
                    yield about | measured(given, samples, temperature, 0.1 if quick else 1.0, generator)


# ---------------------------------------------------------------------------------------------------------------------

COLUMNS: Columns = {
    "bias": ("bias", 3), "of it by chance": ("error", 3), "length": ("length", 3), "cosine": ("cosine", 3),
    "noise": ("noise", 2), "noise, centred": ("centred_noise", 2), "cosine with Eq. 3": ("cosine_eq3", 3),
    "effective samples": ("effective_samples", 1),
}  # fmt: skip


def markdown(part: Part) -> str:
    """One table per case and temperature, mean ± standard deviation over seeds."""
    texts = []
    for (case, temperature), rows in part.groups("case", "temperature").items():
        title = f"### {case}, temperature {temperature:g}\n\n{Part(tuple(rows)).seeds}.\n\n"
        texts.append(title + mean_table(["K"], grouped(rows, "samples"), COLUMNS, left=0))
    return "\n\n".join(texts) + "\n"


def said(row: Row) -> str:
    """A row in short."""
    return (
        f"{row['case']}, seed {row['seed']}, temperature {row['temperature']:g}, K={row['samples']}: "
        f"bias {row['bias']:.3f} ± {row['error']:.3f} of the gradient's length, cosine {row['cosine']:.3f}"
    )


def main() -> None:
    """Measures and prints row by row, or prints what there is."""
    given = sized_parser(__doc__, "parsec", "table", seeds=(2, 3)).parse_args()
    if given.table:
        part = read(given.out, "bias")
        print(markdown(part) if part else "(not run)\n", end="")
    else:
        keep(given.out / "bias.json", measurements(given.quick, given.seeds), say=said)


if __name__ == "__main__":
    main()
