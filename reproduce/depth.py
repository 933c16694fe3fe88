"""Variational depth search, as its paper ran it: every figure of seed 000 beside what comes out here.

    python -m reproduce.depth --quick                       # minutes: smaller grids, fewer seeds and epochs
    python -m reproduce.depth --full --images FOLDER        # the paper's grids; the image parts want a GPU
    python -m reproduce.depth --full --only spirals,draws   # parts by name; see PARTS

    python -m reproduce.depth --table                       # what was found, as Markdown
    python -m reproduce.depth --figures                     # the paper's figures as SVG; 3, 7 and 8 train for minutes

Every part writes docs/results/depth/PART.json (rows, the command, seeds, machine); tables and figures come from these.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import polyarch as pa
from polyarch.catalogue import find
from polyarch.core import Method, Problem
from polyarch.data.task import Task
from polyarch.methods.variational_depth import posterior, total_log_likelihood
from polyarch.runs.results import judge
from polyarch.runs.run import Run
from polyarch.training.dry_run import standardised

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "depth"
RULES = ("argmax", "95%", "expectation")
Rows = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Effort:
    """How much of the paper's grid is run."""

    seeds: int
    spiral_epochs: int
    image_epochs: int
    device: str
    images: str
    work: Path
    quick: bool
    grid: tuple[int, ...] = ()

    def thin(self, values: Iterable[int]) -> list[int]:
        """A grid; for --quick its ends and middle; with --grid, those values instead."""
        grid = list(self.grid or values)
        return [grid[0], grid[len(grid) // 2], grid[-1]] if self.quick and not self.grid else grid


def method(name: str, **settings: Any) -> Method:
    """A method of the catalogue, its preset changed by `settings`."""
    cls, preset = find("method", name)
    made: Method = cls(**{**preset, **settings})
    return made


def train(space: pa.spaces.ResidualDepth, task: Task, how: Method, effort: Effort, **options: Any) -> list[Run]:
    """One search in a folder of its own; one run a seed."""
    out = Path(tempfile.mkdtemp(dir=effort.work)) / "run"
    found = pa.search(space, task, how, out=out, compute=pa.Compute(effort.device), **options)
    return found if isinstance(found, list) else [found]


def row(run: Run, task: Task, seconds: float, **labels: Any) -> dict[str, Any]:
    """What a table needs of a run: every selection rule's depth and quality, the whole mixture's, and times."""
    assert task.test is not None
    found: dict[str, Any] = {
        **labels,
        "seed": run.seed,
        "epochs": run.history()[-1]["epoch"],
        "seconds": round(seconds, 1),
    }
    for rule in RULES if "probs" in run.history()[-1] else ():
        architecture = run.selected(rule)
        judged = judge(run, architecture, task.test)
        found[rule] = {
            "depth": architecture.choices[0],
            "network": judged["selected"],
            "mixture": judged["ensemble"],
        }
        found["full"] = judged["unpruned"]
    found |= belief_lag(run, task)
    found["probs"] = [round(p, 5) for p in run.distribution.probs()["depth"].tolist()]
    found["forward_seconds"] = run.result["forward_seconds"]
    return found


def belief_lag(run: Run, task: Task) -> dict[str, float]:
    """How far belief is from the exact posterior (Eq. 5) under the run's own weights: KL(q || posterior); its mode."""
    space = run.space
    examples = {"train": standardised(task)}
    problem = Problem(space, run.supernet(), task.likelihood, run.config.make_prior(space), examples)
    exact = posterior(total_log_likelihood(problem, "train")[0], run.config.make_prior(space))
    return {"kl_to_posterior": run.distribution.kl(exact).item(), "posterior_mode": exact.mode().item()}


def timed(space: pa.spaces.ResidualDepth, task: Task, how: Method, effort: Effort, **more: Any) -> list[dict[str, Any]]:
    """Rows of one search; `labels` go into each, other options to `search`."""
    labels = more.pop("labels")
    start = time.monotonic()
    runs = train(space, task, how, effort, **more)
    seconds = (time.monotonic() - start) / len(runs)
    print(
        f"  {labels}: {seconds * len(runs):.0f} s, depth {[r.architecture.choices[0] for r in runs]}",
        flush=True,
    )
    return [row(run, task, seconds, **labels) for run in runs]


def spirals_pair(name: str, effort: Effort, **settings: Any) -> Method:
    """The paper's training on spirals, of LDN or DDN."""
    return method(f"{name}-spirals", epochs=effort.spiral_epochs, **settings)


# ---------------------------------------------------------------------------------------------------------------------
# Spirals. A part returns rows.


def released(effort: Effort) -> Rows:
    """The released code's setting: uniform noise 0.2, D=20, w=20; a data draw of its own for every seed."""
    for seed in range(effort.seeds):
        task = pa.data.load("spirals", noise=0.2, noise_kind="uniform", data_seed=seed)
        space = pa.spaces.ResidualDepth(max_depth=20)
        yield from timed(
            space,
            task,
            spirals_pair("variational-depth", effort),
            effort,
            seed=seed,
            labels={"who": "LDN", "D": 20},
        )


def draws(effort: Effort) -> Rows:
    """Fig. 2 left: Gaussian noise 0.15, D=50, LDN and fixed depths; a data draw of its own for every seed."""
    for seed in range(effort.seeds):
        task = pa.data.load("spirals", data_seed=seed)
        space = pa.spaces.ResidualDepth(max_depth=50)
        yield from timed(
            space,
            task,
            spirals_pair("variational-depth", effort),
            effort,
            seed=seed,
            labels={"who": "LDN", "D": 50},
        )
        for depth in effort.thin((1, 2, 5, 10, 15, 20, 30, 50)):
            how = spirals_pair("fixed-depth", effort, depth=depth)
            yield from timed(space, task, how, effort, seed=seed, labels={"who": "DDN", "D": depth})


def max_depths(effort: Effort) -> Rows:
    """Fig. 2 right: D swept; six seeds as one batch on one data draw."""
    task = pa.data.load("spirals")
    for depth in effort.thin((5, 10, 15, 20, 25, 30, 35, 40, 50, 60, 70, 80, 90, 100)):
        how = spirals_pair("variational-depth", effort)
        space = pa.spaces.ResidualDepth(max_depth=depth)
        yield from timed(space, task, how, effort, repeats=effort.seeds, labels={"who": "LDN", "D": depth})


def widths(effort: Effort) -> Rows:
    """Fig. 5: width swept at D=20."""
    task = pa.data.load("spirals")
    for width in effort.thin((5, 10, 20, 40, 50, 60, 70, 80, 100, 150, 200, 500, 1000)):
        space = pa.spaces.ResidualDepth(max_depth=20, width=width)
        how = spirals_pair("variational-depth", effort)
        yield from timed(space, task, how, effort, repeats=effort.seeds, labels={"who": "LDN", "width": width})


def rotations(effort: Effort) -> Rows:
    """Fig. 6 left, Fig. 7: rotation swept at D=20, 200 points."""
    for half_turns in effort.thin(range(1, 9)):
        task = pa.data.load("spirals", rotation=180.0 * half_turns)
        how = spirals_pair("variational-depth", effort)
        labels = {"who": "LDN", "rotation": 180 * half_turns}
        yield from timed(pa.spaces.ResidualDepth(max_depth=20), task, how, effort, repeats=effort.seeds, labels=labels)


def points(effort: Effort) -> Rows:
    """Fig. 6 right, Fig. 8: number of training points swept at D=20."""
    for count in effort.thin(range(50, 801, 50)):
        task = pa.data.load("spirals", points=count)
        how = spirals_pair("variational-depth", effort)
        labels = {"who": "LDN", "points": count}
        yield from timed(pa.spaces.ResidualDepth(max_depth=20), task, how, effort, repeats=effort.seeds, labels=labels)


def updates(effort: Effort) -> Rows:
    """Ours: SGD on belief (the paper) against the exact E-step (Eq. 5), and the uniform prior; D=20."""
    task = pa.data.load("spirals")
    for update in ("sgd", "em"):
        for prior in ("exponential", "uniform"):
            how = spirals_pair("variational-depth", effort, update=update)
            space = pa.spaces.ResidualDepth(max_depth=20)
            labels = {"who": "LDN", "update": update, "prior": prior}
            yield from timed(space, task, how, effort, repeats=effort.seeds, start=pa.Start(prior=prior), labels=labels)


def pruning(effort: Effort) -> Rows:
    """Ours: where the pruned and the full mixture differ, example by example; D=50, six seeds on one data draw."""
    task = pa.data.load("spirals")
    assert task.test is not None
    space = pa.spaces.ResidualDepth(max_depth=50)
    for run in train(space, task, spirals_pair("variational-depth", effort), effort, repeats=effort.seeds):
        pruned = run.ensemble().log_likelihood(task.test.x, task.test.y)
        full = run.ensemble(space.architecture([50])).log_likelihood(task.test.x, task.test.y)
        differences = (pruned - full).double()
        most = differences.abs().sort(descending=True).values.cumsum(0)
        carrying = int((most < 0.9 * most[-1]).sum()) + 1
        print(f"  seed {run.seed}: {differences.mean():.4f} nats, 90 % of it in {carrying} examples", flush=True)
        yield row(run, task, 0.0, difference=differences.mean().item(), examples_with_90_percent=carrying)


# ---------------------------------------------------------------------------------------------------------------------
# Images.


def image_rows(name: str, effort: Effort, depths: Iterable[int]) -> Rows:
    """LDN of maximum depth D and DDN of depth D, for every D; best state by validation data, rate drop at 30."""
    settings = {"folder": effort.images} if effort.images else {}
    try:
        task = pa.data.load(name, **settings, **({"limit": 4000} if effort.quick else {}))
    except pa.PolyarchError as error:
        print(f"  left out: {error}", flush=True)
        return
    for depth in depths:
        space = pa.spaces.ResidualDepth(max_depth=depth)
        for who, kind in (("LDN", "variational-depth-images"), ("DDN", "fixed-depth-images")):
            how = method(kind, epochs=effort.image_epochs)
            yield from timed(space, task, how, effort, select="95%", labels={"who": who, "data": name, "D": depth})


def fashion(effort: Effort) -> Rows:
    """Figs. 4, 9, 10, 11 on Fashion-MNIST, D=50."""
    yield from image_rows("fashion-mnist", effort, (10,) if effort.quick else (50,))


def mnist(effort: Effort) -> Rows:
    """Figs. 4, 9, 10, 11 on MNIST, D=50."""
    yield from image_rows("mnist", effort, (10,) if effort.quick else (50,))


def image_depths(effort: Effort) -> Rows:
    """Fig. 9: D swept on both image sets."""
    for name in ("mnist", "fashion-mnist"):
        yield from image_rows(name, effort, effort.thin((5, 10, 20, 30)))


def head(effort: Effort) -> Rows:
    """Ours: the output block's batch-norm statistics, per depth or shared as in the released code, on digits.

    Depth by depth, the validation log-likelihood with running statistics (as used) and the batch's own (as trained).
    """
    from polyarch.spaces.views import All

    task = pa.data.load("digits")
    assert task.select is not None
    for statistics_kept in ("per-depth", "shared"):
        space = pa.spaces.ResidualDepth(max_depth=20, head_statistics=statistics_kept)
        how = method("variational-depth", epochs=40, batch_size=128)
        for run in train(space, task, how, effort, repeats=min(effort.seeds, 3)):
            x, y = task.standardise(task.select.x)[None], task.select.y[None]
            fits = {}
            for mode in ("running", "batch"):
                supernet = run.supernet().train(mode == "batch")
                with torch.no_grad():
                    fit = task.likelihood.log_likelihood(supernet(x, All()), y[:, None]).mean(-1)[0]
                fits[mode] = [round(v, 4) for v in fit.tolist()]
            print(f"  {statistics_kept} seed {run.seed}: {run.architecture}", flush=True)
            yield row(run, task, 0.0, statistics=statistics_kept, fit=fits)


PARTS: dict[str, Callable[[Effort], Rows]] = {
    "released": released,
    "draws": draws,
    "fashion": fashion,
    "mnist": mnist,
    "max_depths": max_depths,
    "widths": widths,
    "rotations": rotations,
    "points": points,
    "pruning": pruning,
    "updates": updates,
    "head": head,
    "image_depths": image_depths,
}


def machine(device: str) -> str:
    """What the numbers were made on."""
    what = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    )
    return f"{what}, torch {torch.__version__}, Python {platform.python_version()}"


def command(words: list[str]) -> str:
    """How to run this again; where the results went is nobody's business."""
    return "python -m reproduce.depth " + re.sub(r"\s*--out[= ]\S+", "", " ".join(words)).strip()


def main() -> None:
    """Runs the parts asked for and writes their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--quick", action="store_true")
    size.add_argument("--full", action="store_true")
    size.add_argument("--table", action="store_true", help="print all tables as Markdown, and stop")
    size.add_argument("--figures", nargs="?", const="all", metavar="NAMES", help="draw figures, such as fig2,fig3; all")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--seeds", type=int, default=0, help="default: 6, or 2 for --quick")
    parser.add_argument("--epochs", type=int, default=0, help="at most; default: the paper's; images 50, figures 3000")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", default="", help="folder with mnist/ and fashion-mnist/")
    parser.add_argument(
        "--grid", default="", help="values of a sweep in place of the paper's; the file is PART-GRID.json"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the JSON and SVG files; default: docs/results/depth, or runs/depth for --quick",
    )
    arguments = parser.parse_args()
    arguments.out = arguments.out or (Path("runs/depth") if arguments.quick else RESULTS)
    if arguments.table or arguments.figures:
        from reproduce import depth_figures, depth_tables

        if arguments.table:
            print(depth_tables.markdown(arguments.out), end="")
            return
        names = depth_figures.NAMES if arguments.figures == "all" else arguments.figures.split(",")
        if unknown := set(names) - set(depth_figures.NAMES):
            parser.error(f"no figure {', '.join(sorted(unknown))}; there are {', '.join(depth_figures.NAMES)}")
        depth_figures.draw(arguments.out, names, arguments.epochs or 3000)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.only.split(","):
        file = arguments.out / (f"{name}-{arguments.grid.replace(',', '-')}.json" if arguments.grid else f"{name}.json")
        with tempfile.TemporaryDirectory() as work:
            effort = Effort(
                seeds=arguments.seeds or (2 if arguments.quick else 6),
                spiral_epochs=arguments.epochs or (400 if arguments.quick else 8000),
                image_epochs=arguments.epochs or (3 if arguments.quick else 50),
                device=arguments.device,
                images=arguments.images,
                work=Path(work),
                quick=arguments.quick,
                grid=tuple(int(value) for value in arguments.grid.split(",") if value),
            )
            print(f"{name}: {PARTS[name].__doc__.splitlines()[0]}", flush=True)  # type: ignore[union-attr]
            found: dict[str, Any] = {
                "part": name,
                "about": " ".join(PARTS[name].__doc__.split()),  # type: ignore[union-attr]
                "command": command(sys.argv[1:]),
                "machine": machine(arguments.device),
                "rows": [],
            }
            for each in PARTS[name](effort):  # written after every row, so that a long part cut short is not lost
                found["rows"].append(each)
                file.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
