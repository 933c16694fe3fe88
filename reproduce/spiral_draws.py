"""Spirals drawn anew: which depth belief takes home, and what a fixed depth that was trained alone is worth beside it.

    python -m reproduce.spiral_draws --quick                  # minutes: two draws, a few hundred epochs
    python -m reproduce.spiral_draws --full                   # an hour of one core, draw by draw
    python -m reproduce.spiral_draws --table                  # what was found, as Markdown

Two spirals with Gaussian noise of 0.15, 200 points to train on as in Antorán et al. (2020, Fig. 2), networks of width
20 and up to 50 blocks, their training recipe; every draw of the data has a seed of its own. A hundred more points are
never trained on: they choose among fixed depths, and are what natural steps go by where it says held-out. The state
with the best objective on training data is kept. Test data is 1,800 points, and chooses nothing.
"""

from __future__ import annotations

import statistics
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import ttest_1samp

import polyarch as pa
from polyarch.catalogue import find
from polyarch.core import Method
from polyarch.distributions import Categorical
from polyarch.settings import make
from reproduce.nested_belief import Rows, answers, described, worth
from reproduce.showing import NOTHING, Part, Row, Section, about, as_table, keep, over, page, sized_parser

FIRST_DRAW = 100
"""Draws 0 to 5 are those of the paper's figures here (docs/results/depth)."""
FIXED = (3, 5, 10, 20, 50)
BESIDE = 20
"""The fixed depth that everything is compared with, draw by draw."""
WAYS = {
    "sgd": {"update": "sgd"},
    "natural": {"update": "natural", "arch.evidence": "train"},
    "natural, held-out": {"update": "natural", "arch.evidence": "search"},
}
SPACE = pa.spaces.ResidualDepth(max_depth=50)
DEEPEST = "mixture of all depths"


def method(name: str, epochs: int, **settings: object) -> Method:
    """The paper's training, for at most so many epochs."""
    cls, preset = find("method", f"{name}-spirals")
    made: Method = make(cls, {**preset, "epochs": epochs, **settings})
    return made


def rows(given: Namespace) -> Rows:
    """Every way to learn belief and every fixed depth, draw by draw."""
    for draw in range(FIRST_DRAW, FIRST_DRAW + given.draws):
        task = pa.data.load("spirals", points=300, select=100, data_seed=draw)
        assert task.test is not None
        for way, settings in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                how = method("variational-depth", given.epochs, **settings)
                run = pa.search(SPACE, task, how, out=Path(folder) / "run", seed=draw)
                assert isinstance(run, pa.Run)
                assert run.evidence is not None
                probs, belief = answers(run, task), run.distribution
                assert isinstance(belief, Categorical)
                prior = run.config.make_prior(run.space)
                yield {
                    "way": way,
                    "seed": draw,
                    "kept": run.result["kept"]["epoch"],
                    "belief": described(belief, prior, run.evidence, probs, task.test.y),
                    "train": (run.evidence.train / len(task.train)).tolist(),
                    "test": [worth(own, task.test.y)["log_likelihood"] for own in probs],
                }
        for depth in FIXED:
            with tempfile.TemporaryDirectory() as folder:
                how = method("fixed-depth", given.epochs, depth=depth)
                run = pa.search(SPACE, task, how, out=Path(folder) / "run", seed=draw)
                assert isinstance(run, pa.Run)
                metrics = run.result["metrics"]
                said = worth(run.model()(task.test.x).double().softmax(-1), task.test.y)
                # By logits, which know of probabilities that are too small to be told from 0.
                said["log_likelihood"] = metrics["test"]["log_likelihood"]
                known = {"select": metrics["select"]["log_likelihood"]}
                yield {"way": "fixed", "seed": draw, "depth": depth, "kept": run.result["kept"]["epoch"]} | known | said


# ---------------------------------------------------------------------------------------------------------------------


def predictors(part: Part) -> dict[str, list[Row]]:
    """What one may predict with, each draw by draw: depth, log-likelihood, probability of the truth and error."""
    found: dict[str, list[Row]] = {}
    for (way,), of_way in part.groups("way").items():
        if way == "fixed":
            continue
        for rule in ("argmax", "95%", "sufficient"):
            kinds = {"network": f"{way}: network by {rule}", "mixture": f"{way}: mixture pruned by {rule}"}
            for kind, name in kinds.items():
                found[name] = [row["belief"][rule][kind] | {"depth": row["belief"][rule]["depth"]} for row in of_way]
        found[f"{way}: {DEEPEST}"] = [row["belief"]["full"] for row in of_way]
    fixed = Part(tuple(part.having(way="fixed")))
    found |= {f"fixed depth {depth}": own for (depth,), own in fixed.groups("depth").items()}
    of_draws = fixed.groups("seed").values()
    found["fixed depth, the best of these on held-out data"] = [max(own, key=lambda r: r["select"]) for own in of_draws]
    return found


def table(part: Part) -> str:
    """All predictors; beside each how much better than one fixed depth it is, draw by draw."""
    found = predictors(part)
    beside = [row["log_likelihood"] for row in found[f"fixed depth {BESIDE}"]]
    lines = []
    for name, own in found.items():
        better = [row["log_likelihood"] - other for row, other in zip(own, beside, strict=True)]
        lines.append(
            [
                name,
                over(own, "depth", 1),
                over(own, "log_likelihood", 3),
                f"{statistics.median(row['log_likelihood'] for row in own):.3f}".replace("-", "−"),
                over(own, "p_true", 4),
                over(own, "error", 2, 100),
                interval(better),
            ]
        )
    head = ["", "depth", "test log-likelihood", "its median", "probability of the truth", "error %"]
    return as_table([*head, f"over fixed depth {BESIDE}, 95 % interval"], lines)


def interval(differences: Sequence[float]) -> str:
    """The mean of paired differences, with Student's interval."""
    if len(differences) < 3 or not any(differences):
        return NOTHING
    low, high = ttest_1samp(differences, 0).confidence_interval()
    return f"{statistics.fmean(differences):+.3f} ({low:+.3f} to {high:+.3f})".replace("-", "−")


def by_depth(part: Part) -> str:
    """The same depth under shared weights and trained alone."""
    head, lines = ["", *(f"depth {depth}" for depth in FIXED)], []
    for (way,), own in part.groups("way").items():
        if way == "fixed":
            fixed = Part(tuple(own)).groups("depth")
            values = [over(fixed[depth,], "log_likelihood", 3) for depth in FIXED]
        else:
            values = [over(own, lambda row, depth=depth: row["test"][depth], 3) for depth in FIXED]
        lines.append(["trained alone" if way == "fixed" else f"in the network of {way}", *values])
    return as_table(head, lines)


SECTIONS = (
    Section("What one may take home", ("draws",), table),
    Section("The same depth, under shared weights and alone: test log-likelihood", ("draws",), by_depth),
)


def main() -> None:
    """Trains and writes rows; or prints what there is."""
    parser = sized_parser(__doc__, "spiral-draws", "table", draws=(2, 20), epochs=(300, 2000))
    given = parser.parse_args()
    if given.table:
        print(page(given.out, SECTIONS), end="")
        return
    say = "{way} {seed}".format_map
    keep(given.out / "draws.json", rows(given), say=say, about=about(rows))


if __name__ == "__main__":
    main()
