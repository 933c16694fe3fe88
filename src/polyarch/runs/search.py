"""`search`: from a space, a task and a method to a finished run, through any number of interruptions."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyarch import selection
from polyarch.data.task import Split, Task
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.methods.base import Examples, Method, Problem, State
from polyarch.runs import config as configs
from polyarch.runs.config import Config
from polyarch.runs.files import append, cannot_write, locked, write_json
from polyarch.runs.results import results
from polyarch.runs.run import WEIGHTS, Run, check_same_data, open_repeats, repeat_folder
from polyarch.spaces.base import Space
from polyarch.training import checkpoints, world
from polyarch.training.loop import Diverged, Loop, Progress
from polyarch.training.streams import Streams

Watch = Callable[[dict[str, Any]], None]
"""Called with every evaluation: the line of metrics.jsonl, its `epochs` at most, and `seconds` so far."""


def search(
    space: Space,
    task: Task,
    method: Method,
    *,
    out: str | Path,
    seed: int = 0,
    repeats: int = 1,
    prior: str | Categorical | None = None,
    select: str = "auto",
    device: str = "auto",
    checkpoint_seconds: float = 10.0,
    watch: Watch | None = None,
) -> Run | list[Run]:
    """Learns a distribution over the architectures of a space, and the weights that go with it.

    Args:
        space: what may be chosen.
        task: the data.
        method: how belief and weights are learnt.
        out: a folder for the run; it must not exist or be empty.
        seed: every random stream of the run comes from it.
        repeats: so many runs, with seeds `seed`, `seed + 1`, ..., trained as one batched computation.
        prior: over architectures; the method's own by default. A name, or a distribution over the space's decisions.
        select: how one architecture is taken from belief: `argmax`, `95%`, `expectation`, or `auto`.
        device: `cpu`, `cuda`, or `auto`.
        checkpoint_seconds: at least so long between two checkpoints; killed, a search loses that much at most.
        watch: called with every evaluation.

    Returns:
        The finished run; for `repeats` > 1, one run a seed.
    """
    if repeats < 1:
        raise PolyarchError(f"repeats must be 1 or more, not {repeats}")
    if seed < 0:
        raise PolyarchError(f"seed must be 0 or more, not {seed}")
    space.check(task.shape)
    method.check(space)
    config = Config(
        space=configs.describe_space(space),
        method=configs.describe_method(method),
        data=configs.describe_task(task),
        prior=configs.describe_prior(prior if prior is not None else method.default_prior),
        select=selection.rule_for(select, len(space.decisions), len(task.train)),
        seed=seed,
        repeats=repeats,
        device=str(find_device(device)),
        versions=configs.versions(),
    )
    config.make_prior(space)
    folder = Path(out)
    if world.rank() == 0:
        _make_folder(folder, config)
    world.barrier()
    _train(folder, config, task, checkpoint_seconds, watch)
    return _opened(folder)


def resume(
    out: str | Path, *, task: Task | None = None, checkpoint_seconds: float = 10.0, watch: Watch | None = None
) -> Run | list[Run]:
    """Goes on with a search that was interrupted, to the same end as if it had not been.

    Args:
        out: the folder of the run.
        task: the data, for a run whose data came from memory; otherwise it is loaded again and checked.
        checkpoint_seconds: as for `search`.
        watch: called with every evaluation.
    """
    folder = Path(out)
    config = Config.read(folder)
    if task is None:
        task = Run(folder).task()
    check_same_data(config, task)
    if not is_finished(folder):
        _train(folder, config, task, checkpoint_seconds, watch)
    return _opened(folder)


def is_finished(folder: Path) -> bool:
    """Whether a run has all its results."""
    return (folder / "result.json").exists()


def find_device(name: str) -> torch.device:
    """The device a name means; `auto` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise PolyarchError(f"device must be auto, cpu or cuda; not {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise PolyarchError("no CUDA device is available to torch here; use --device cpu")
    return torch.device(name)


def make_problem(config: Config, space: Space, task: Task, device: torch.device) -> Problem:
    """What a method is given for one stage: data standardised and on the device, a supernet of all repeats."""

    def examples(split: Split) -> Examples:
        return Examples(task.standardise(split.x).to(device), split.y.to(device))

    splits = {"train": task.train} | ({"valid": task.valid} if task.valid is not None else {})
    with torch.device(device):
        supernet = space.supernet(task.shape, config.repeats)
    prior = config.make_prior(space)
    return Problem(
        space=space,
        supernet=supernet,
        likelihood=task.likelihood,
        prior=replace(prior, logits=prior.logits.to(device)),
        data={name: examples(split) for name, split in splits.items()},
    )


def _make_folder(folder: Path, config: Config) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if (folder / "config.json").exists():
            raise PolyarchError(f"{folder} already holds a run; choose another --out, or go on with it by --resume")
        raise PolyarchError(f"{folder} exists and is not an empty folder; choose another --out")
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        config.write(folder)
    except PolyarchError:
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _train(folder: Path, config: Config, task: Task, checkpoint_seconds: float, watch: Watch | None) -> None:
    """Runs every stage from where the newest whole checkpoint stands, then writes the results; rank 0 does the writing."""
    with locked(folder) if world.rank() == 0 else nullcontext():
        loop = _run_stages(folder, config, task, checkpoint_seconds, watch)
        if world.rank() == 0:
            _finish(folder, config, task, loop)
        world.barrier()


def _run_stages(folder: Path, config: Config, task: Task, checkpoint_seconds: float, watch: Watch | None) -> Loop:
    device = torch.device(config.device)
    method = config.make_method()
    streams = [Streams(config.seed + k) for k in range(config.repeats)]
    saved = _restore(folder)
    progress = Progress(**saved[1]["progress"]) if saved else Progress()
    stages = method.stages(config.make_space())
    state: State | None = None
    started = time.monotonic()
    for number, stage in enumerate(stages):
        if number < progress.stage:
            continue
        problem = make_problem(config, stage.space, task, device)
        state = method.init(problem, streams, state)
        if saved:
            _load_state(saved[0], state, streams)
        loop = Loop(method, problem, state, streams, progress, stage.epochs)
        if saved:
            loop.best = {name: saved[0][f"best/{name}"].to(device) for name in loop.best}
            saved = None
        _run_stage(folder, config, loop, checkpoint_seconds, watch, started)
        state.copy_from(loop.best)
        if number + 1 < len(stages):
            progress = Progress(number + 1, 0, progress.forward, progress.backward)
    return loop


def _run_stage(
    folder: Path, config: Config, loop: Loop, checkpoint_seconds: float, watch: Watch | None, started: float
) -> None:
    writes = world.rank() == 0
    last_checkpoint = time.monotonic()
    while not loop.progress.finished(loop.epochs):
        try:
            line = loop.epoch()
        except Diverged as diverged:
            raise _diverged(folder, loop, diverged) from None
        if line is None or not writes:
            continue
        line["seconds"] = round(time.monotonic() - started, 3)
        append(folder / "metrics.jsonl", json.dumps(_unbatch(line, config.repeats)) + "\n")
        if time.monotonic() - last_checkpoint >= checkpoint_seconds:
            _save(folder, loop)
            last_checkpoint = time.monotonic()
        if watch:
            watch(line | {"epochs": loop.epochs, "repeats": config.repeats})
    if writes:
        _save(folder, loop)


def _diverged(folder: Path, loop: Loop, diverged: Diverged) -> PolyarchError:
    epoch = max(loop.progress.best_epoch)
    rate = f"; its `rate` was {loop.method.rates(loop.progress.epoch - 1)}"
    kept = f"the best state was at epoch {epoch}" if epoch else "no good state was reached"
    return PolyarchError(
        f"the objective became NaN by epoch {diverged.epoch}: training diverged ({kept}{rate}). "
        f"Start again in a new folder with a smaller rate, such as --set rate=0.01, or fewer --set max_depth"
    )


def _save(folder: Path, loop: Loop) -> None:
    tensors: dict[str, Tensor] = {f"state/{name}": value for name, value in loop.state.tensors().items()}
    tensors |= {f"best/{name}": value for name, value in loop.best.items()}
    for k, streams in enumerate(loop.streams):
        tensors |= {f"streams/{k}/{name}": value for name, value in streams.state().items()}
    length = (folder / "metrics.jsonl").stat().st_size if (folder / "metrics.jsonl").exists() else 0
    checkpoints.save_next(folder, tensors, {"progress": asdict(loop.progress), "metrics_bytes": length})


def _restore(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest whole checkpoint; metrics written after it are cut off, since they will be written again."""
    metrics = folder / "metrics.jsonl"
    for path in checkpoints.newest_first(folder):
        try:
            tensors, numbers = checkpoints.load(path)
        except PolyarchError as error:
            print_notice(f"{error}; using the checkpoint before it")
            continue
        if world.rank() == 0 and metrics.exists():
            os.truncate(metrics, min(numbers["metrics_bytes"], metrics.stat().st_size))
        return tensors, numbers
    if world.rank() == 0:
        metrics.unlink(missing_ok=True)
    return None


def print_notice(text: str) -> None:
    """Says something on standard error, once."""
    print(f"polyarch: {text}", file=sys.stderr)


def _load_state(tensors: dict[str, Tensor], state: State, streams: list[Streams]) -> None:
    state.copy_from({name[6:]: value for name, value in tensors.items() if name.startswith("state/")})
    for k, own in enumerate(streams):
        prefix = f"streams/{k}/"
        own.restore({name[len(prefix) :]: v for name, v in tensors.items() if name.startswith(prefix)})


def _unbatch(value: Any, repeats: int) -> Any:
    """A line as it is written: without the axis of repeats in a single run."""
    return _pick(value, 0) if repeats == 1 else value


def _pick(value: Any, repeat: int) -> Any:
    """One repeat's part of a line: every list's entry of that repeat."""
    if isinstance(value, dict):
        return {name: _pick(v, repeat) for name, v in value.items()}
    return value[repeat] if isinstance(value, list) else value


def _finish(folder: Path, config: Config, task: Task, loop: Loop) -> None:
    """Writes what a run leaves behind; result.json last, since its presence says that all is there."""
    belief = loop.method.distribution(loop.problem, loop.state)
    for repeat in range(config.repeats):
        home = folder
        if config.repeats > 1:
            home = repeat_folder(folder, config.seed + repeat)
            home.mkdir(exist_ok=True)
            own = replace(config, seed=config.seed + repeat, repeats=1)
            _write_own_metrics(folder, home, repeat, loop.progress.stopped_epoch[repeat])
            own.write(home)
        tensors = {
            name: value[repeat : repeat + 1] for name, value in loop.state.tensors().items() if "optimiser/" not in name
        }
        one = belief.repeat(repeat)
        tensors["distribution/logits"] = one.logits.clone()  # type: ignore[attr-defined]
        tensors |= {f"standardise/{name}": value for name, value in task.standardise.state_dict().items()}
        checkpoints.save(home / WEIGHTS, tensors, {"best_epoch": loop.progress.best_epoch[repeat]})
        architecture = loop.problem.space.architecture(selection.select(one, config.select))
        write_json(home / "architecture.json", {"architecture": str(architecture), "select": config.select})
        probs = {name: p.tolist() for name, p in one.probs().items()}
        write_json(home / "distribution.json", {"probs": probs})
        write_json(home / "result.json", results(Run(home), task))
    if config.repeats > 1:
        write_json(folder / "result.json", {"run": str(folder), "runs": [r.result for r in open_repeats(folder)]})


def _write_own_metrics(folder: Path, home: Path, repeat: int, stopped_epoch: int) -> None:
    """One repeat's lines, up to where it stopped."""
    lines = []
    for text in (folder / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        if not stopped_epoch or line["epoch"] <= stopped_epoch:
            lines.append(json.dumps(_pick(line, repeat)))
    (home / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def _opened(folder: Path) -> Run | list[Run]:
    runs = open_repeats(folder)
    return runs if len(runs) > 1 else runs[0]
