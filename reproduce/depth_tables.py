"""The rows of `reproduce.depth` as Markdown tables: mean ± standard deviation over seeds, and how many seeds.

    python -m reproduce.depth --table

Rows of one part may lie in several files, PART.json and PART-GRID.json; they are read as one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from reproduce import showing
from reproduce.showing import Part, Row, Section, as_table, mean_sd, over

PAPER = {"fashion-mnist": (28, 0.41), "mnist": (18, 0.62)}
"""Depth by the 95 % rule and share of the forward time saved at D=50, as the paper has them (section 3.2, Fig. 11).

Its code times passes that evaluate the output block at every depth, pruned and whole: those of a mixture.
"""
DATA = {"fashion-mnist": "Fashion-MNIST", "mnist": "MNIST"}
IMAGE_RULES = {"LDN-95": "95%", "LDN-E": "expectation"}
Quality = Callable[[Row], dict[str, float]]
"""What one way to use a network is worth on test data."""


def read(folder: Path, *names: str) -> Part | None:
    """Every row of some parts; None where none was run. Where two files hold the same run, PART.json has the say."""
    rows: dict[str, Row] = {}
    for name in names:
        files = [name, *sorted(file.stem for file in folder.glob(f"{name}-*.json"))]
        if (found := showing.read(folder, *files)) is not None:
            for row in found.rows:
                rows.setdefault(f"{name} {row['seed']} {labels_of(row)}", {**row, "part": name})
    return Part(tuple(rows.values())) if rows else None


def labels_of(row: Row) -> Row:
    """What tells a row from others of its part, besides the seed."""
    names = ("who", "D", "data", "width", "rotation", "points", "update", "prior", "statistics", "depth")
    return {name: row[name] for name in names if name in row}


# ---------------------------------------------------------------------------------------------------------------------
# Numbers.


def mixture(rule: str = "argmax") -> Quality:
    """The mixture cut at the depth that a rule selects (Eq. 3)."""
    return lambda row: row[rule]["mixture"]


def network(rule: str = "argmax") -> Quality:
    """The network of the depth that a rule selects, alone."""
    return lambda row: row[rule]["network"]


def full(row: Row) -> dict[str, float]:
    """The mixture over all depths."""
    found: dict[str, float] = row["full"]
    return found


def depths(rows: Sequence[Row], rule: str = "argmax") -> list[int]:
    """The depth that a rule selects, run by run."""
    return [row[rule]["depth"] for row in rows]


def fits(rows: Sequence[Row], of: Quality) -> list[float]:
    """Mean test log-likelihood per example, run by run."""
    return [of(row)["log_likelihood"] for row in rows]


def errors(rows: Sequence[Row], of: Quality) -> list[float]:
    """Test error in per cent, run by run."""
    return [100 * (1 - of(row)["accuracy"]) for row in rows]


def _depths(values: Sequence[int]) -> str:
    """Mean ± standard deviation, and the range."""
    return str(values[0]) if len(values) == 1 else f"{mean_sd(values, 1)} ({min(values)} … {max(values)})"


def _quality(rows: Sequence[Row], of: Quality) -> list[str]:
    return [mean_sd(fits(rows, of), 3), mean_sd(errors(rows, of), 2)]


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def draws(part: Part) -> str:
    """Fig. 2 left."""
    lines = []
    for (deepest,), rows in part.groups("D", who="LDN").items():
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
    return as_table(["network", "depth", "test log-likelihood", "error %", "seeds"], lines)


_SWEEP = ("selected depth", "pruned log-likelihood", "pruned error %", "full log-likelihood", "full error %", "seeds")


def _sweep_line(rows: Sequence[Row]) -> list[str]:
    return [_depths(depths(rows)), *_quality(rows, mixture()), *_quality(rows, full), str(len(rows))]


def sweep(label: str, title: str) -> Callable[[Part], str]:
    """LDNs along one setting."""

    def make(part: Part) -> str:
        values = part.values_of(label, who="LDN")
        lines = [[str(value), *_sweep_line(part.having(who="LDN", **{label: value}))] for value in values]
        return as_table([title, *_SWEEP], lines, left=0)

    return make


def updates(part: Part) -> str:
    """How belief is updated, and the prior."""
    names = {"sgd": "SGD (the paper)", "em": "exact E-step (Eq. 5)"}
    groups = part.groups("update", "prior").items()
    lines = [[names[update], prior, *_sweep_line(rows)] for (update, prior), rows in groups]
    return as_table(["update", "prior", *_SWEEP], lines, left=2)


def head(part: Part) -> str:
    """The output block's batch-norm statistics: what running ones cost beside the batch's own, by depth."""
    lines = []
    for (kept,), rows in part.groups("statistics").items():
        gaps = [[a - b for a, b in zip(row["fit"]["running"], row["fit"]["batch"], strict=True)] for row in rows]
        shallow = mean_sd([statistics.fmean(gap[:4]) for gap in gaps], 4)
        deep = mean_sd([statistics.fmean(gap[4:] or gap[-1:]) for gap in gaps], 4)
        lines.append([kept, shallow, deep, _depths(depths(rows)), *_quality(rows, mixture()), str(len(rows))])
    title = ["statistics", "gap, depths 0 … 3", "gap, deeper", "selected depth", "log-likelihood", "error %", "seeds"]
    return as_table(title, lines)


def _percent(shares: Sequence[float]) -> str:
    return f"{mean_sd([100 * share for share in shares], 0)} %" if shares else ""


def images(part: Part) -> str:
    """Figs. 4, 9, 10 and 11 in numbers."""
    lines = []
    for data in [name for name in DATA if name in part.values_of("data")]:
        for deepest in part.values_of("D", data=data):
            kinds = image_kinds(part, data, deepest)
            if learnt := part.having(who="LDN", data=data, D=deepest):
                alone = (depths(learnt, "95%"), network("95%"), savings(learnt, "selected"))
                kinds.insert(0, Kind("LDN-95, network alone", learnt, *alone))
            for name, rows, depth, of, saved in kinds:
                ece = [mean_sd([100 * of(row)[kind] for row in rows], 2) for kind in ("ece", "ece_all_classes")]
                known = PAPER[data] if deepest == 50 and name == "LDN-95" else None
                paper = [str(known[0]), f"{100 * known[1]:.0f} %"] if known else ["", ""]
                numbers = [_depths(depth), *_quality(rows, of)[::-1], *ece, _percent(saved), *paper]
                lines.append([DATA[data], str(deepest), name, *numbers, str(len(rows))])
    title = [
        "data", "D", "network", "depth", "error %", "log-likelihood", "ECE %", "ECE %, all classes", "time saved",
        "paper's depth", "paper's time saved", "seeds",
    ]  # fmt: skip
    return as_table(title, lines, left=3)


def images_trained(part: Part) -> str:
    """How long image networks were trained, and how far belief came from where it began."""
    lines = []
    for (data, deepest, who), rows in part.groups("data", "D", "who").items():
        epochs = _depths([row["epochs"] for row in rows])
        largest = mean_sd([len(row["probs"]) * max(row["probs"]) for row in rows], 2) if who == "LDN" else ""
        lines.append([DATA[data], str(deepest), who, epochs, largest, str(len(rows))])
    return as_table(["data", "D", "network", "epochs", "largest q(d), uniform = 1", "seeds"], lines, left=3)


def times(part: Part) -> str:
    """Fig. 11 in numbers: every depth that D is cut at."""
    lines = []
    for (deepest, depth), rows in part.groups("D", "depth").items():
        seconds = [row["forward_seconds"] for row in rows]
        numbers = []
        for cut, whole in (("selected", "largest"), ("ensemble", "unpruned")):
            pair = " of ".join(f"{1000 * statistics.fmean(own[name] for own in seconds):.0f}" for name in (cut, whole))
            numbers += [pair, _percent(savings(rows, cut))]
        paper = [share for found, share in PAPER.values() if found == depth]
        lines.append([str(deepest), str(depth), *numbers, _percent([1 - depth / deepest]), _percent(paper)])
    title = [
        "D", "depth", "network alone, ms", "saved", "mixture, ms", "saved", "blocks left out", "the paper's time saved",
    ]  # fmt: skip
    return as_table(title, lines, left=0)


def savings(rows: Sequence[Row], name: str) -> list[float]:
    """Share of the forward time that pruning saves, of the network (`selected`) or of the mixture (`ensemble`)."""
    whole = {"selected": "largest", "ensemble": "unpruned"}[name]
    timed = [row["forward_seconds"] for row in rows if name in row["forward_seconds"]]
    return [1 - own[name] / own[whole] for own in timed]


def pruning(part: Part) -> str:
    """What pruning changes, seed by seed."""
    lines = []
    for name, rows in {**{str(row["seed"]): [row] for row in part.rows}, "all": list(part.rows)}.items():
        examples = _depths([row["examples_with_90_percent"] for row in rows])
        lines.append([name, *_sweep_line(rows)[:-1], over(rows, "difference", 4), examples])
    return as_table(["seed", *_SWEEP[:-1], "pruned less full", "examples with 90 % of it"], lines)


def lag(part: Part) -> str:
    """How far belief is from the exact posterior over depth that the run's own weights give (Eq. 5)."""
    groups: dict[str, list[Row]] = {}
    for row in part.rows:
        if row.get("who", "LDN") == "LDN" and "kl_to_posterior" in row:
            labels = [f"{name} {value}" for name, value in labels_of(row).items() if name != "who"]
            groups.setdefault(", ".join([row["part"], *labels]), []).append(row)
    lines = []
    for name, rows in groups.items():
        modes = _depths([row["posterior_mode"] for row in rows])
        lines.append([name, over(rows, "kl_to_posterior", 2), modes, _depths(depths(rows)), str(len(rows))])
    return as_table(["LDN", "KL(q‖posterior), nats", "posterior's mode", "argmax of q", "seeds"], lines)


