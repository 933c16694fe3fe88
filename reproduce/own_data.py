"""Is a search at its defaults as good as what scikit-learn gives? Data of one's own, as files, by one command each.

    python -m reproduce.own_data --seeds 3 --out docs/results/own-data     # goes on where it was; 20 minutes, two cores
    python -m reproduce.own_data --quick                                   # one set, one seed, into runs/own-data
    python -m reproduce.own_data --page                                    # writes what was found into docs/own-data.md

Every search is `polyarch search --data FILE --seed S --set split_seed=S`; for sequences of tokens also `--space`, since
there is no network for these unless somebody writes it. Beside it logistic or ridge regression, boosted trees and a
network of scikit-learn learn from the same training examples: of tables the numbers and words that our networks see,
trees the table as it is, gaps and words included; of images pixels, averaged to 16 a side; of tokens how often each
comes. The best of them by validation data is what a search is compared with, by the losses of single test examples:
log-loss, or the squared error of a number in its own unit. Those of a search are of its mixture, as `polyarch predict`
has it.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

import polyarch as pa
from polyarch.data.task import Split, Task
from polyarch.runs.plain_fitting import features
from reproduce.own_data_sets import AFTER, MAIN, OTHERS, SETS, OwnData
from reproduce.showing import RESULTS, Row, as_table, chosen, machine, parser_of

Array = NDArray[Any]
PAGE = RESULTS.parent / "own-data.md"
OUT = RESULTS / "own-data"
SIDE = 16
MODELS = {"linear": "logistic / ridge", "trees": "boosted trees", "network": "network"}
BEGIN, END = "<!-- rows of docs/results/own-data -->\n", "<!-- end of rows -->"


def main() -> None:
    """Runs what is not there yet, or writes the page."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0; default: 3")
    parser.add_argument("--only", default="all", help="names of sets, separated by commas")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the rows")
    parser.add_argument("--quick", action="store_true", help="one set and one seed, into runs/own-data")
    parser.add_argument("--page", action="store_true", help="write what there is into the page, and stop")
    given = parser.parse_args()
    if given.page:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), read(given.out)), encoding="utf-8")
        return
    if given.quick:
        given = Namespace(seeds=1, only="wine", out=given.out if given.out != OUT else Path("runs") / "own-data")
    for seed in range(given.seeds):
        for name in chosen(parser, "set", given.only, list(SETS)):
            measure(name, seed, given.out)


def measure(name: str, seed: int, folder: Path) -> None:
    """Adds the row of a set and a seed to the set's file, unless it is there."""
    file = folder / f"{name}.json"
    held: Row = (
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"about": SETS[name].about, "rows": []}
    )
    if any(row["seed"] == seed for row in held["rows"]):
        return
    with tempfile.TemporaryDirectory() as place:
        found = {"seed": seed, "machine": machine(), **compared(SETS[name], seed, Path(place))}
    held["rows"] = sorted([*held["rows"], found], key=lambda row: row["seed"])
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    theirs = found["models"][found["best"]]["test"]
    print(
        f"{name}, seed {seed}: {found['loss']:.4g} against {found['best']} {theirs:.4g}, "
        f"{found['difference']:+.4g} ± {found['error']:.4g}, {found['seconds']:.0f} s",
        flush=True,
    )


