"""How biased PARSEC's gradients are (seed 003, Eqs. 6 to 8), in spaces small enough to enumerate.

    python -m reproduce.parsec --quick            # seconds: the toy of six lines
    python -m reproduce.parsec --full             # ten to twenty minutes: also all 15,625 cells of nasbench201
    python -m reproduce.parsec --table            # what was found, as Markdown

K samples with weights omega estimate the gradient of the marginal likelihood (Eq. 3). The weights are normalised by
their own sum (Eq. 8), so the estimate is biased; only as K grows does its mean become the gradient. Here the likelihood
of every architecture is known, so is the gradient, and estimates are cheap: many are averaged for every K.

Writes docs/results/parsec/bias.json (rows, the command, seeds, machine).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from reproduce.depth import machine
from reproduce.depth_tables import told

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "parsec"
SAMPLES = (1, 2, 4, 8, 16, 64)
MANY = (256, 1024, 4096, 16384)
"""More than a search can afford, to see where the mean goes."""
ESTIMATES, DRAWN = 20_000, 4_000_000
"""For every K so many estimates, and at most so many samples in all; a tenth of both for --quick."""
Row = dict[str, Any]


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


@dataclass
class Moments:
    """Mean and scatter of vectors that come in parts."""

    count: int = 0
    total: Tensor | float = 0.0
    squares: float = 0.0

    def add(self, values: Tensor) -> None:
        """More vectors, [n, ...]."""
        self.count += len(values)
        self.total = self.total + values.sum(0)
        self.squares += values.square().sum().item()

    @property
    def mean(self) -> Tensor:
        """Of all so far."""
        return torch.as_tensor(self.total) / self.count

    @property
    def deviation(self) -> float:
        """The root of the summed variances of all components."""
        spread = self.squares / self.count - self.mean.square().sum().item()
        return (max(spread, 0.0) * self.count / (self.count - 1)) ** 0.5


def measured(given: Enumerated, samples: int, temperature: float, effort: float, generator: torch.Generator) -> Row:
    """The mean of many estimates beside the exact gradient; lengths are in units of that gradient's."""
    count = int(min(ESTIMATES * effort, max(DRAWN * effort // samples, 100)))
    plain, centred, counted = Moments(), Moments(), Moments()
    for part in torch.arange(count).split(max(1, 200_000 // samples)):
        choices = given.belief.sample(len(part) * samples, generator).unflatten(0, (len(part), samples))
        omega = given.omega(choices, temperature)
        plain.add(given.estimates(choices, omega))
        # The mean of log p's gradients is 0 on average: without it the mean is the same, and chance is in it less.
        centred.add(given.estimates(choices, omega - 1 / samples))
        counted.add(effective_samples(omega).unsqueeze(-1))
    own, printed = given.exact(temperature), given.exact(1.0)
    unit, mean = own.norm().item(), centred.mean
    return {
        "temperature": temperature,
        "samples": samples,
        "estimates": count,
        "bias": (mean - own).norm().item() / unit,
        "error": centred.deviation / count**0.5 / unit,
        "length": mean.norm().item() / unit,
        "cosine": cosine(mean, own),
        "noise": plain.deviation / unit,
        "centred_noise": centred.deviation / unit,
        "cosine_eq3": cosine(mean, printed),
        "effective_samples": counted.mean.item(),
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
    problem, state, feed = prepare(pa.methods.Parsec(), Lines(), task, Split(task.train.x[rows], task.train.y[rows]), 1)
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
            method = pa.methods.Parsec(samples=4, epochs=epochs, evaluate_every=epochs)
            run = pa.search(space, task, method, out=Path(folder) / "run", seed=seed)
            assert isinstance(run, pa.Run)
            supernet, learnt = run.supernet(), run.distribution
            assert isinstance(learnt, Categorical)
            belief = learnt
    rows = torch.randperm(len(task.select), generator=torch.Generator().manual_seed(seed))[:64]
    x, y = task.standardise(task.select.x[rows]), task.select.y[rows]
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
    cases = [("six lines", lambda seed: lines(seed))]
    if not quick:
        cases += [
            ("cells, untrained", lambda seed: cells(seed, 0)),
            ("cells, after 5 epochs", lambda seed: cells(seed, 5)),
        ]
    for case, make in cases:
        for seed in range(seeds):
            given, generator = make(seed), torch.Generator().manual_seed(seed)
            about = {"case": case, "seed": seed, "spread": given.fits.std().item()}
            for temperature in (1.0, float(given.batch_size)):
                for samples in (*SAMPLES, *MANY):
                    yield about | measured(given, samples, temperature, 0.1 if quick else 1.0, generator)


# ---------------------------------------------------------------------------------------------------------------------

COLUMNS = {
    "bias": ("bias", 3), "error": ("of it by chance", 3), "length": ("length", 3), "cosine": ("cosine", 3),
    "noise": ("noise", 2), "centred_noise": ("noise, centred", 2), "cosine_eq3": ("cosine with Eq. 3", 3),
    "effective_samples": ("effective samples", 1),
}  # fmt: skip
"""What a table shows, under which words and with how many digits."""


def markdown(rows: Sequence[Row]) -> str:
    """A table a case and temperature, mean ± standard deviation over seeds."""
    parts = []
    for case, temperature in dict.fromkeys((row["case"], row["temperature"]) for row in rows):
        own = [row for row in rows if (row["case"], row["temperature"]) == (case, temperature)]
        seeds = sorted({row["seed"] for row in own})
        lines = [f"### {case}, temperature {temperature:g}", "", f"Seeds {', '.join(map(str, seeds))}.", ""]
        lines += [f"| K | {' | '.join(words for words, _ in COLUMNS.values())} |", "|" + " --: |" * (len(COLUMNS) + 1)]
        for samples in dict.fromkeys(row["samples"] for row in own):
            group = [row for row in own if row["samples"] == samples]
            cells = [told([row[name] for row in group], digits) for name, (_, digits) in COLUMNS.items()]
            lines.append(f"| {samples} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measures and prints row by row, or prints what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--quick", action="store_true")
    size.add_argument("--full", action="store_true")
    size.add_argument("--table", action="store_true", help="print what was found as Markdown, and stop")
    parser.add_argument("--seeds", type=int, default=0, help="default: 3; 2 for --quick")
    parser.add_argument("--out", type=Path, help="default: docs/results/parsec; runs/parsec for --quick")
    arguments = parser.parse_args()
    folder = arguments.out or (Path("runs/parsec") if arguments.quick else RESULTS)
    if arguments.table:
        print(markdown(json.loads((folder / "bias.json").read_text())["rows"]), end="")
        return
    words = re.sub(r"\s*--out[= ]\S+", "", " ".join(sys.argv[1:]))
    found: dict[str, Any] = {"command": f"python -m reproduce.parsec {words}", "machine": machine("cpu"), "rows": []}
    folder.mkdir(parents=True, exist_ok=True)
    for row in measurements(arguments.quick, arguments.seeds or (2 if arguments.quick else 3)):
        found["rows"].append(row)
        (folder / "bias.json").write_text(json.dumps(found) + "\n")
        print(
            f"{row['case']}, seed {row['seed']}, temperature {row['temperature']:g}, K={row['samples']}: "
            f"bias {row['bias']:.3f} ± {row['error']:.3f} of the gradient's length, cosine {row['cosine']:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
