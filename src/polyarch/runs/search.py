"""`search`: from a space, a task and a method to a finished run, through any number of interruptions."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from polyarch import distributed
from polyarch.callbacks import (
    Beginning,
    Callback,
    Checkpoints,
    Evaluation,
    Step,
    hears_forecasts,
    hears_steps,
    one_repeat,
)
from polyarch.core import Info, Method
from polyarch.data.task import Task
from polyarch.distributions import selection
from polyarch.errors import PolyarchError
from polyarch.files import LOCK, append, locked, make_folder
from polyarch.runs import config as configs
from polyarch.runs.config import CONFIG, Config
from polyarch.runs.divergence import advice, used_rates
from polyarch.runs.examples import EXAMPLES, keep_examples
from polyarch.runs.finishing import finish
from polyarch.runs.limits import check_cost
from polyarch.runs.names import Data, as_task, resolve
from polyarch.runs.options import Compute, Select, Start, computing_on, is_here, seconds_of
from polyarch.runs.own_code import own_code
from polyarch.runs.preparing import first_stage, prepare, streams_of
from polyarch.runs.run import METRICS, Run, check_same_data, open_repeats, searched_seconds
from polyarch.runs.saving import newest_whole, save, under
from polyarch.runs.table_truth import open_table_truth, table_truth_of
from polyarch.runs.timing import deadline, foretell, makes_few_steps, within_limit
from polyarch.spaces.base import Space
from polyarch.spaces.limits import Price
from polyarch.spaces.sub_spaces import Listed
from polyarch.training.lack_of_memory import saying_what_to_lower
from polyarch.training.loop import Diverged, Loop, Progress
from polyarch.training.reach import say_if_too_short

logger = logging.getLogger("polyarch")


def search(
    space: Space | str,
    task: Data,
    method: Method | str,
    *,
    out: str | Path,
    seed: int = 0,
    repeats: int = 1,
    select: str | Select = "auto",
    start: Start = Start(),
    compute: Compute = Compute(),
    callbacks: Sequence[Callback] = (),
) -> Run | list[Run]:
    """Learns a distribution over the architectures of a space, and the weights that go with it.

    Args:
        space: what may be chosen: a space, or a name (see `polyarch list`, or `package.module:Class`).
        task: the data: a task, or what `polyarch.data.load` makes one of: a name, a path, arrays (x, y), where x may be
            a data frame, or a torch Dataset.
        method: how belief and weights are learnt: a method, or a name.
        out: a folder for the run; it must not exist or be empty.
        seed: every random stream of the run comes from it.
        repeats: so many runs, with seeds `seed`, `seed + 1`, ..., trained as one batched computation.
        select: how one architecture is taken from belief: `argmax`, `95%`, `expectation`, or `auto`; or that and what
            it may cost: `Select(limits=["parameters=100k"])`.
        start: what the search starts from: a prior over architectures, a price on their cost, belief or weights of
            other runs.
        compute: where to compute, and how precisely.
        callbacks: told how the search goes; see `polyarch.callbacks`.

    Returns:
        The finished run; for `repeats` > 1, one run per seed.
    """
    begun = time.monotonic()
    if repeats < 1:
        raise PolyarchError(f"repeats must be 1 or more, not {repeats}")
    if seed < 0:
        raise PolyarchError(f"seed must be 0 or more, not {seed}")
    space, task, method = resolve(space, task, method)
    config = configured(space, task, method, seed, repeats, select, start, compute, open_table_truth(callbacks, space))
    folder = Path(out)
    if distributed.rank() == 0:
        check_free(folder)
        last = method.stages(space)[-1].space
        check_cost(method, config.make_bounds(last), config.make_pricing(last))
    with saying_what_to_lower(method, space, repeats), computing_on(torch.device(config.device)):
        hearing, known = [callback for callback in callbacks if hears_forecasts(callback)], None
        if config.time_limit:
            config, known = within_limit(config, task, config.time_limit - (time.monotonic() - begun))
        heard = hearing and distributed.size() == 1 and not makes_few_steps(config, task)
        foretold = foretell(config, task, known) if heard else None
        loop = first_stage(config, task, start.allow_changed)  # what does not go together shows here
        config = replace(config, method=configs.describe_method(loop.method))  # what it chose by rule, too
        if distributed.rank() == 0:
            say_if_too_short(loop.method, loop.problem, loop.state)
            _say_if_not_divided(method.batch_size)
        with _claimed(folder, config, task) if distributed.rank() == 0 else nullcontext():
            if foretold:
                for callback in hearing:
                    callback.on_forecast(foretold)
            spent = time.monotonic() - begun
            runs = _train(folder, config, task, loop, deadline(config, spent, callbacks))
    return _one_or_all(runs)


def configured(
    space: Space,
    task: Task,
    method: Method,
    seed: int = 0,
    repeats: int = 1,
    select: str | Select = "auto",
    start: Start = Start(),
    compute: Compute = Compute(),
    truth: tuple[str, str] = ("", ""),
) -> Config:
    """A search as it is asked for, where all of that goes together; `truth` is a table and its column."""
    space.check(task.shape)
    method.check(space)
    if space.listed_only and not method.draws_from_space:
        way_out = "search the whole space" if isinstance(space, Listed) else "leave own_aggregation and own_affine out"
        raise PolyarchError(
            f"{configs.describe_method(method)['name']} draws architectures of its own, and this space has networks "
            f"for listed ones alone; {way_out}, or use stochastic-architectures"
        )
    if task.likelihood.fits and task.select is None:
        raise PolyarchError(
            "noise that is learnt needs validation data, and there is none: set select=0.15, or noise=fixed"
        )
    usual, chosen = method.prior(space), select if isinstance(select, Select) else Select(select)
    space_told, method_told = configs.describe_space(space), configs.describe_method(method)
    config = Config(
        space=space_told,
        method=method_told,
        data=configs.describe_task(task),
        prior=configs.describe_prior(start.prior if start.prior is not None else usual or "uniform", space),
        select=selection.rule_for(chosen.rule, space.nested, {name: len(split) for name, split in task.splits.items()}),
        seed=seed,
        repeats=repeats,
        device=str(compute.find_device()),
        precision=compute.precision,
        fast=compute.fast,
        versions=configs.versions(),
        code=own_code([space_told, method_told, task.likelihood.settings()]),
        belief_from=str(Path(start.belief_from).resolve()) if start.belief_from else "",
        weights_from=str(Path(start.weights_from).resolve()) if start.weights_from else "",
        table=truth[0],
        column=truth[1],
        limits=[str(limit) for limit in chosen.limits],
        price=str(Price.of(start.price)) if start.price else "",
        time_limit=seconds_of(compute.time_limit) if compute.time_limit is not None else 0.0,
    )
    config.make_prior(space)
    if config.prior != "uniform" and usual is None:
        raise PolyarchError(
            f"{method.name} learns weights of edges in the space {space.name!r}, and a prior is over architectures; "
            "leave the prior uniform, or use parsec"
        )
    return config


def resume(
    out: str | Path,
    *,
    task: Data | None = None,
    callbacks: Sequence[Callback] = (),
    allow_changed: bool = False,
    space: Space | None = None,
) -> Run | list[Run]:
    """Goes on with a search that was interrupted, to the same end as if it had not been.

    Args:
        out: the folder of the run.
        task: the data as `search` takes it, for a run whose data came from memory and is not kept; otherwise it is
            loaded again and checked.
        callbacks: as for `search`. The table that a run is watched by need not be given again.
        allow_changed: whether code of one's own may have changed since the run began; else that is refused.
        space: that of `open_run`.
    """
    folder, given = Path(out), None if task is None else as_task(task)
    run = Run(folder)
    if space is not None:
        run.config.take_space(space)
    if not allow_changed:
        run.config.check_code()
    if not run.finished:
        data = given or run.task()
        check_same_data(run.config, data)
        callbacks = [*table_truth_of(run.config), *callbacks]
        with locked(folder) if distributed.rank() == 0 else nullcontext():
            finished = run.finished  # by another process, since the first look
            distributed.barrier()
            if not finished:
                config = run.config
                if not is_here(config.device):
                    raise PolyarchError(
                        f"{folder} was begun on a CUDA device, {config.device}, which is not here; resume it there"
                    )
                lower = saying_what_to_lower(config.make_method(), config.make_space(), config.repeats)
                with lower, computing_on(torch.device(config.device)):
                    loop = _restored(folder, config, data, allow_changed)
                    callbacks = deadline(config, searched_seconds(run.history()), callbacks)
                    return _one_or_all(_train(folder, config, data, loop, callbacks))
    return _one_or_all(open_repeats(folder, given, allow_changed=True))


def _say_if_not_divided(batch: int) -> None:
    count = distributed.size()
    if batch % count:
        logger.warning("%d processes share a batch: of %d examples, not %d", count, batch - batch % count, batch)


def check_free(folder: Path) -> None:
    """Raises unless a new run may go into a folder; what a search leaves that was killed before it began is no run."""
    if (folder / CONFIG).exists():
        raise PolyarchError(f"{folder} already holds a run; choose another --out, or go on with it by --resume")
    if folder.exists() and not (folder.is_dir() and all(_is_trace(path) for path in folder.iterdir())):
        raise PolyarchError(f"{folder} exists and is not an empty folder; choose another --out")


def _is_trace(path: Path) -> bool:
    return path.name in (LOCK, EXAMPLES) or path.name.startswith((f".{CONFIG}.", f".{EXAMPLES}."))


@contextmanager
def _claimed(folder: Path, config: Config, task: Task) -> Iterator[None]:
    """Makes, locks and marks a folder as this run's: of several searches that begin in it at once, one goes on."""
    made = make_folder(folder)
    with locked(folder):
        check_free(folder)
        try:
            keep_examples(folder, task)
            config.write(folder)
        except PolyarchError:
            (folder / EXAMPLES).unlink(missing_ok=True)
            if made:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        yield


