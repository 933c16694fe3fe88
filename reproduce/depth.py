"""Variational depth search as its paper ran it: every figure of Antorán et al. (2020) beside what comes out here.

    python -m reproduce.depth --quick                       # minutes: smaller grids, fewer seeds and epochs
    python -m reproduce.depth --full --images FOLDER        # the paper's grids; the image parts want a GPU
    python -m reproduce.depth --full --only released,draws  # parts by name

    python -m reproduce.depth --table                       # what was found, as Markdown
    python -m reproduce.depth --figures                     # the paper's figures as SVG; 3, 7 and 8 train for minutes

Every part writes docs/results/depth/PART.json (rows, the command, seeds, machine); tables and figures come from these.
"""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

import polyarch as pa
from polyarch.catalogue import find
from polyarch.core import Method, Problem
from polyarch.data.task import Task
from polyarch.methods.variational_depth import posterior, total_log_likelihood
from polyarch.runs.results import Networks, forward_times
from polyarch.runs.run import Run
from polyarch.settings import make
from polyarch.spaces.views import All
from reproduce import depth_tables
from reproduce.showing import Row, about, chosen, keep, page, sized_parser

RULES = ("argmax", "95%", "expectation")
Rows = Iterator[Row]


def most(given: Namespace, quick: int, full: int) -> int:
    """Epochs to train for, at most."""
    return given.epochs or (quick if given.quick else full)


