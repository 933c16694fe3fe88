"""Should I believe it? How often the intervals of `polyarch trust` hold the truth, and what so many trainings notice.

    python -m reproduce.trust coverage       # five minutes on one CPU
    python -m reproduce.trust rivals         # four: other intervals of Kendall's tau on the same draws
    python -m reproduce.trust show           # what was found, as Markdown

All cells of NAS-Bench-201 are known, so a belief can be made that knows as much as one likes: logits are a * the
standardised truth + (1 - |a|) * noise, scaled to a deviation of 1 nat (broad) or 4 (peaked). `a` is such that Kendall's
tau of belief and truth is 0, 0.25, 0.5 or 0.75 among cells of which half are drawn from belief and half uniformly. Then
cells are drawn as `polyarch trust` draws them, and judged as it judges them. The intervals were chosen by CIFAR-10 and
CIFAR-100; the library's own table of Fashion-MNIST, which has 768 cells, had no part in that.

The table is found through POLYARCH_TABLES; or give a path. Rows go to docs/results/trust/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau, t

from polyarch.ranking.comparisons import above_median, group_against_group, one_against_group, order
from polyarch.ranking.statistics import Estimate, Numbers, kendall, standing
from polyarch.tables import open_table
from polyarch.tables.truth import OWN
from reproduce.showing import RESULTS, Part, Row, Section, as_table, keep, page, parser_of

COLUMNS = {
    "CIFAR-10": "cifar10_test_acc_200",
    "CIFAR-100": "cifar100_test_acc_200",
    "Fashion-MNIST": "test_accuracy",
}
TAUS = (0.0, 0.25, 0.5, 0.75)
SPREADS = {"broad": 1.0, "peaked": 4.0}
SIZES = (8, 16, 64)
MANY = 20_000
"""Draws of each kind that stand for all there are."""
QUESTIONS = {
    "order": "belief orders them",
    "draws": "belief beats uniform",
    "selected": "selected beats uniform",
    "above": "above the median",
}


@dataclass(frozen=True)
class Belief:
    """A belief over the cells of a table, and what is true of it."""

    truth: Numbers
    logits: Numbers
    known: dict[str, float]
    """By question."""

    @property
    def probs(self) -> Numbers:
        """[cells]."""
        return softmax(self.logits)

    @property
    def selected(self) -> float:
        """The truth of the most probable cell."""
        return float(self.truth[self.logits.argmax()])

    def draw(self, trainings: int, random: np.random.Generator) -> tuple[Numbers, Numbers]:
        """Cells that belief draws, and cells that are drawn uniformly."""
        cells = len(self.truth)
        drawn = random.choice(cells, size=trainings // 2, p=self.probs)
        return drawn, random.integers(cells, size=trainings - trainings // 2)


def softmax(logits: Numbers) -> Numbers:
    """Probabilities."""
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def belief_of(truth: Numbers, tau: float, spread: float, random: np.random.Generator) -> Belief:
    """One with a given tau, found by bisection: what is drawn comes from the same random numbers at every step."""
    standard, noise = (truth - truth.mean()) / truth.std(), random.normal(size=len(truth))
    places, uniform = random.random(MANY), random.integers(len(truth), size=MANY)

    def logits_of(share: float) -> Numbers:
        mixed = share * standard + (1 - abs(share)) * noise
        return spread * mixed / mixed.std()

    def tau_of(logits: Numbers) -> float:
        found = np.searchsorted(np.cumsum(softmax(logits))[:-1], places)
        cells = np.concatenate([found, uniform])
        return float(kendalltau(logits[cells], truth[cells]).statistic)

    low, high = -1.0, 1.0
    for _ in range(12):
        share = (low + high) / 2
        low, high = (share, high) if tau_of(logits_of(share)) < tau else (low, share)
    logits = logits_of((low + high) / 2)
    below = np.searchsorted(np.sort(truth), truth, "left") + np.searchsorted(np.sort(truth), truth, "right")
    beaten, best = below / (2 * len(truth)), int(logits.argmax())
    known = {
        "order": tau_of(logits),
        "draws": float(softmax(logits) @ beaten),
        "selected": float(beaten[best]),
        "above": float(truth[best] - np.median(truth)),
    }
    return Belief(truth, logits, known)


def beliefs(table: str, data: Iterable[str]) -> Iterator[tuple[Row, Belief]]:
    """Of these data, with their labels."""
    for name in data:
        truth = open_table(OWN if name == "Fashion-MNIST" else table).whole(COLUMNS[name])
        for form, spread in SPREADS.items():
            for tau in TAUS:
                yield (
                    {"data": name, "belief": form, "tau": tau},
                    belief_of(truth, tau, spread, np.random.default_rng(0)),
                )


def coverage(table: str, repetitions: int, data: Iterable[str] = tuple(COLUMNS)) -> Iterator[Row]:
    """What `polyarch trust` answers: how often it holds the truth, how wide it is, and how often it is settled."""
    for labels, belief in beliefs(table, data):
        for trainings in SIZES:
            random, found = np.random.default_rng(1), []
            for _ in range(repetitions):
                by_belief, uniform = belief.draw(trainings, random)
                worth = belief.truth[uniform]
                every = np.concatenate([by_belief, uniform])
                found.append(
                    {
                        "order": order(belief.logits[every], belief.truth[every]).estimate,
                        "draws": group_against_group(belief.truth[by_belief], worth).estimate,
                        "selected": one_against_group(belief.selected, worth).estimate,
                        "above": above_median(belief.selected, worth),
                    }
                )
            yield {**labels, "trainings": trainings, "repetitions": repetitions} | {
                name: judged(
                    [one[name] for one in found], belief.known[name], 0.5 if name in ("draws", "selected") else 0
                )
                for name in QUESTIONS
            }


def judged(found: list[Estimate], known: float, even: float) -> Row | None:
    """How often intervals hold what is known, their mean width, and how often they are beyond no difference."""
    ends = np.array([one.interval for one in found if one.interval])
    if len(ends) < len(found):
        return None
    low, high = ends.T
    beyond = low > even if known >= even else high < even
    shares = {"holds": (low <= known) & (known <= high), "noticed": beyond}
    return {"known": round(known, 4), "width": round(float((high - low).mean()), 4)} | {
        name: round(float(share.mean()), 4) for name, share in shares.items()
    }


# ---------------------------------------------------------------------------------------------------------------------
# Other intervals of tau.

Interval = Callable[[Numbers, Numbers], tuple[float, float]]


def fieller(one: Numbers, other: Numbers) -> tuple[float, float]:
    """Fisher's z, with the variance of Fieller, Hartley and Pearson (1957)."""
    return around(tau(one, other), 1.96 * np.sqrt(0.437 / (len(one) - 4)))


