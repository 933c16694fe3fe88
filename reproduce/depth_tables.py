"""The rows of `reproduce.depth` as Markdown tables: mean ± standard deviation over seeds, and how many seeds.

    python -m reproduce.depth --table

Rows of one part may lie in several files, PART.json and PART-GRID.json; they are read as one.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]

PAPER = {"fashion-mnist": (28, 0.41), "mnist": (18, 0.62)}
"""Depth by the 95 % rule and share of the forward time saved at D=50, as the paper has them (section 3.2)."""
DATA = {"fashion-mnist": "Fashion-MNIST", "mnist": "MNIST"}
IMAGE_RULES = {"LDN-95": "95%", "LDN-E": "expectation"}


@dataclass(frozen=True)
class Part:
    """What there is of one part."""

    rows: tuple[Row, ...]
    sources: tuple[tuple[str, str], ...]
    """Command and machine of every file."""

    def having(self, **labels: Any) -> list[Row]:
        """The rows with these labels."""
        return [row for row in self.rows if all(row.get(name) == value for name, value in labels.items())]

    def values_of(self, label: str, **labels: Any) -> list[Any]:
        """The values of a label, in order; of the rows with these other labels."""
        return sorted({row[label] for row in self.having(**labels) if label in row})


def read(folder: Path, part: str) -> Part | None:
    """Every row of a part; None where it was not run. Where two files hold the same run, PART.json has the say."""
    rows: dict[str, Row] = {}
    sources: dict[tuple[str, str], None] = {}
    for file in [folder / f"{part}.json", *sorted(folder.glob(f"{part}-*.json"))]:
        if file.exists():
            found = json.loads(file.read_text(encoding="utf-8"))
            for row in found["rows"]:
                rows.setdefault(json.dumps([row["seed"], labels_of(row)], sort_keys=True), {"part": part, **row})
            sources[found["command"], found["machine"]] = None
    return Part(tuple(rows.values()), tuple(sources)) if rows else None


def joined(parts: Iterable[Part | None]) -> Part | None:
    """Several parts as one, such as the image sets."""
    present = [part for part in parts if part]
    sources = dict.fromkeys(source for part in present for source in part.sources)
    return Part(tuple(row for part in present for row in part.rows), tuple(sources)) if present else None


def labels_of(row: Row) -> Row:
    """What tells a row from others of its part, besides the seed."""
    names = ("who", "D", "data", "width", "rotation", "points", "update", "prior", "statistics")
    return {name: row[name] for name in names if name in row}


# ---------------------------------------------------------------------------------------------------------------------
# Numbers.


def mixture(rule: str = "argmax") -> Callable[[Row], dict[str, float]]:
    """The mixture cut at the depth that a rule selects (Eq. 3)."""
    return lambda row: row[rule]["mixture"]


def network(rule: str = "argmax") -> Callable[[Row], dict[str, float]]:
    """The network of the selected depth alone."""
    return lambda row: row[rule]["network"]


def full(row: Row) -> dict[str, float]:
    """The mixture over all depths."""
    return row["full"]


def depths(rows: Sequence[Row], rule: str = "argmax") -> list[int]:
    """The depth that a rule selects, run by run."""
    return [row[rule]["depth"] for row in rows]


def fits(rows: Sequence[Row], of: Callable[[Row], dict[str, float]]) -> list[float]:
    """Test log-likelihood an example, run by run."""
    return [of(row)["log_likelihood"] for row in rows]


def errors(rows: Sequence[Row], of: Callable[[Row], dict[str, float]]) -> list[float]:
    """Test error in per cent, run by run."""
    return [100 * (1 - of(row)["accuracy"]) for row in rows]


def told(values: Sequence[float], digits: int) -> str:
    """Mean ± standard deviation; of one value, itself."""
    mean = _number(statistics.fmean(values), digits)
    return mean if len(values) == 1 else f"{mean} ± {_number(statistics.stdev(values), digits)}"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _depths(values: Sequence[int]) -> str:
    """Mean ± standard deviation, and the range."""
    if len(values) == 1:
        return str(values[0])
    return f"{told(values, 1)} ({min(values)} … {max(values)})"


def _quality(rows: Sequence[Row], of: Callable[[Row], dict[str, float]]) -> list[str]:
    return [told(fits(rows, of), 3), told(errors(rows, of), 2)]


def _markdown(head: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table; all columns but the first `left` are numbers, and lean right."""
    rule = [":--" if k < left else "--:" for k in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def draws(part: Part) -> str:
    """Fig. 2 left."""
    lines = []
    for deepest in part.values_of("D", who="LDN"):
        rows = part.having(who="LDN", D=deepest)
        selected = _depths(depths(rows))
        for name, depth, of in (
            ("pruned", selected, mixture()),
            ("full", str(deepest), full),
            ("selected network alone", selected, network()),
        ):
            lines.append([f"LDN {name}, D={deepest}", depth, *_quality(rows, of), str(len(rows))])
    for depth in part.values_of("D", who="DDN"):
        rows = part.having(who="DDN", D=depth)
        lines.append([f"DDN, depth {depth}", str(depth), *_quality(rows, network()), str(len(rows))])
    return _markdown(["network", "depth", "test log-likelihood", "error %", "seeds"], lines)


def sweep(part: Part, label: str, title: str) -> str:
    """LDNs along one setting."""
    lines = []
    for value in part.values_of(label, who="LDN"):
        rows = part.having(who="LDN", **{label: value})
        lines.append([str(value), *_sweep_line(rows)])
    return _markdown([title, *_SWEEP], lines, left=0)


_SWEEP = ("selected depth", "pruned log-likelihood", "pruned error %", "full log-likelihood", "full error %", "seeds")


def _sweep_line(rows: Sequence[Row]) -> list[str]:
    return [_depths(depths(rows)), *_quality(rows, mixture()), *_quality(rows, full), str(len(rows))]


def updates(part: Part) -> str:
    """How belief is updated, and the prior."""
    names = {"sgd": "SGD (the paper)", "em": "exact E-step (Eq. 5)"}
    lines = []
    for update in sorted(part.values_of("update"), reverse=True):
        for prior in part.values_of("prior", update=update):
            rows = part.having(update=update, prior=prior)
            lines.append([names.get(update, update), prior, *_sweep_line(rows)])
    return _markdown(["update", "prior", *_SWEEP], lines, left=2)


def head(part: Part) -> str:
    """The output block's batch-norm statistics: what running ones cost beside the batch's own, by depth."""
    lines = []
    for kept in part.values_of("statistics"):
        rows = part.having(statistics=kept)
        gaps = [[a - b for a, b in zip(row["fit"]["running"], row["fit"]["batch"], strict=True)] for row in rows]
        shallow = [statistics.fmean(gap[:4]) for gap in gaps]
        deep = [statistics.fmean(gap[4:] or gap[-1:]) for gap in gaps]
        quality = [told(shallow, 4), told(deep, 4), _depths(depths(rows)), *_quality(rows, mixture())]
        lines.append([kept, *quality, str(len(rows))])
    title = ["statistics", "gap, depths 0 … 3", "gap, deeper", "selected depth", "log-likelihood", "error %", "seeds"]
    return _markdown(title, lines)


def images(part: Part) -> str:
    """Figs. 4, 9, 10 and 11 in numbers."""
    lines = []
    for data in [name for name in DATA if name in part.values_of("data")]:
        for deepest in part.values_of("D", data=data):
            for name, rows, depth, of, saved in image_kinds(part, data, deepest):
                ece = [told([100 * of(row)[kind] for row in rows], 2) for kind in ("ece", "ece_all_classes")]
                known = PAPER[data] if deepest == 50 and name == "LDN-95" else None
                paper = [str(known[0]), f"{100 * known[1]:.0f} %"] if known else ["", ""]
                saving = f"{told([100 * s for s in saved], 0)} %" if saved else ""
                numbers = [_depths(depth), *_quality(rows, of)[::-1], *ece, saving, *paper]
                lines.append([DATA[data], str(deepest), name, *numbers, str(len(rows))])
    title = [
        "data", "D", "network", "depth", "error %", "log-likelihood", "ECE %", "ECE %, all classes", "time saved",
        "paper's depth", "paper's time saved", "seeds",
    ]  # fmt: skip
    return _markdown(title, lines, left=3)


def pruning(part: Part) -> str:
    """What pruning changes, seed by seed."""
    lines = [
        [
            str(row["seed"]),
            str(row["argmax"]["depth"]),
            *_quality([row], mixture()),
            *_quality([row], full),
            _number(row["difference"], 4),
            str(row["examples_with_90_percent"]),
        ]
        for row in part.rows
    ]
    lines.append(
        [
            "all",
            _depths(depths(part.rows)),
            *_quality(part.rows, mixture()),
            *_quality(part.rows, full),
            told([row["difference"] for row in part.rows], 4),
            _depths([row["examples_with_90_percent"] for row in part.rows]),
        ]
    )
    return _markdown(["seed", *_SWEEP[:-1], "pruned less full", "examples with 90 % of it"], lines)


def lag(part: Part) -> str:
    """How far belief is from the exact posterior over depth that the run's own weights give (Eq. 5)."""
    groups: dict[str, list[Row]] = {}
    for row in part.rows:
        if row.get("who", "LDN") == "LDN" and "kl_to_posterior" in row:
            labels = {name: value for name, value in labels_of(row).items() if name != "who"}
            name = ", ".join([row["part"], *(f"{name} {value}" for name, value in labels.items())])
            groups.setdefault(name, []).append(row)
    lines = [
        [
            name,
            told([row["kl_to_posterior"] for row in rows], 2),
            _depths([row["posterior_mode"] for row in rows]),
            _depths(depths(rows)),
            str(len(rows)),
        ]
        for name, rows in groups.items()
    ]
    return _markdown(["LDN", "KL(q‖posterior), nats", "posterior's mode", "argmax of q", "seeds"], lines)


class Kind(NamedTuple):
    """One way to use the networks of one D."""

    name: str
    rows: list[Row]
    depths: list[int]
    of: Callable[[Row], dict[str, float]]
    """The quality of a row."""
    saved: list[float]
    """Share of the forward time; empty where it was not taken."""


def image_kinds(part: Part, data: str, deepest: int) -> list[Kind]:
    """LDN-95, LDN-E, LDN-full and DDN at one D, as far as they exist."""
    learnt, fixed = (part.having(who=who, data=data, D=deepest) for who in ("LDN", "DDN"))
    kinds: list[Kind] = []
    if learnt:
        for name, rule in IMAGE_RULES.items():  # time was taken of what the 95 % rule selects
            saved = [row["forward_seconds"]["saving"] for row in learnt] if rule == "95%" else []
            kinds.append(Kind(name, learnt, depths(learnt, rule), mixture(rule), saved))
        kinds.append(Kind("LDN-full", learnt, [deepest] * len(learnt), full, []))
    if fixed:
        kinds.append(Kind("DDN", fixed, [deepest] * len(fixed), network("argmax"), []))
    return kinds


@dataclass(frozen=True)
class Table:
    """A table, the parts that it is made from, and a line on how to read it."""

    title: str
    parts: tuple[str, ...]
    make: Callable[[Part], str]
    note: str = ""
    needs: str = "seed"
    """What a row must have to be in it."""


IMAGES = ("fashion", "mnist", "image_depths")
TABLES = (
    Table(
        "Fig. 2 left: spirals, a data draw of its own for every seed",
        ("draws",),
        draws,
        "Depth by argmax. The paper: depth 9, and the pruned LDN above every DDN.",
    ),
    Table(
        "The released code's spirals: uniform noise 0.2",
        ("released",),
        lambda part: sweep(part, "D", "D"),
    ),
    Table(
        "Fig. 2 right: maximum depth",
        ("max_depths",),
        lambda part: sweep(part, "D", "D"),
        "The paper: depth and log-likelihood are stable up to D≈50.",
    ),
    Table(
        "Fig. 5: width, D=20",
        ("widths",),
        lambda part: sweep(part, "width", "width"),
        "The paper: depth falls with width; log-likelihood is flat from 20 to 500.",
    ),
    Table(
        "Fig. 6 left: rotation, D=20, 200 points",
        ("rotations",),
        lambda part: sweep(part, "rotation", "rotation °"),
        "The paper: depth rises with rotation; the fit suffers beyond 720°.",
    ),
    Table(
        "Fig. 6 right: training points, D=20",
        ("points",),
        lambda part: sweep(part, "points", "points"),
        "The paper: about 500 points are enough, and depth then stays around 11.",
    ),
    Table(
        "Ours: where the pruned and the full mixture differ; spirals, D=50",
        ("pruning",),
        pruning,
        "The last column: test examples (of 1800) that make up 90 % of the absolute difference.",
    ),
    Table("Ours: update of belief, and prior; spirals, D=20", ("updates",), updates),
    Table(
        "Ours: statistics of the output block's batch norm; digits, D=20",
        ("head",),
        head,
        "Gap: validation log-likelihood with running statistics less that with the batch's own.",
    ),
    Table(
        "Figs. 4, 9, 10, 11: images",
        IMAGES,
        images,
        "Time saved: forward pass of the selected network against the deepest. ECE over all classes is the released "
        "code's.",
    ),
    Table(
        "Ours: belief against the exact posterior over depth (Eq. 5)",
        ("released", "draws", "max_depths", "widths", "rotations", "points", "pruning", "updates", "head", *IMAGES),
        lag,
        needs="kl_to_posterior",
    ),
)


def markdown(folder: Path) -> str:
    """All tables that there are rows for, and a line for each that there are none for."""
    texts = []
    for table in TABLES:
        found = [read(folder, name) for name in table.parts]
        part = joined(each for each in found if each and any(table.needs in row for row in each.rows))
        texts.append(f"### {table.title}")
        if part is None:
            texts.append(f"(not run: {', '.join(table.parts)})")
            continue
        texts.extend([table.note] if table.note else [])
        texts.append(table.make(part))
        texts.append("; ".join(f"`{command}` on {machine}" for command, machine in part.sources))
    return "\n\n".join(texts) + "\n"