def _train(folder: Path, config: Config, task: Task, loop: Loop, callbacks: Sequence[Callback]) -> list[Run]:
    """Runs every stage from where `loop` stands, then writes the results; rank 0 does the writing."""
    distributed.barrier()
    if not (folder / CONFIG).exists():
        raise PolyarchError(
            f"process {distributed.rank()} does not see {folder / CONFIG}, which the first one wrote; put the run "
            "where all processes read the same files"
        )
    if not any(isinstance(callback, Checkpoints) for callback in callbacks):
        callbacks = [*callbacks, Checkpoints()]
    started = time.monotonic()
    stages = len(loop.method.stages(config.make_space()))
    at = (stages, loop.progress.stage, loop.progress.epoch)
    length = task.input_shape[0] if task.tokens else 0
    beginning = Beginning(config.data["examples"], loop.epochs, *at, tokens=length)
    for callback in callbacks if distributed.rank() == 0 else ():
        callback.on_begin(beginning)
    while True:
        _run_stage(folder, config, loop, stages, callbacks, started)
        loop.state.copy_from(loop.best)
        done = loop.progress
        if done.ended or done.stage + 1 == stages:
            break
        next_up = Progress(done.stage + 1, 0, done.forward, done.backward)
        learnt = replace(loop.state, likelihood={})  # noise is that of a stage's own weights
        loop = prepare(config, task, next_up, list(loop.streams), learnt)
    runs = finish(folder, config, task, loop, callbacks) if distributed.rank() == 0 else []
    distributed.barrier()
    return runs or open_repeats(folder, task, allow_changed=True)


