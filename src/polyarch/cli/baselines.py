"""`--baselines`: networks of single options of a nested space, trained alone beneath a search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyarch.core import Method
    from polyarch.methods.fixed_depth import FixedDepth
    from polyarch.spaces.base import Space


def baselines_of(options: list[str], space: Space, search: Method) -> dict[str, FixedDepth]:
    """By folder, networks of one option under the same training as a search; checked before anything is trained."""
    from polyarch.errors import PolyarchError
    from polyarch.methods.fixed_depth import FixedDepth
    from polyarch.settings import dotted, make, plain, settings_of

    if not options:
        return {}
    if not space.nested:
        raise PolyarchError(
            f"--baselines is for nested spaces such as 'depth', and {space.name!r} is none; leave it out, or train one "
            "network with `polyarch train`"
        )
    [decision] = space.decisions
    for option in options:
        if option not in decision.options:
            raise PolyarchError(
                f"--baselines: {option!r} is no {decision.name} of this space; write some of "
                f"{', '.join(decision.options)}"
            )
    training = dotted(type(search), plain(search))
    shared = {name: value for name, value in training.items() if name in settings_of(FixedDepth)}
    numbers = sorted({decision.options.index(option) for option in options})
    return {f"{decision.name}-{number}": make(FixedDepth, {**shared, "depth": number}) for number in numbers}


def already_begun(out: Path, space: Space) -> list[str]:
    """The options of which a search has begun to train networks."""
    numbers = [path.name.rpartition("-")[2] for path in (out / "baselines").glob("*")]
    return [space.decisions[0].options[int(number)] for number in numbers if number.isdecimal()]


def train_baselines(out: Path, baselines: Mapping[str, FixedDepth], allow_changed: bool) -> None:
    """Trains each in a folder of its own beneath the run in `out`, on its data and seeds, or goes on with that."""
    from polyarch import distributed
    from polyarch.cli.progress import progress
    from polyarch.runs import search as searching
    from polyarch.runs.config import CONFIG
    from polyarch.runs.options import Compute
    from polyarch.runs.run import Run

    if not baselines:
        return
    run = Run(out)
    task, space = run.task(), run.config.make_space()
    [decision] = space.decisions
    for name, method in baselines.items():
        folder = out / "baselines" / name
        goes_on = (folder / CONFIG).exists()
        distributed.barrier()  # before the first rank writes it
        with progress(f"fixed {decision.name} {decision.options[method.depth]}") as bar:
            if goes_on:
                searching.resume(folder, task=task, callbacks=[bar], allow_changed=allow_changed)
                continue
            searching.search(
                space,
                task,
                method,
                out=folder,
                seed=run.seed,
                repeats=run.config.repeats,
                compute=Compute(run.config.device, run.config.precision, run.config.fast),
                callbacks=[bar],
            )