def thin(given: Namespace, values: Iterable[int]) -> list[int]:
    """A grid; for --quick its ends and middle; with --grid, those values instead."""
    grid = list(given.grid or values)
    return [grid[0], grid[len(grid) // 2], grid[-1]] if given.quick and not given.grid else grid


def method(name: str, **settings: Any) -> Method:
    """A method of the catalogue, its preset changed by `settings`."""
    cls, preset = find("method", name)
    made: Method = make(cls, {**preset, **settings})
    return made


def train(space: pa.spaces.ResidualDepth, task: Task, how: Method, given: Namespace, **options: Any) -> list[Run]:
    """One search in a folder of its own; one run per seed."""
    out = Path(tempfile.mkdtemp(dir=given.work)) / "run"
    found = pa.search(space, task, how, out=out, compute=pa.Compute(given.device), **options)
    return found if isinstance(found, list) else [found]


def row(run: Run, task: Task, seconds: float, **labels: Any) -> Row:
    """What a table needs of a run: every selection rule's depth and quality, the whole mixture's, and times."""
    assert task.test is not None
    last = run.history()[-1]
    found: Row = {**labels, "seed": run.seed, "epochs": last["epoch"], "seconds": round(seconds, 1)}
    for rule in RULES if "probs" in last else ():
        architecture = run.selected(rule)
        judged = Networks.of(run, architecture).evaluate(task.test)
        depth = architecture.choices[0]
        found[rule] = {"depth": depth, "network": judged["selected"], "mixture": judged["ensemble"]}
        found["full"] = judged["unpruned"]
    found |= belief_lag(run, task)
    found["probs"] = [round(p, 5) for p in run.distribution.probs()["depth"].tolist()]
    found["forward_seconds"] = run.result["forward_seconds"]
    return found


def belief_lag(run: Run, task: Task) -> dict[str, float]:
    """How far belief is from the exact posterior (Eq. 5) under the run's own weights: KL(q || posterior); its mode."""
    space = run.space
    examples = {"train": task.seen(task.train)}
    problem = Problem(space, run.supernet(), task.likelihood, run.config.make_prior(space), examples)
    exact = posterior(total_log_likelihood(problem, "train")[0], run.config.make_prior(space))
    return {"kl_to_posterior": run.distribution.kl(exact).item(), "posterior_mode": exact.mode().item()}


def timed(space: pa.spaces.ResidualDepth, task: Task, how: Method, given: Namespace, labels: Row, **more: Any) -> Rows:
    """Rows of one search; `labels` go into each, other options to `search`."""
    start = time.monotonic()
    runs = train(space, task, how, given, **more)
    seconds = time.monotonic() - start
    print(f"  {labels}: {seconds:.0f} s, depth {[r.architecture.choices[0] for r in runs]}", flush=True)
    for run in runs:
        yield row(run, task, seconds / len(runs), **labels)


# ---------------------------------------------------------------------------------------------------------------------
# Spirals. A part returns rows.


def spirals(given: Namespace, labels: Row, max_depth: int = 20, width: int = 20, **more: Any) -> Rows:
    """LDNs as the paper trains them, all seeds as one batch on one data draw; other options are of the data."""
    space = pa.spaces.ResidualDepth(max_depth=max_depth, width=width)
    how = spirals_pair("variational-depth", given)
    task = pa.data.load("spirals", **more)
    yield from timed(space, task, how, given, {"who": "LDN", **labels}, repeats=given.seeds)


def spirals_pair(name: str, given: Namespace, **settings: Any) -> Method:
    """The paper's training on spirals, of LDN or DDN."""
    return method(f"{name}-spirals", epochs=most(given, 400, 8000), **settings)


def released(given: Namespace) -> Rows:
    """The released code's setting: uniform noise 0.2, D=20, w=20; a data draw of its own for every seed."""
    for seed in range(given.seeds):
        task = pa.data.load("spirals", noise=0.2, noise_kind="uniform", data_seed=seed)
        space, how = pa.spaces.ResidualDepth(max_depth=20), spirals_pair("variational-depth", given)
        yield from timed(space, task, how, given, {"who": "LDN", "D": 20}, seed=seed)


def draws(given: Namespace) -> Rows:
    """Fig. 2 left: Gaussian noise 0.15, D=50, LDN and fixed depths; a data draw of its own for every seed."""
    space = pa.spaces.ResidualDepth(max_depth=50)
    for seed in range(given.seeds):
        task = pa.data.load("spirals", data_seed=seed)
        how = spirals_pair("variational-depth", given)
        yield from timed(space, task, how, given, {"who": "LDN", "D": 50}, seed=seed)
        for depth in thin(given, (1, 2, 5, 10, 15, 20, 30, 50)):
            how = spirals_pair("fixed-depth", given, depth=depth)
            yield from timed(space, task, how, given, {"who": "DDN", "D": depth}, seed=seed)


def max_depths(given: Namespace) -> Rows:
    """Fig. 2 right: D swept; six seeds as one batch on one data draw."""
    for depth in thin(given, (5, 10, 15, 20, 25, 30, 35, 40, 50, 60, 70, 80, 90, 100)):
        yield from spirals(given, {"D": depth}, max_depth=depth)


def widths(given: Namespace) -> Rows:
    """Fig. 5: width swept at D=20."""
    for width in thin(given, (5, 10, 20, 40, 50, 60, 70, 80, 100, 150, 200, 500, 1000)):
        yield from spirals(given, {"width": width}, width=width)


def rotations(given: Namespace) -> Rows:
    """Fig. 6 left, Fig. 7: rotation swept at D=20, 200 points."""
    for half_turns in thin(given, range(1, 9)):
        yield from spirals(given, {"rotation": 180 * half_turns}, rotation=180.0 * half_turns)


def points(given: Namespace) -> Rows:
    """Fig. 6 right, Fig. 8: number of training points swept at D=20."""
    for count in thin(given, range(50, 801, 50)):
        yield from spirals(given, {"points": count}, points=count)


def updates(given: Namespace) -> Rows:
    """Ours: SGD on belief (the paper) against the exact E-step (Eq. 5), and the uniform prior; D=20."""
    task, space = pa.data.load("spirals"), pa.spaces.ResidualDepth(max_depth=20)
    for update in ("sgd", "em"):
        for prior in ("exponential", "uniform"):
            how = spirals_pair("variational-depth", given, update=update)
            labels = {"who": "LDN", "update": update, "prior": prior}
            yield from timed(space, task, how, given, labels, repeats=given.seeds, start=pa.Start(prior=prior))


def pruning(given: Namespace) -> Rows:
    """Ours: where the pruned and the full mixture differ, example by example; D=50, six seeds on one data draw."""
    task = pa.data.load("spirals")
    assert task.test is not None
    space = pa.spaces.ResidualDepth(max_depth=50)
    for run in train(space, task, spirals_pair("variational-depth", given), given, repeats=given.seeds):
        pruned = run.ensemble().log_likelihood(task.test.x, task.test.y)
        full = run.ensemble(space.architecture([50])).log_likelihood(task.test.x, task.test.y)
        differences = (pruned - full).double()
        most = differences.abs().sort(descending=True).values.cumsum(0)
        carrying = int((most < 0.9 * most[-1]).sum()) + 1
        print(f"  seed {run.seed}: {differences.mean():.4f} nats, 90 % of it in {carrying} examples", flush=True)
        yield row(run, task, 0.0, difference=differences.mean().item(), examples_with_90_percent=carrying)


# ---------------------------------------------------------------------------------------------------------------------
# Images.


def image_rows(name: str, given: Namespace, depths: Iterable[int]) -> Rows:
    """LDN of maximum depth D and DDN of depth D, for every D; best state by validation data, rate drop at 30."""
    try:
        task = pa.data.load(name, folder=given.images, limit=4000 if given.quick else 0)
    except pa.PolyarchError as error:
        print(f"  left out: {error}", flush=True)
        return
    for depth in depths:
        space = pa.spaces.ResidualDepth(max_depth=depth)
        for who, kind in (("LDN", "variational-depth-images"), ("DDN", "fixed-depth-images")):
            how = method(kind, epochs=most(given, 3, 50))
            yield from timed(space, task, how, given, {"who": who, "data": name, "D": depth}, select="95%")


def fashion(given: Namespace) -> Rows:
    """Figs. 4, 9, 10, 11 on Fashion-MNIST, D=50."""
    yield from image_rows("fashion-mnist", given, (10,) if given.quick else (50,))


def mnist(given: Namespace) -> Rows:
    """Figs. 4, 9, 10, 11 on MNIST, D=50."""
    yield from image_rows("mnist", given, (10,) if given.quick else (50,))


def image_depths(given: Namespace) -> Rows:
    """Fig. 9: D swept on both image sets."""
    for name in ("mnist", "fashion-mnist"):
        yield from image_rows(name, given, thin(given, (5, 10, 20, 30)))


def times(given: Namespace) -> Rows:
    """Fig. 11: forward time that pruning saves at D=50, for a network alone and for the mixture.

    At the depths that were learnt here and in the paper. Images are noise and weights hardly trained: neither matters.
    """
    chance, space = torch.Generator().manual_seed(0), pa.spaces.ResidualDepth(max_depth=50)
    x = torch.rand(512 if given.device == "cuda" else 128, 1, 28, 28, generator=chance)
    task = pa.data.load((x[:40], torch.arange(40) % 10), select=0, test=0)
    [run] = train(space, task, method("variational-depth-images", epochs=1, stopping={"split": "train"}), given)
    for depth in thin(given, (15, 18, 19, 28)):
        found = forward_times(run, space.architecture([depth]), x)
        print(f"  depth {depth}: {found['forward_saving']}", flush=True)
        yield {"D": 50, "depth": depth, "seed": run.seed, "examples": len(x), **found}


def head(given: Namespace) -> Rows:
    """Ours: the output block's batch-norm statistics, per depth or shared as in the released code, on digits.

    Depth by depth, the validation log-likelihood with running statistics (as used) and the batch's own (as trained).
    """
    task = pa.data.load("digits")
    assert task.select is not None
    for statistics_kept in ("per-depth", "shared"):
        space = pa.spaces.ResidualDepth(max_depth=20, head_statistics=statistics_kept)
        how = method("variational-depth", epochs=40, batch_size=128, update="sgd")
        for run in train(space, task, how, given, repeats=min(given.seeds, 3)):
            x, y = task.preprocess(task.select.x)[None], task.select.y[None]
            fits = {}
            for mode in ("running", "batch"):
                supernet = run.supernet().train(mode == "batch")
                with torch.no_grad():
                    fit = task.likelihood.log_likelihood(supernet(x, All()), y[:, None]).mean(-1)[0]
                fits[mode] = [round(v, 4) for v in fit.tolist()]
            print(f"  {statistics_kept} seed {run.seed}: {run.architecture}", flush=True)
            yield row(run, task, 0.0, statistics=statistics_kept, fit=fits)


PARTS: dict[str, Callable[[Namespace], Rows]] = {
    part.__name__: part
    for part in (
        released, draws, fashion, mnist, max_depths, widths, rotations, points, pruning, updates, head, image_depths,
        times,
    )
}  # fmt: skip


def main() -> None:
    """Runs the parts asked for and writes their rows; or prints and draws what there is."""
    parser = sized_parser(__doc__, "depth", "table", "figures", seeds=(2, 6))
    parser.add_argument("--only", default="all", help=f"parts, separated by commas, of {', '.join(PARTS)}")
    parser.add_argument("--epochs", type=int, default=0, help="at most; default: the paper's; images 50, figures 3000")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", default="", help="folder with mnist/ and fashion-mnist/")
    words = "values of a sweep, not the paper's, separated by commas; the file is PART-GRID.json"
    parser.add_argument("--grid", type=lambda text: [int(value) for value in text.split(",")], default=[], help=words)
    given = parser.parse_args()
    if given.table:
        print(page(given.out, depth_tables.SECTIONS, depth_tables.read), end="")
        return
    if given.figures:
        from reproduce import depth_figures

        names = chosen(parser, "figure", given.figures, depth_figures.NAMES)
        depth_figures.draw(given.out, names, given.epochs or 3000)
        return
    for name in chosen(parser, "part", given.only, list(PARTS)):
        print(f"{name}: {about(PARTS[name])}", flush=True)
        with tempfile.TemporaryDirectory() as given.work:
            file = given.out / f"{'-'.join([name, *map(str, given.grid)])}.json"
            keep(file, PARTS[name](given), device=given.device, part=name, about=about(PARTS[name]))


if __name__ == "__main__":
    main()