def compared(data: OwnData, seed: int, place: Path) -> Row:
    """One search, and what scikit-learn makes of the same splits."""
    source, out = data.write(place), place / "run"
    words = ["search", "--data", str(source), "--out", str(out), "--seed", str(seed), "--set", f"split_seed={seed}"]
    words += ["--device", "cpu", *(["--space", data.space] if data.space else [])]
    begun = time.monotonic()
    said = subprocess.run([sys.executable, "-m", "polyarch", *words], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begun
    if said.returncode:
        raise SystemExit(f"{' '.join(words)}: {said.stderr}")
    run = pa.open_run(out)
    task = run.task()
    assert task.test is not None
    assert task.select is not None
    ours = losses(task.test, run.predict(task.test.x))
    models, theirs = scikit_learn(task, seed)
    best = min(models, key=lambda name: models[name]["select"])
    apart = ours - theirs[best]
    return {
        "loss": float(ours.mean()),
        "metric": "squared error" if run.config.data["likelihood"]["kind"] == "gaussian" else "log-loss",
        "best": best,
        "difference": float(apart.mean()),
        "error": float(apart.std(ddof=1) / math.sqrt(len(apart))),
        "examples": len(apart),
        "models": models,
        "seconds": round(seconds, 1),
        "searched": round(run.history()[-1]["seconds"], 1),
        "chosen": next((line for line in said.stderr.splitlines() if "chosen for" in line), "").partition(": ")[2],
        "architecture": str(run.architecture),
    }


def losses(split: Split, said: Any) -> Array:
    """The loss of every example: log-loss, or the squared error in the unit of the data."""
    if isinstance(said, pa.uncertainty.Predictive):
        found: Array = -said.log_probs.double().gather(-1, split.y[:, None])[:, 0].numpy()
        return found
    return (said.mean.double() - split.y.double()).square().numpy()  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------------------------
# What scikit-learn gives.


def scikit_learn(task: Task, seed: int) -> tuple[dict[str, Row], dict[str, Array]]:
    """Of each model the mean losses and its seconds, and the losses of test examples."""
    classifies = isinstance(task.likelihood, pa.data.Classification)
    told: dict[str, Row] = {}
    single: dict[str, Array] = {}
    for name, (model, inputs) in models_of(task, seed, classifies).items():
        begun = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has not converged
            model.fit(inputs(task.train.x), task.train.y.numpy())
        found = {}
        for part, split in (("select", task.select), ("test", task.test)):
            assert split is not None
            found[part] = _losses_of(model, inputs(split.x), split.y.numpy(), classifies)
        told[name] = {part: float(values.mean()) for part, values in found.items()}
        told[name]["seconds"] = round(time.monotonic() - begun, 1)
        single[name] = found["test"]
    return told, single


def models_of(task: Task, seed: int, classifies: bool) -> dict[str, tuple[Any, Callable[[Tensor], Array]]]:
    """Models with what they read of raw inputs."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    words = [column.holds == "category" for column in task.columns.columns] if task.columns else []
    fitting: dict[str, Any] = {"hidden_layer_sizes": (64, 64), "max_iter": 300, "random_state": seed}
    fitting["early_stopping"] = len(task.train) >= 1000
    kinds: dict[str, Any] = {"random_state": seed, "categorical_features": words if any(words) else None}

    def seen(x: Tensor) -> Array:
        if len(task.input_shape) == 3:
            side = min(SIDE, *task.input_shape[1:])
            return adaptive_avg_pool2d(task.preprocess(x), side).flatten(1).numpy()  # type: ignore[no-any-return]
        rows = features(task, x)
        return rows.toarray() if task.tokens else rows  # type: ignore[no-any-return]

    def as_it_is(x: Tensor) -> Array:
        if not task.columns:
            return seen(x)
        rows = x.numpy().copy()
        rows[:, words] = np.where(rows[:, words] < 0, np.nan, rows[:, words])  # rare words, as one that is not known
        return rows  # type: ignore[no-any-return]

    if classifies:
        return {
            "linear": (make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), seen),
            "trees": (HistGradientBoostingClassifier(**kinds), as_it_is),
            "network": (make_pipeline(StandardScaler(), MLPClassifier(**fitting)), seen),
        }
    network = make_pipeline(StandardScaler(), MLPRegressor(**fitting))
    return {
        "linear": (make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-3, 3, 13))), seen),
        "trees": (HistGradientBoostingRegressor(**kinds), as_it_is),
        "network": (TransformedTargetRegressor(network, transformer=StandardScaler()), seen),
    }


def _losses_of(model: Any, x: Array, y: Array, classifies: bool) -> Array:
    if not classifies:
        return np.square(model.predict(x) - y)  # type: ignore[no-any-return]
    probs = np.maximum(model.predict_proba(x), 1e-12)
    return -np.log(probs[np.arange(len(y)), np.searchsorted(model.classes_, y)])  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------------------------
# The page.


def read(folder: Path) -> dict[str, list[Row]]:
    """The rows of every set that there are, in the order of the sets."""
    files = {name: folder / f"{name}.json" for name in SETS}
    return {name: json.loads(f.read_text(encoding="utf-8"))["rows"] for name, f in files.items() if f.exists()}


def together(rows: Sequence[Row]) -> tuple[float, float]:
    """Mean and standard error of the paired differences of all test examples of all seeds."""
    counts = np.array([row["examples"] for row in rows])
    means = np.array([row["difference"] for row in rows])
    squares = np.array([row["error"] for row in rows]) ** 2 * counts * (counts - 1)  # about each seed's own mean
    total = counts.sum()
    mean = float((counts * means).sum() / total)
    spread = (squares + counts * (means - mean) ** 2).sum() / (total - 1)
    return mean, float(np.sqrt(spread / total))


def holds(rows: Sequence[Row]) -> bool:
    """Whether a search is at least as good, within one standard error."""
    mean, error = together(rows)
    return mean <= error


def table(found: Mapping[str, Sequence[Row]]) -> str:
    """A row for every set: means over seeds."""

    def mean(rows: Sequence[Row], of: Callable[[Row], float]) -> str:
        return f"{np.mean([of(row) for row in rows]):.4g}"

    lines = []
    for name, rows in found.items():
        difference, error = together(rows)
        losses = [mean(rows, lambda row: row["loss"])]
        losses += [mean(rows, lambda row, own=own: row["models"][own]["test"]) for own in MODELS]  # type: ignore[misc]
        best = ", ".join(dict.fromkeys(MODELS[row["best"]] for row in rows))
        slowest = max(row["seconds"] for row in rows)
        verdict = f"{difference:+.3g} ± {error:.2g}".replace("-", "−")
        lines.append([name, *losses, best, verdict, "yes" if holds(rows) else "no", f"{slowest:.0f}"])
    heads = ["data", "search", *MODELS.values(), "best by validation", "search less best", "as good", "seconds"]
    return as_table(heads, lines)


def summary(found: Mapping[str, Sequence[Row]]) -> str:
    """What the table says, in words."""
    seeds = sorted({row["seed"] for rows in found.values() for row in rows})
    kinds = ((MAIN, "sets"), (OTHERS, "of other kinds"), (AFTER, "that were made when the rule was done"))
    told = []
    for sets, what in kinds:
        held = [holds(found[name]) for name in sets if name in found]
        if held:
            told.append(f"{sum(held)} of {len(held)} {what}")
    machines = sorted({row["machine"] for rows in found.values() for row in rows})
    runs = "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return f"At least as good within one standard error on {', '.join(told)}; {runs}; {'; '.join(machines)}."


def shown(found: Mapping[str, Sequence[Row]]) -> str:
    """What stands in the page."""
    abouts = [f"| {name} | {SETS[name].about} |" for name in found]
    described = "\n".join(["| data | what it is |", "|---|---|", *abouts])
    return f"{summary(found)}\n\n{table(found)}\n\n{described}\n"


def with_table(page: str, found: Mapping[str, Sequence[Row]]) -> str:
    """The page with what was found in its place."""
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{shown(found)}\n{END}", page, flags=re.DOTALL)


if __name__ == "__main__":
    main()