def jackknife(one: Numbers, other: Numbers) -> tuple[float, float]:
    """Fisher's z, with the jackknife's variance and Student's t."""
    n, value = len(one), tau(one, other)
    without = [tau(np.delete(one, k), np.delete(other, k)) for k in range(n)]
    error = np.sqrt((n - 1) * np.var(without))
    return around(value, t.ppf(0.975, n - 1) * error / (1 - min(value**2, 0.998)))


def percentile(one: Numbers, other: Numbers) -> tuple[float, float]:
    """The bootstrap's percentiles, as in `polyarch rank`; nothing is ruled out where it has none."""
    found = standing(one, other, np.arange(len(one)), resamples=300).kendall
    return found.interval or (-1.0, 1.0)


def bound(one: Numbers, other: Numbers) -> tuple[float, float]:
    """With the greatest variance that there can be, 2 (1 - tau²) / n (Daniels and Kendall, 1947)."""
    value, k = tau(one, other), 2 * 1.96**2 / len(one)
    reach = np.sqrt(k * (k + 1 - value**2))
    return (value - reach) / (1 + k), (value + reach) / (1 + k)


class Gaussian:
    """Exact inversion for a Gaussian copula: every tau of which the found one is within the middle 95 %."""

    def __init__(self) -> None:
        """Tables are made when asked for."""
        self._tables: dict[int, tuple[Numbers, Numbers, Numbers]] = {}

    def __call__(self, one: Numbers, other: Numbers) -> tuple[float, float]:
        """Both ends; where the estimate is beyond all of them, it itself."""
        taus, low, high = self._table(len(one))
        value = tau(one, other)
        held = taus[(low - 1e-9 <= value) & (value <= high + 1e-9)]
        if not len(held):
            return value, value
        return -1 if held[0] == taus[0] else held[0], 1 if held[-1] == taus[-1] else held[-1]

    def _table(self, n: int) -> tuple[Numbers, Numbers, Numbers]:
        if n not in self._tables:
            random, pairs = np.random.default_rng(0), np.triu_indices(n, 1)
            x, noise = random.normal(size=(2, 2000, n))
            signs = np.sign(x[:, pairs[0]] - x[:, pairs[1]])
            correlations = np.linspace(-0.999, 0.999, 81)
            low, high = [], []
            for r in correlations:
                y = r * x + np.sqrt(1 - r * r) * noise
                found = (signs * np.sign(y[:, pairs[0]] - y[:, pairs[1]])).mean(1)
                for ends, share in ((low, 0.025), (high, 0.975)):
                    ends.append(np.quantile(found, share, method="inverted_cdf"))
            self._tables[n] = 2 / np.pi * np.arcsin(correlations), np.array(low), np.array(high)
        return self._tables[n]


def tau(one: Numbers, other: Numbers) -> float:
    """Kendall's tau-b; 0 where it is not defined, as in a resample of one cell alone."""
    return kendall(one, other) or 0.0