def _run_stage(
    folder: Path, config: Config, loop: Loop, stages: int, callbacks: Sequence[Callback], started: float
) -> None:
    """Epochs until the stage is over. Callbacks come before what is written, so that it holds what they decided."""
    writes = distributed.rank() == 0
    loop.on_step = _tell_of_steps(loop, callbacks) if writes else None
    while not loop.progress.finished(loop.epochs):
        try:
            line = loop.epoch()
        except Diverged as diverged:
            raise _diverged(folder, config, loop, diverged) from None
        if line is None:
            continue
        with torch.no_grad():  # a graph that outlives the epoch would be met by the next recording, on another stream
            belief = loop.method.distribution(loop.problem.space, loop.state.belief)
        line["seconds"] = round(time.monotonic() - started, 3)
        told = (loop.method.evaluates, loop.epochs, stages, config.repeats)
        evaluation = Evaluation(line, loop.problem.space, belief, *told)
        for callback in callbacks if writes else ():
            callback.on_evaluation(evaluation)
        loop.progress.ended = distributed.from_first_rank(evaluation.stopped, loop.device)
        if writes:
            append(folder / METRICS, json.dumps(_unbatch(line, config.repeats)) + "\n")
            if evaluation.saved:
                save(folder, loop)
    if writes:
        save(folder, loop)


def _tell_of_steps(loop: Loop, callbacks: Sequence[Callback]) -> Callable[[Info], None] | None:
    """What tells the callbacks that want to know of every step; None where none does."""
    hearing = [callback for callback in callbacks if hears_steps(callback)]
    epoch, number = -1, 0

    def tell(info: Info) -> None:
        nonlocal epoch, number
        number = number + 1 if epoch == loop.progress.epoch else 0
        epoch = loop.progress.epoch
        for callback in hearing:
            callback.on_step(Step(loop.progress.stage, epoch, number, info.metrics))

    return tell if hearing else None


def _diverged(folder: Path, config: Config, loop: Loop, diverged: Diverged) -> PolyarchError:
    used = ", ".join(f"{name}={value:g}" for name, value in used_rates(loop.method).items())
    slower = advice(loop.method, (config.data["source"] or {}).get("settings", {}))
    kept = f"; what was measured until then is in {folder / METRICS}" if (folder / METRICS).exists() else ""
    return PolyarchError(
        f"training diverged: after epoch {diverged.epoch} the objective was no longer a number"
        f"{f' with {used}' if used else ''}{kept}; start again in another --out"
        f"{f', such as with {slower}' if slower else ' with other settings'}"
    )


def _restored(folder: Path, config: Config, task: Task, allow_changed: bool) -> Loop:
    """The stage that an interrupted run was in, as its newest whole checkpoint has it; without one, from the start."""
    if distributed.rank() > 0:
        distributed.barrier()  # until the first rank has dropped what is damaged
    found = newest_whole(folder)
    if distributed.rank() == 0:
        distributed.barrier()
    if found is None:
        return first_stage(config, task, allow_changed)
    tensors, numbers = found
    loop = prepare(config, task, Progress(**numbers["progress"]), streams_of(config), None)
    loop.state.copy_from(under("state/", tensors))
    loop.best = {name: tensors[f"best/{name}"].to(loop.device) for name in loop.best}
    for k, streams in enumerate(loop.streams):
        streams.restore(under(f"streams/{k}/", tensors))
    return loop


def _unbatch(value: Any, repeats: int) -> Any:
    """A line as it is written: without the axis of repeats in a single run."""
    return one_repeat(value, 0) if repeats == 1 else value


def _one_or_all(runs: list[Run]) -> Run | list[Run]:
    return runs if len(runs) > 1 else runs[0]
