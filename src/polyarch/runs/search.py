"""`search`: from a space, a task and a method to a finished run, through any number of interruptions."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.core import Method, Problem, State
from polyarch.data.task import Split, Task
from polyarch.distributions import selection
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError, unknown
from polyarch.files import LOCK, append, locked, make_folder, synced_size
from polyarch.runs import config as configs
from polyarch.runs.config import CONFIG, Config
from polyarch.runs.finishing import finish, one_repeat
from polyarch.runs.run import METRICS, Run, check_same_data, open_repeats, open_run
from polyarch.runs.truth import Truth, truth_of
from polyarch.settings import dotted, plain
from polyarch.spaces.base import Space
from polyarch.spaces.only import Only
from polyarch.streams import Streams
from polyarch.training import checkpoints
from polyarch.training.loop import Diverged, Loop, Progress

PRECISIONS = ("float32", "bfloat16")
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
    precision: str = "float32",
    inherit: str | Path | None = None,
    init_from: str | Path | None = None,
    table: str | Path | None = None,
    column: str | None = None,
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
        precision: `float32`, or, on a CUDA device, `bfloat16` for products and convolutions; weights, statistics
            and losses stay in single precision, and so does everything after the search.
        inherit: the folder of a finished run; training one network (`Standalone`) starts from the weights that run
            gives its architecture.
        init_from: the folder of a finished run of the same method and the same decisions; the search starts from the
            belief learnt there, perhaps on a smaller network or on other data.
        table: ground truth, a path or a name (see `polyarch.tables`): every evaluation also says, as `truth`, what the
            table has for the current mode of belief. It is only watched: nothing is ever chosen by it.
        column: which of the table's columns; by default the only one of validation accuracy.
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
    if space.only_listed and not method.stays_listed:
        raise PolyarchError(
            f"{configs.describe_method(method)['name']} draws architectures of its own, and this space has networks "
            "for listed ones alone; leave own_aggregation and own_affine out, or use stochastic-architectures"
        )
    if column and not table:
        raise PolyarchError(f"column {column!r} is of no table; name the table as well")
    truth = Truth(table, column, space) if table else None
    config = Config(
        space=configs.describe_space(space),
        method=configs.describe_method(method),
        data=configs.describe_task(task),
        prior=configs.describe_prior(prior if prior is not None else method.default_prior, space),
        select=selection.rule_for(select, space.nested, len(task.train)),
        seed=seed,
        repeats=repeats,
        device=str(find_device(device)),
        versions=configs.versions(),
        inherit=str(Path(inherit).resolve()) if inherit else "",
        init_from=str(Path(init_from).resolve()) if init_from else "",
        table=truth.table if truth else "",
        column=truth.column.name if truth else "",
        precision=_check_precision(precision, device),
    )
    config.make_prior(space)
    if config.prior != "uniform" and not method.takes_prior(space):
        raise PolyarchError(
            f"{method.name} learns weights of edges in the space {space.name!r}, and a prior is over architectures; "
            "leave the prior uniform, or use parsec"
        )
    folder = Path(out)
    if distributed.rank() == 0:
        _check_free(folder)
    loop = _first(config, task)  # what does not go together shows here
    with _claimed(folder, config) if distributed.rank() == 0 else nullcontext():
        _train(folder, config, task, loop, truth, checkpoint_seconds, watch)
    return _opened(folder, task)


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
    run = Run(folder)
    if not run.finished:
        task = task or run.task()
        check_same_data(run.config, task)
        truth = truth_of(run.config)
        with locked(folder) if distributed.rank() == 0 else nullcontext():
            finished = run.finished  # by another process, since the first look
            distributed.barrier()
            if not finished:
                loop = _restored(folder, run.config, task)
                _train(folder, run.config, task, loop, truth, checkpoint_seconds, watch)
    return _opened(folder, task)


def find_device(name: str) -> torch.device:
    """The device a name means; `auto` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise PolyarchError(f"device must be auto, cpu or cuda; not {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise PolyarchError("no CUDA device is available to torch here; use --device cpu")
    return torch.device(name)


def _check_precision(name: str, device: str) -> str:
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    if name == "bfloat16" and find_device(device).type != "cuda":
        raise PolyarchError("precision bfloat16 is for CUDA devices; leave it out, or search on one")
    return name


def make_problem(config: Config, space: Space, task: Task, device: torch.device) -> Problem:
    """What a method is given for one stage: data standardised and on the device, a supernet of all repeats."""
    given = task.learning_data()
    moved = {split: Split(task.standardise(split.x).to(device), split.y.to(device)) for split in given.values()}
    with torch.device(device):
        supernet = space.supernet(task.shape, config.repeats)
    prior = config.make_prior(space)
    image = len(task.input_shape) == 3
    return Problem(
        space=space,
        supernet=supernet,
        likelihood=task.likelihood,
        prior=replace(prior, logits=prior.logits.to(device)),
        data={name: moved[split] for name, split in given.items()},
        black=task.standardise(torch.zeros(task.input_shape[0], 1, 1)).to(device) if image else None,
        precision=config.precision,
    )


def _check_free(folder: Path) -> None:
    """Raises unless a new run may go into a folder; what a search leaves that was killed before it began is no run."""
    if (folder / CONFIG).exists():
        raise PolyarchError(f"{folder} already holds a run; choose another --out, or go on with it by --resume")
    if folder.exists() and not (folder.is_dir() and all(_is_trace(path) for path in folder.iterdir())):
        raise PolyarchError(f"{folder} exists and is not an empty folder; choose another --out")


def _is_trace(path: Path) -> bool:
    return path.name == LOCK or path.name.startswith(f".{CONFIG}.")


@contextmanager
def _claimed(folder: Path, config: Config) -> Iterator[None]:
    """Makes, locks and marks a folder as this run's: of several searches that begin in it at once, one goes on."""
    made = make_folder(folder)
    with locked(folder):
        _check_free(folder)
        try:
            config.write(folder)
        except PolyarchError:
            if made:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        yield


def _streams(config: Config) -> list[Streams]:
    return [Streams(config.seed + k) for k in range(config.repeats)]


def _first(config: Config, task: Task) -> Loop:
    """The first stage, from fresh weights or from those that are inherited."""
    previous = _inherited(config) if config.inherit else None
    belief = _learnt(config) if config.init_from else None
    return _prepare(config, task, Progress(), _streams(config), previous, belief)


def _learnt(config: Config) -> dict[str, Tensor]:
    """The belief of another run, as tensors of this one's."""
    run = open_run(config.init_from)
    for what, own, other in (
        ("space", config.space["signature"], run.config.space["signature"]),
        ("method", type(config.make_method()), type(run.config.make_method())),
    ):
        if own != other:
            raise PolyarchError(
                f"{config.init_from} is a run of another {what} ({getattr(run.config, what)['name']}); belief can only "
                f"come from one of {getattr(config, what)['name']}"
                f"{' with the same decisions and options' if what == 'space' else ''}"
            )
    return run.belief


def _inherited(config: Config) -> State:
    """One network of another run, as the state that training it alone starts from."""
    run = open_run(config.inherit)
    space = config.make_method().stages(config.make_space())[0].space
    if not isinstance(space, Only):
        raise PolyarchError("only training one network starts from inherited weights; leave inherit out")
    [network] = run.networks([run.space.parse(space.chosen.text)])
    tensors = {name: value.unsqueeze(0) for name, value in network.state_dict(prefix="network.").items()}
    return State(weights=tensors, buffers=tensors, belief={})


def _prepare(
    config: Config,
    task: Task,
    progress: Progress,
    streams: list[Streams],
    previous: State | None,
    belief: Mapping[str, Tensor] | None = None,
) -> Loop:
    """The stage that `progress` is in, as it begins, with another run's belief if given; nothing is written yet."""
    method = config.make_method()
    stage = method.stages(config.make_space())[progress.stage]
    problem = make_problem(config, stage.space, task, torch.device(config.device))
    state = method.init(problem, streams, previous)
    if belief is not None:
        if belief.keys() != state.belief.keys():
            raise PolyarchError(f"{config.init_from} was searched in other stages; set progressive as it was there")
        listed = state.belief.get("choices")
        if listed is not None and not torch.equal(belief["choices"].to(listed)[:1], listed[:1]):
            raise PolyarchError(f"{config.init_from} lists other architectures; set its list as it was there")
        with torch.no_grad():
            for name, value in state.belief.items():
                value.copy_(belief[name].expand_as(value))
    return Loop(method, problem, state, streams, progress, stage.epochs)


def _train(
    folder: Path,
    config: Config,
    task: Task,
    loop: Loop,
    truth: Truth | None,
    checkpoint_seconds: float,
    watch: Watch | None,
) -> None:
    """Runs every stage from where `loop` stands, then writes the results; rank 0 does the writing."""
    distributed.barrier()
    started = time.monotonic()
    stages = len(loop.method.stages(config.make_space()))
    while True:
        _run_stage(folder, config, loop, truth, checkpoint_seconds, watch, started)
        loop.state.copy_from(loop.best)
        done = loop.progress
        if done.stage + 1 == stages:
            break
        next_up = Progress(done.stage + 1, 0, done.forward, done.backward)
        loop = _prepare(config, task, next_up, list(loop.streams), loop.state)
    if distributed.rank() == 0:
        finish(folder, config, task, loop, truth)
    distributed.barrier()


def _run_stage(
    folder: Path,
    config: Config,
    loop: Loop,
    truth: Truth | None,
    checkpoint_seconds: float,
    watch: Watch | None,
    started: float,
) -> None:
    writes, stages = distributed.rank() == 0, len(loop.method.stages(config.make_space()))
    last_checkpoint = time.monotonic()
    while not loop.progress.finished(loop.epochs):
        try:
            line = loop.epoch()
        except Diverged as diverged:
            raise _diverged(folder, loop, diverged) from None
        if line is None or not writes:
            continue
        if truth:
            belief = loop.method.distribution(loop.problem.space, loop.state.belief)
            line["truth"] = truth.of(loop.problem.space, belief.mode())
        line["seconds"] = round(time.monotonic() - started, 3)
        append(folder / METRICS, json.dumps(_unbatch(line, config.repeats)) + "\n")
        if time.monotonic() - last_checkpoint >= checkpoint_seconds:
            _save(folder, loop)
            last_checkpoint = time.monotonic()
        if watch:
            watch(line | {"stages": stages, "epochs": loop.epochs, "repeats": config.repeats})
    if writes:
        _save(folder, loop)


def _diverged(folder: Path, loop: Loop, diverged: Diverged) -> PolyarchError:
    settings = dotted(type(loop.method), plain(loop.method))
    rates = {name: value for name, value in settings.items() if name.endswith(".lr") and value}
    used = ", ".join(f"{name}={value:g}" for name, value in rates.items())
    smaller = " ".join(f"--set {name}={min(value / 10, 0.1):g}" for name, value in rates.items())
    kept = f"; what was measured until then is in {folder / METRICS}" if (folder / METRICS).exists() else ""
    return PolyarchError(
        f"training diverged: after epoch {diverged.epoch} the objective was no longer a number"
        f"{f' with {used}' if used else ''}{kept}; start again in another --out"
        f"{f', learning more slowly: {smaller}' if smaller else ' with other settings'}"
    )


def _save(folder: Path, loop: Loop) -> None:
    tensors: dict[str, Tensor] = {f"state/{name}": value for name, value in loop.state.tensors().items()}
    tensors |= {f"best/{name}": value for name, value in loop.best.items()}
    for k, streams in enumerate(loop.streams):
        tensors |= {f"streams/{k}/{name}": value for name, value in streams.state().items()}
    written = synced_size(folder / METRICS)  # on the disk before the checkpoint that counts on it
    checkpoints.save_next(folder, tensors, {"progress": asdict(loop.progress), "metrics_bytes": written})


def _restored(folder: Path, config: Config, task: Task) -> Loop:
    """The stage that an interrupted run was in, as its newest whole checkpoint has it; without one, from the start."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise PolyarchError(f"{folder} was begun on a CUDA device and there is none here; resume it where there is one")
    found = _newest_whole(folder)
    if found is None:
        return _first(config, task)
    tensors, numbers = found
    loop = _prepare(config, task, Progress(**numbers["progress"]), _streams(config), None)
    loop.state.copy_from(_under("state/", tensors))
    loop.best = {name: tensors[f"best/{name}"].to(loop.device) for name in loop.best}
    for k, streams in enumerate(loop.streams):
        streams.restore(_under(f"streams/{k}/", tensors))
    return loop


def _newest_whole(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest whole checkpoint; metrics written after it are cut off, since they will be written again."""
    metrics = folder / METRICS
    length = metrics.stat().st_size if metrics.exists() else 0
    damaged: dict[Path, checkpoints.Damaged] = {}
    for path in checkpoints.newest_first(folder):
        try:
            tensors, numbers = checkpoints.load(path)
            if length < numbers["metrics_bytes"]:
                raise checkpoints.Damaged(f"{metrics} is shorter than when {path} was written")
        except checkpoints.Damaged as error:
            damaged[path] = error
            continue
        _drop(damaged, f"going on from {path.name}, the checkpoint before it")
        if distributed.rank() == 0 and length:
            os.truncate(metrics, numbers["metrics_bytes"])
        return tensors, numbers
    _drop(damaged, "no checkpoint is left, so starting from the beginning")
    if distributed.rank() == 0:
        metrics.unlink(missing_ok=True)
    return None


def _drop(damaged: Mapping[Path, checkpoints.Damaged], instead: str) -> None:
    """Says on standard error which checkpoints are of no use, and removes them, so that whole ones are kept longer."""
    if damaged and distributed.rank() == 0:
        print(f"polyarch: {'; '.join(map(str, damaged.values()))}; {instead}", file=sys.stderr)
        for path in damaged:
            path.unlink(missing_ok=True)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a group, by their names in it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _unbatch(value: Any, repeats: int) -> Any:
    """A line as it is written: without the axis of repeats in a single run."""
    return one_repeat(value, 0) if repeats == 1 else value


def _opened(folder: Path, task: Task | None) -> Run | list[Run]:
    runs = open_repeats(folder, task)
    return runs if len(runs) > 1 else runs[0]