def around(value: float, reach: float) -> tuple[float, float]:
    """An interval that is even around Fisher's z."""
    z = np.arctanh(np.clip(value, -0.999, 0.999))
    return np.tanh(z - reach), np.tanh(z + reach)


def library(one: Numbers, other: Numbers) -> tuple[float, float]:
    """What `polyarch trust` has."""
    found = order(one, other).estimate.interval
    return found or (-1.0, 1.0)


RIVALS: dict[str, Interval] = {
    "library": library,
    "Fieller": fieller,
    "jackknife": jackknife,
    "bootstrap": percentile,
    "Gaussian copula": Gaussian(),
    "bound": bound,
}


def rivals(table: str, repetitions: int) -> Iterator[Row]:
    """Other intervals of tau on the same draws, cells of CIFAR-10."""
    for labels, belief in beliefs(table, ["CIFAR-10"]):
        for trainings in SIZES:
            random, found = np.random.default_rng(1), {name: [] for name in RIVALS}
            for _ in range(repetitions):
                every = np.concatenate(belief.draw(trainings, random))
                for name, interval in RIVALS.items():
                    ends = interval(belief.logits[every], belief.truth[every])
                    found[name].append(Estimate(0.0, *map(float, ends)))
            yield {**labels, "trainings": trainings, "repetitions": repetitions} | {
                name: judged(ends, belief.known["order"], 0) for name, ends in found.items()
            }


# ---------------------------------------------------------------------------------------------------------------------
# What was found.


def coverage_table(part: Part) -> str:
    """Shares of repetitions whose interval holds the truth, by question; and how wide that of tau is."""
    lines = [
        [*labels_of(row), *(share(row[q], "holds") for q in QUESTIONS), share(row["order"], "width", 2)]
        for row in part.rows
    ]
    return as_table(["truth", "belief", "tau", "trainings", *QUESTIONS.values(), "width for tau"], lines, 2)


def noticed_table(part: Part) -> str:
    """Shares of repetitions that settle it on the right side."""
    lines = [
        [*labels_of(row), *(f"{share(row[q], 'noticed', 2)} ({row[q]['known']:.2f})" for q in list(QUESTIONS)[:3])]
        for row in part.having(data="CIFAR-10")
    ]
    return as_table(["truth", "belief", "tau", "trainings", *list(QUESTIONS.values())[:3]], lines, 2)


def rivals_table(part: Part) -> str:
    """Coverage and width of each."""
    lines = [
        [row["belief"], f"{row['tau']:g}", str(row["trainings"])]
        + [f"{share(row[name], 'holds')} ({share(row[name], 'width', 2)})" for name in RIVALS]
        for row in part.rows
    ]
    return as_table(["belief", "tau", "trainings", *RIVALS], lines)


def labels_of(row: Row) -> list[str]:
    """What a line is about."""
    return [row["data"], row["belief"], f"{row['tau']:g}", str(row["trainings"])]


def share(found: Row | None, name: str, digits: int = 3) -> str:
    """A number of what was judged."""
    return "–" if found is None else f"{found[name]:.{digits}f}"


SECTIONS = (
    Section(
        "What 95 % intervals hold", ("coverage",), coverage_table,
        "Share of repetitions whose interval holds what is true of all cells. Two standard errors of 400 repetitions "
        "are 0.022. Fewer than six uniform draws have no interval above the median.",
    ),
    Section(
        "What so many trainings notice", ("coverage",), noticed_table,
        "Share of repetitions whose interval is wholly on the right side of no difference; in brackets what is true: "
        "tau, and probabilities of being better. Where tau is 0, how often chance is taken for an order on one side.",
    ),
    Section(
        "Other intervals of Kendall's tau", ("rivals",), rivals_table,
        "On the draws of CIFAR-10: share that holds the truth, and mean width in brackets.",
    ),
)  # fmt: skip
PARTS = {"coverage": (coverage, 400), "rivals": (rivals, 200)}


def said(row: Row) -> str:
    """A row in short."""
    return "  " + ", ".join(str(value) for value in row.values())


def main() -> None:
    """Runs a part and writes its rows; or prints what there is."""
    parser = parser_of(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, (make, repetitions) in PARTS.items():
        verb = verbs.add_parser(name, help=make.__doc__)
        verb.add_argument("--table", default="nasbench201", help="name or path of NAS-Bench-201's table")
        verb.add_argument("--repetitions", type=int, default=repetitions, help=f"default: {repetitions}")
    verbs.add_parser("show", help="print all tables as Markdown")
    for verb in verbs.choices.values():
        verb.add_argument("--out", type=Path, default=RESULTS / "trust", help="default: docs/results/trust")
    given = parser.parse_args()
    if given.verb == "show":
        print(page(given.out, SECTIONS), end="")
        return
    make, _ = PARTS[given.verb]
    keep(given.out / f"{given.verb}.json", make(given.table, given.repetitions), "table", say=said, part=given.verb)


if __name__ == "__main__":
    main()
