"""What `reproduce.stochastic_architectures` measures on trained networks, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from polyarch.data.task import Task
from polyarch.diagnostics.batch_means import spread_of_means
from polyarch.diagnostics.ensembles import combine, combine_within, counts_up_to
from polyarch.diagnostics.generalisation import compare_seen, unseen_wirings
from polyarch.diagnostics.normalisation import compare_statistics
from polyarch.spaces import Wiring
from polyarch.spaces.base import Supernet
from polyarch.streams import Streams
from polyarch.uncertainty.attack import pgd
from polyarch.uncertainty.calibration import summary
from polyarch.uncertainty.detection import detection
from polyarch.uncertainty.ensemble import Within
from polyarch.uncertainty.predictive import Predictive
from reproduce.showing import Row
from reproduce.stochastic_networks import LISTED, MANY, Setup, file_of, networks, opened

PASSES = 100
"""Of MC dropout (the paper)."""
BATCHES = 30
"""Whose means are compared."""
COMPARED = 100
"""Architectures on each side of a comparison (the paper)."""
ATTACKS = ((1, 2, 1), (2, 3, 1), (3, 4, 1))
"""Budget in 255ths, steps, step size in 255ths (Table 3)."""
PERS: tuple[Literal["batch", "instance"], ...] = ("batch", "instance")


@dataclass(frozen=True)
class Bench:
    """Where trained networks of one seed are, and what they are judged on."""

    setup: Setup
    folder: Path
    seed: int
    task: Task
    outside: Tensor | None
    """Raw inputs of another kind."""
    device: torch.device

    def networks(self, *names: str) -> Iterator[tuple[str, Supernet]]:
        """Those of the named networks that were trained."""
        for name in names:
            network = opened(self.setup, self.folder, name, self.seed, self.task, self.device)
            if network is not None:
                yield name, network

    def standardised(self, x: Tensor) -> Tensor:
        """Raw inputs, as networks take them, on the device."""
        return self.task.preprocess(x).to(self.device)

    def test(self, count: int = 0) -> tuple[Tensor, Tensor]:
        """The first test images, standardised, and their classes; 0 is all."""
        assert self.task.test is not None
        count = count or len(self.task.test)
        return self.standardised(self.task.test.x[:count]), self.task.test.y[:count].to(self.device)


def measured(bench: Bench, kinds: Sequence[str]) -> Iterator[Row]:
    """What was asked for and the networks are there for."""
    for kind in kinds:
        for row in MEASURES[kind](bench):
            yield {"kind": kind, "seed": bench.seed, **row}


# ---------------------------------------------------------------------------------------------------------------------
# Table 2: errors and calibration; other data.


def choices_of(supernet: Supernet) -> Tensor:
    """The architectures whose mixture a network predicts by: its list; with dropout, as many passes."""
    space = supernet.space
    assert isinstance(space, Wiring)
    listed = torch.tensor([member.choices for member in space.members])
    return listed.expand(PASSES, -1) if space.has_dropout else listed


@torch.no_grad()
def log_probs(supernet: Supernet, x: Tensor) -> Tensor:
    """[members, n, classes] of standardised inputs, in double precision, on the CPU."""
    members = Within(supernet, choices_of(supernet))
    return torch.cat([members(part).double().log_softmax(-1).cpu() for part in x.split(1024)], 1)


def mixture(members: Tensor) -> Predictive:
    """What members [members, n, classes] say together, each as loud as the others."""
    equal = torch.full((len(members),), 1 / len(members), dtype=torch.float64)
    return Predictive.from_members(members, equal)


def classifiers(bench: Bench) -> Iterator[tuple[str, list[Supernet]]]:
    """Rows of Table 2, and the networks whose members each has."""
    for name, network in bench.networks("residual", "dropout", "nsa-id", f"nsa-i-{LISTED}"):
        yield name, [network]
    alone = [network for _, network in bench.networks(*(f"member-{k}" for k in range(LISTED)))]
    if len(alone) == LISTED:
        yield "deep ensemble", alone


def table(bench: Bench) -> Iterator[Row]:
    """Errors, calibration, what other data looks like; of members alone, their mean."""
    x, y = bench.test()
    target = y.cpu()
    for name, supernets in classifiers(bench):
        members = torch.cat([log_probs(supernet, x) for supernet in supernets])
        together = mixture(members)
        row: Row = {"row": name, "members": len(members), **summary(together.log_probs, target)}
        others = None
        if bench.outside is not None:
            outside = bench.standardised(bench.outside)
            others = torch.cat([log_probs(supernet, outside) for supernet in supernets])
            row["outside"] = detection(together, mixture(others))
        yield row | {"parameters": sum(p.numel() for s in supernets for p in s.parameters())}
        if len(members) == LISTED:
            yield _alone(name, members, others, target)
            found = combine(iter(members), target, counts_up_to(LISTED))
            yield {"row": f"{name}, pairs", "disagreement": found.disagreement, "kl": found.kl}


def _alone(name: str, members: Tensor, others: Tensor | None, target: Tensor) -> Row:
    """What members are worth one by one, in the mean."""
    each = [summary(member, target) for member in members]
    row: Row = {"row": "individuals" if name == "deep ensemble" else f"{name}, one by one", "members": 1}
    row |= {key: sum(one[key] for one in each) / len(each) for key in each[0]}
    if others is not None:
        pairs = [detection(mixture(a[None]), mixture(b[None])) for a, b in zip(members, others, strict=True)]
        means = {by: sum(pair[by]["auroc"] for pair in pairs) / len(pairs) for by in ("entropy", "confidence")}
        row["outside"] = {by: {"auroc": mean} for by, mean in means.items()}
    return row


# ---------------------------------------------------------------------------------------------------------------------
# Section 3: batch norm.


def batch_means(bench: Bench) -> Iterator[Row]:
    """How much batch means vary, for weights of both kinds under draws of both kinds."""
    x = bench.standardised(bench.task.train.x[: 10 * 1024])
    for name, supernet in bench.networks(f"nsa-{MANY}", f"nsa-i-{MANY}"):
        for per in PERS:
            found = spread_of_means(supernet, x, supernet.space.random(), per=per, batches=BATCHES, seed=bench.seed)
            yield {"row": name, "per": per, **asdict(found.overall), "layers": [one.total for one in found.layers]}


def statistics(bench: Bench) -> Iterator[Row]:
    """Architectures by statistics of the batch and by running ones."""
    x, y = bench.test(bench.setup.judged)
    for name, supernet in bench.networks(f"nsa-{MANY}", f"nsa-i-{MANY}"):
        found = compare_statistics(supernet, x, y, choices_of(supernet)[:COMPARED], seed=bench.seed)
        accuracies = {"batch": found.batch.accuracy, "running": found.running.accuracy}
        yield {"row": name, "spearman": asdict(found.accuracy_correlation), **accuracies}


def curves(bench: Bench) -> Iterator[Row]:
    """What was watched while training."""
    for name in networks(bench.setup):
        path = file_of(bench.folder, name, bench.seed)
        if path.exists():
            kept = torch.load(path, map_location="cpu", weights_only=True)
            yield {"row": name, "seconds": kept["seconds"], "curve": kept["curve"]}


# ---------------------------------------------------------------------------------------------------------------------
# Sections 4 and 5: many architectures, attacks, few labels.


def seen(bench: Bench) -> Iterator[Row]:
    """Table 1: listed wirings and others."""
    x, y = bench.test(bench.setup.judged)
    for name, supernet in bench.networks(*(f"nsa-i-{listed}" for listed in (LISTED, 10 * LISTED, MANY))):
        assert isinstance(supernet.space, Wiring)
        known = choices_of(supernet)
        found = compare_seen(supernet, x, y, known[:COMPARED], unseen_wirings(supernet.space, known, COMPARED))
        means = {"seen": found.seen_accuracy, "unseen": found.unseen_accuracy}
        yield {"row": name, "auc": asdict(found.auc), **means}


def ensembles(bench: Bench) -> Iterator[Row]:
    """Fig. 4: mixtures of more and more listed wirings."""
    x, y = bench.test(bench.setup.judged)
    for name, supernet in bench.networks(f"nsa-i-{MANY}", f"nsa-id-aggregation-{MANY}"):
        found = combine_within(supernet, x, y.cpu(), choices_of(supernet))
        alone = torch.tensor(found.members).mean().item()
        pairs = {"disagreement": found.disagreement, "kl": found.kl}
        yield {"row": name, "one": alone, **pairs, **asdict(found.averaged)}


def attacks(bench: Bench) -> Iterator[Row]:
    """Table 3: accuracy under attack, and whether it is noticed by mutual information."""
    count = bench.setup.attacked
    if not count or bench.task.test is None:
        return
    raw, y = bench.task.test.x[:count].to(bench.device), bench.task.test.y[:count].to(bench.device)
    standardise = bench.task.preprocess.to(bench.device)
    for name, supernet in bench.networks("dropout", "nsa-id"):
        members = Within(supernet, choices_of(supernet))
        equal = torch.full((len(members.views),), 1 / len(members.views), device=bench.device)

        def says(x: Tensor, members: Within = members, equal: Tensor = equal) -> Predictive:
            return Predictive.from_members(members(standardise(x)).double().log_softmax(-1), equal)

        with torch.no_grad():
            clean = says(raw)
        for budget, steps, size in ATTACKS:
            attacked = pgd(
                lambda x: says(x).log_probs, raw, y, budget=budget / 255, steps=steps, step_size=size / 255,
                generator=Streams(bench.seed)["noise"], high=255.0, batch=250,
            )  # fmt: skip
            with torch.no_grad():
                under = says(attacked)
            right = (under.log_probs.argmax(-1) == y).double().mean().item()
            noticed = detection(clean.cpu(), under.cpu())["mutual_information"]["auroc"]
            yield {"row": name, "attack": f"{budget}-{steps}-{size}", "accuracy": right, "auroc": noticed}


def few_labels(bench: Bench) -> Iterator[Row]:
    """Section 5.3, by the mixture of all members."""
    x, y = bench.test()
    names = [name for name in networks(bench.setup) if name.startswith("labels-")]
    for name, supernet in bench.networks(*names):
        yield {"row": name, **summary(mixture(log_probs(supernet, x)).log_probs, y.cpu())}


MEASURES = {
    "table": table, "curves": curves, "seen": seen, "attacks": attacks, "few labels": few_labels,
    "batch means": batch_means, "statistics": statistics, "ensembles": ensembles,
}  # fmt: skip