class Kind(NamedTuple):
    """One way to use the networks of one D."""

    name: str
    rows: list[Row]
    depths: list[int]
    of: Quality
    saved: list[float]
    """Share of its own forward time; empty where that was not taken."""


def image_kinds(part: Part, data: str, deepest: int) -> list[Kind]:
    """LDN-95, LDN-E, LDN-full, all mixtures, and DDN at one D, as far as they exist."""
    learnt, fixed = (part.having(who=who, data=data, D=deepest) for who in ("LDN", "DDN"))
    kinds: list[Kind] = []
    if learnt:
        for name, rule in IMAGE_RULES.items():  # time was taken of what the 95 % rule selects
            saved = savings(learnt, "ensemble") if rule == "95%" else []
            kinds.append(Kind(name, learnt, depths(learnt, rule), mixture(rule), saved))
        kinds.append(Kind("LDN-full", learnt, [deepest] * len(learnt), full, []))
    if fixed:
        kinds.append(Kind("DDN", fixed, [deepest] * len(fixed), network(), []))
    return kinds


IMAGES = ("fashion", "mnist", "image_depths")
SECTIONS = (
    Section(
        "Fig. 2 left: spirals, a data draw of its own for every seed", ("draws",), draws,
        "Depth by argmax. The paper: depth 9, and the pruned LDN above every DDN.",
    ),
    Section("The released code's spirals: uniform noise 0.2", ("released",), sweep("D", "D")),
    Section(
        "Fig. 2 right: maximum depth", ("max_depths",), sweep("D", "D"),
        "The paper: depth and log-likelihood are stable up to D≈50.",
    ),
    Section(
        "Fig. 5: width, D=20", ("widths",), sweep("width", "width"),
        "The paper: depth falls with width; log-likelihood is flat from 20 to 500.",
    ),
    Section(
        "Fig. 6 left: rotation, D=20, 200 points", ("rotations",), sweep("rotation", "rotation °"),
        "The paper: depth rises with rotation; the fit suffers beyond 720°.",
    ),
    Section(
        "Fig. 6 right: training points, D=20", ("points",), sweep("points", "points"),
        "The paper: about 500 points are enough, and depth then stays around 11.",
    ),
    Section(
        "Ours: where the pruned and the full mixture differ; spirals, D=50", ("pruning",), pruning,
        "The last column: test examples (of 1800) that make up 90 % of the absolute difference.",
    ),
    Section("Ours: update of belief, and prior; spirals, D=20", ("updates",), updates),
    Section(
        "Ours: statistics of the output block's batch norm; digits, D=20", ("head",), head,
        "Gap: validation log-likelihood with running statistics less that with the batch's own.",
    ),
    Section(
        "Figs. 4, 9, 10, 11: images", IMAGES, images,
        "Each line is about one predictor, and its time is its own; LDN-95, LDN-E and LDN-full are mixtures. Where a "
        "mixture's time is missing, it was not taken: the next table has it. ECE over all classes is the released "
        "code's.",
    ),
    Section(
        "How far image searches went", IMAGES, images_trained,
        "Training ends after 30 epochs without a better state, so that what ended at epoch 45 is the state of epoch "
        "15. The rate falls after epoch 30. Belief begins uniform; the largest q(d) is given as a multiple of that.",
    ),
    Section(
        "Fig. 11: time saved", ("times",), times,
        "Median time of a forward pass: network alone of the deepest network alone, and pruned mixture of the whole "
        "one. Mixtures evaluate the output block at every depth, as the paper's code does for both of its times. "
        "Depths 15 and 19 were learnt here, 18 and 28 in the paper.",
    ),
    Section(
        "Ours: belief against the exact posterior over depth (Eq. 5)",
        ("released", "draws", "max_depths", "widths", "rotations", "points", "pruning", "updates", "head", *IMAGES),
        lag, needs="kl_to_posterior",
    ),
)  # fmt: skip
