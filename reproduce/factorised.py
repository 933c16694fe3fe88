"""Natural steps for beliefs that factorise, from a supernet that was trained under the prior.

    python -m reproduce.factorised --quick --images FOLDER     # minutes: one seed, few epochs
    python -m reproduce.factorised --full --images FOLDER      # three seeds; FOLDER has fashion-mnist/
    python -m reproduce.factorised --table                     # what was found, as Markdown

For a depth, belief is the posterior of the shared weights, since one pass gives every likelihood. Of many decisions
there are too many architectures. With one categorical a decision, q(a) = prod_e q_e(a_e), the bound's natural gradient
leads to

    log q_e(o) <- (1 - r) log q_e(o) + r (log p_e(o) + E_q[log p(Y | X, a) | a_e = o]) + const

with the expectation over all other decisions, estimated by a few sampled contexts. The weights stand still. Here it is
tried on cells of NAS-Bench-201 (C = 8, N = 1; Fashion-MNIST at 14 x 14 pixels), beside PARSEC and random cells; what a
cell is worth when it is trained alone is estimated from the library's table (`reproduce.belief_rates`).
`reproduce.belief` has the same step on the 64 networks of a module of one's own, whose truth is known.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import polyarch as pa
from polyarch.architecture import Decision
from polyarch.catalogue import find
from polyarch.distributions import Categorical, uniform
from polyarch.methods.variational_depth import natural_step
from polyarch.settings import make
from polyarch.spaces.views import Sparse
from reproduce import belief_rates, own_truth
from reproduce.showing import Part, Row, Section, about, keep, mean_table, page, sized_parser

CONTEXTS, STEPS, LIMIT = 8, 60, 0.3
"""Sampled contexts a step, steps, and the largest KL(new, old) of one, over all decisions."""
EXAMPLES = 500
"""Of validation data, by which architectures are compared."""
Totals = Callable[[Tensor], Tensor]


def factorised(decisions: tuple[Decision, ...], totals: Totals, contexts: int = CONTEXTS, seed: int = 0) -> Categorical:
    """The belief that natural steps lead to from the uniform prior.

    Args:
        decisions: of the space.
        totals: log p(Y | X, a) of architectures, given their choices [n, decisions].
        contexts: in how many samples of all other decisions an option is tried, a step.
        seed: of the samples.
    """
    prior, generator, limit = uniform(decisions), torch.Generator().manual_seed(seed), LIMIT / len(decisions)
    logits = prior.log_probs.double()
    for _ in range(STEPS):
        drawn = Categorical(decisions, logits).sample(contexts, generator)
        moved = []
        for e, decision in enumerate(decisions):
            every = drawn.repeat_interleave(len(decision), 0)
            every[:, e] = torch.arange(len(decision)).repeat(contexts)
            expected = totals(every).double().view(contexts, -1).mean(0)
            start, target = logits[e, : len(decision)], prior.log_probs[e, : len(decision)] + expected
            one = natural_step(Categorical((decision,), start[None]), Categorical((decision,), target[None]), limit)
            moved.append(one.log_probs[0])
        for e, row in enumerate(moved):
            logits[e, : len(row)] = row
    return Categorical(decisions, logits)


class Asked:
    """Log-likelihoods by shared weights, of which each is computed once."""

    def __init__(self, run: pa.Run, task: pa.data.Task) -> None:
        """Nothing was asked yet."""
        assert task.select is not None
        self.supernet, self.likelihood = run.supernet(), run.config.likelihood()
        self.x, self.y = run.preprocess()(task.select.x[:EXAMPLES])[None], task.select.y[:EXAMPLES]
        self.known: dict[tuple[int, ...], float] = {}

    @torch.no_grad()
    def __call__(self, choices: Tensor) -> Tensor:
        """Of choices [n, decisions]."""
        keys = [tuple(row) for row in choices.tolist()]
        for key in dict.fromkeys(keys):
            if key not in self.known:
                found = self.likelihood.log_likelihood(self.supernet(self.x, Sparse(key))[0], self.y)
                self.known[key] = found.double().sum().item()
        return torch.tensor([self.known[key] for key in keys], dtype=torch.float64)


def rows(given: Namespace) -> Iterator[Row]:
    """Belief of PARSEC and of natural steps, the best of as many random cells, and random cells, seed by seed."""
    torch.set_num_threads(1)
    task = fashion(given.images)
    model, _ = belief_rates.fitted()
    space = own_truth.SPACE

    def worth(choices: Sequence[Tensor]) -> list[float]:
        found: list[float] = model.predict(belief_rates.features(torch.stack(list(choices)).numpy())).tolist()
        return found

    for seed in range(given.seeds):
        for name in ("parsec", "single-path"):
            cls, preset = find("method", name)
            how = make(cls, {**preset, "epochs": given.epochs, "batch_size": 128, "evaluation.every": given.epochs})
            with tempfile.TemporaryDirectory() as folder:
                run = pa.search(space, task, how, out=Path(folder) / "run", seed=seed)
                assert isinstance(run, pa.Run)
                if name == "parsec":
                    yield told("parsec", seed, run.distribution, worth)
                    continue
                for contexts in (1, CONTEXTS):
                    asked = Asked(run, task)
                    belief = factorised(space.decisions, asked, contexts, seed)
                    row = told(f"natural steps, {contexts} contexts", seed, belief, worth)
                    yield row | {"asked": len(asked.known)}
                chance = torch.Generator().manual_seed(seed)
                drawn = space.random().sample(len(asked.known), chance)
                totals = asked(drawn)
                yield {"who": "the best of as many random cells", "seed": seed, "asked": len(drawn)} | {
                    "worth": worth([drawn[totals.argmax()]])[0]
                }
                several = worth(list(drawn[:100]))
                yield {"who": "random cells", "seed": seed, "worth": sum(several) / len(several)}


def told(who: str, seed: int, belief: Any, worth: Callable[[Sequence[Tensor]], list[float]]) -> Row:
    """What a belief takes, what that is worth, and how sure it is."""
    mode, draws = belief.mode(), belief.sample(100, torch.Generator().manual_seed(seed))
    several = worth(list(draws))
    return {
        "who": who,
        "seed": seed,
        "mode": mode.tolist(),
        "worth": worth([mode])[0],
        "draws": sum(several) / len(several),
        "entropy": belief.entropy().item(),
    }


def fashion(images: str) -> pa.data.Task:
    """The training and validation images of the library's table of cells."""
    settings: dict[str, Any] = {"folder": images} if images else {}
    whole = own_truth.halved(pa.data.load("fashion-mnist", **settings))
    x, y = whole.train.x, whole.train.y
    count = own_truth.TRAIN + own_truth.VALID
    return pa.data.load((x[:count], y[:count]), select=own_truth.VALID, test=0)


# ---------------------------------------------------------------------------------------------------------------------


def table(part: Part) -> str:
    """Every belief, over seeds."""
    columns = {
        "architectures asked": ("asked", 0),
        "its mode: validation accuracy, estimated": ("worth", 2),
        "of its draws": ("draws", 2),
        "entropy, nats": ("entropy", 2),
    }
    return mean_table(["belief"], part.groups("who"), columns)


SECTIONS = (Section("Cells", ("cells",), table),)


def main() -> None:
    """Searches and writes rows; or prints what there is."""
    parser = sized_parser(__doc__, "factorised", "table", seeds=(1, 3), epochs=(2, 30))
    parser.add_argument("--images", default="", help="the folder that has fashion-mnist/")
    given = parser.parse_args()
    if given.table:
        print(page(given.out, SECTIONS, seeds=True), end="")
        return
    keep(given.out / "cells.json", rows(given), say="{who} {seed}: {worth:.2f}".format_map, about=about(rows))


if __name__ == "__main__":
    main()
