"""The rows of `reproduce.training_speed` as Markdown tables: mean ± standard deviation over seeds, and how many.

python -m reproduce.training_speed --table
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduce.depth_tables import told

Row = dict[str, Any]
SAMPLES = ("1", "5", "50")
WINDOWS = {"sotl": "all steps", "first_epoch": "first epoch", "last_epoch": "last epoch"}


@dataclass(frozen=True)
class Part:
    """What there is of one part."""

    rows: tuple[Row, ...]
    source: str
    """Command and machine."""

    def having(self, **labels: Any) -> list[Row]:
        """The rows with these labels."""
        return [row for row in self.rows if all(row[name] == value for name, value in labels.items())]

    def values_of(self, *names: str) -> list[Any]:
        """What a label takes, or several together, in the order of the rows."""
        found = dict.fromkeys(tuple(row[name] for name in names) for row in self.rows)
        return [values if len(names) > 1 else values[0] for values in found]


def read(folder: Path, name: str) -> Part | None:
    """Every row of a part; None where it was not run."""
    file = folder / f"{name}.json"
    if not file.exists():
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    return Part(tuple(found["rows"]), f"`{found['command']}` on {found['machine']}")


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table; all columns but the first are numbers, and lean right."""
    rule = [":--", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def lowest(rows: Iterable[Row], loss: Callable[[Row], float]) -> Any:
    """The degree of the row that loses least."""
    return min(rows, key=loss)["degree"]


# ---------------------------------------------------------------------------------------------------------------------
# Evidence.


def judges() -> dict[str, Callable[[Row], float]]:
    """Everything that estimates or bounds the log evidence, by name."""
    found: dict[str, Callable[[Row], float]] = {
        "log evidence": lambda row: row["evidence"],
        "bound (3.5)": lambda row: row["bound"],
    }
    for k in SAMPLES:
        found[f"SoTL (3.6), k={k}"] = lambda row, k=k: row["sotl"][k]  # type: ignore[misc]
    for k in SAMPLES[1:]:
        found[f"inside the log, k={k}"] = lambda row, k=k: row["inside"][k]  # type: ignore[misc]
    return found


def evidence(part: Part) -> str:
    """Every feature set under every judge."""
    lines = [
        [str(degree), *(told([value(row) for row in part.having(degree=degree)], 1) for value in judges().values())]
        for degree in part.values_of("degree")
    ]
    return table(["degree", *judges()], lines)


def bayes_factors(part: Part) -> str:
    """How much better the true degree is than its neighbours, and how often it is the best of all."""
    seeds, degrees = part.values_of("seed"), part.values_of("degree")
    [above] = [degree for degree in degrees if degree > 3][:1]
    below = max(degree for degree in degrees if degree < 3)
    lines = []
    for name, value in judges().items():
        factors = [
            told([_one(part, seed, 3, value) - _one(part, seed, other, value) for seed in seeds], 1)
            for other in (below, above)
        ]
        right = sum(lowest(part.having(seed=seed), lambda row, v=value: -v(row)) == 3 for seed in seeds)  # type: ignore[misc]
        lines.append([name, *factors, f"{right} of {len(seeds)}"])
    return table(["judge", f"log Bayes factor 3 : {below}", f"log Bayes factor 3 : {above}", "3 is best"], lines)


def _one(part: Part, seed: int, degree: int, value: Callable[[Row], float]) -> float:
    [row] = part.having(seed=seed, degree=degree)
    return value(row)


# ---------------------------------------------------------------------------------------------------------------------
# The Fourier degree.


def fixed(part: Part) -> str:
    """Which fixed degree has the lowest SoTL, by window, and by how much it wins."""
    seeds = part.values_of("seed")
    lines = []
    for data, start, true in part.values_of("data", "start", "true"):
        groups = [part.having(data=data, start=start, true=true, seed=seed) for seed in seeds]
        right = [
            f"{sum(lowest(rows, lambda row, w=window: row[w]) == true for rows in groups)} of {len(seeds)}"  # type: ignore[misc]
            for window in WINDOWS
        ]
        leads = [told([_lead(rows, window, true) for rows in groups], 3) for window in ("sotl", "last_epoch")]
        lines.append([data, start, str(true), *right, *leads])
    head = [f"true is lowest, {name}" for name in WINDOWS.values()]
    return table(["data", "first weights", "true degree", *head, "lead, all steps", "lead, last epoch"], lines)


def _lead(rows: Sequence[Row], window: str, true: int) -> float:
    """How far the next best's SoTL lies above the true degree's, in per cent; negative where that is not best."""
    [own] = [row[window] for row in rows if row["degree"] == true]
    other: float = min(row[window] for row in rows if row["degree"] != true)
    return 100 * (other - own) / own


def fixed_sums(part: Part) -> str:
    """SoTL of every fixed degree, all steps, weights drawn."""
    columns = [(data, true) for data, start, true in part.values_of("data", "start", "true") if start == "drawn"]
    lines = []
    for degree in part.values_of("degree"):
        groups = [part.having(data=data, start="drawn", true=true, degree=degree) for data, true in columns]
        lines.append([str(degree), *(told([row["sotl"] for row in rows], 2) for rows in groups)])
    return table(["degree", *(f"{data}, true {true}" for data, true in columns)], lines)


def learnt(part: Part) -> str:
    """Where MaxDeg ends, from every start."""
    starts = part.values_of("start")
    lines = []
    for strength, data, name, true in sorted(
        part.values_of("degree_l2", "data", "objective", "true"), key=lambda labels: (labels[0], labels[1] != "thesis")
    ):
        groups = [
            part.having(degree_l2=strength, data=data, objective=name, true=true, start=start) for start in starts
        ]
        ends = [told([row["end"] for row in rows], 2) for rows in groups]
        worst = max(abs(row["end"] - true) for rows in groups for row in rows)
        lines.append([
            f"{strength:g}", data, name, str(true), *ends, f"{worst:.2f}{' (> 0.5)' if worst > 0.5 else ''}",
            told([row["best"] for row in groups[0]], 2), *(_arrivals(groups[place]) for place in (0, -1)),
        ])  # fmt: skip
    places = [f"end from {start:g}".replace("-", "−") for start in starts]
    first, last = (f"steps to within 0.5 from {start:g}".replace("-", "−") for start in (starts[0], starts[-1]))
    return table(
        ["degree L2", "data", "objective", "true", *places, "furthest off", "for ever", first, last],
        lines,
    )


def _arrivals(rows: Sequence[Row]) -> str:
    steps = [row["arrived"] for row in rows]
    return "never" if None in steps else told(steps, 0)


# ---------------------------------------------------------------------------------------------------------------------
# The learning rate.


def rates(part: Part) -> str:
    """Test accuracy epoch by epoch, and where the rate ends."""
    lines = []
    for steps in part.values_of("T"):
        rows = part.having(T=steps)
        accuracies = [
            told([100 * a for a in epoch], 2) for epoch in zip(*(row["accuracy"] for row in rows), strict=True)
        ]
        lines.append(["fixed rate" if steps == 0 else f"T={steps}", *accuracies, told([row["end"] for row in rows], 4)])
    epochs = len(part.rows[0]["accuracy"])
    return table(["rate learnt by", *(f"% after epoch {k + 1}" for k in range(epochs)), "rate at the end"], lines)


TABLES: tuple[tuple[str, str, Callable[[Part], str], str], ...] = (
    (
        "Evidence and its bounds (Eq. 3.3 to 3.6)",
        "evidence",
        evidence,
        "Nats; 100 points, true degree 3, a data draw a seed. `inside the log`: k samples averaged before the log.",
    ),
    ("Bayes factors (Eq. 3.3)", "evidence", bayes_factors, "Differences in nats, equal priors."),
    (
        "Fig. 4.2: fixed degrees",
        "fixed_degrees",
        fixed,
        "Lead: the next best's SoTL above that of the true degree, in per cent of it; negative where that is not best.",
    ),
    ("Fig. 4.2: SoTL by degree, all steps, weights drawn", "fixed_degrees", fixed_sums, ""),
    (
        "Fig. 4.3: the degree by gradient",
        "learnt_degrees",
        learnt,
        "`for ever`: where the penalised loss has its minimum, worked out without training (for validation, from each "
        "seed's data). `furthest off`: of all starts and seeds.",
    ),
    ("Fig. 4.1a: the learning rate by gradient, MNIST", "learning_rate", rates, ""),
)


def markdown(folder: Path) -> str:
    """All tables that there are rows for, and a line for each that there are none for."""
    texts = []
    for title, name, make, note in TABLES:
        part = read(folder, name)
        texts.append(f"### {title}")
        if part is None:
            texts.append(f"(not run: {name})")
            continue
        seeds = f"Seeds {', '.join(map(str, part.values_of('seed')))}."
        texts.extend([f"{note} {seeds}".strip(), make(part), part.source])
    return "\n\n".join(texts) + "\n"
