"""`polyarch train`: train one network of a space, from scratch or from the weights of a search."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.options import AllowChanged, Json, Limits, Set, Tensorboard, TimeLimitText
from polyarch.cli.ranks import last_word
from polyarch.cli.saying import processes
from polyarch.cli.search import finish, go_on, interruptible, tensorboard_in
from polyarch.cli.time_limit import TimeLimit
from polyarch.cli.waiting import waiting

if TYPE_CHECKING:
    from polyarch.runs.run import Run


def train(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Take architecture, space and data from this search.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the run; must not exist, or be empty.")] = None,
    space: Annotated[str | None, typer.Option("--space", help="See `polyarch list`; or package.module:Class.")] = None,
    arch: Annotated[str | None, typer.Option("--arch", metavar="TEXT", help="The architecture to train.")] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="A name (see `polyarch list`), or a file or folder. [default: digits]")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", help="A published protocol: darts, nasbench201, nasbench201-12. [default: none]"),
    ] = None,
    inherit: Annotated[bool, typer.Option("--inherit", help="Start from the weights that RUN learnt.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Every random draw comes from it. [default: 0]")] = None,
    repeats: Annotated[int | None, typer.Option("--repeats", help="Train so many seeds. [default: 1]")] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or cuda:N. [default: auto]")] = None,
    members: Annotated[
        int | None,
        typer.Option(
            "--members",
            metavar="N",
            help="Instead: train so many networks that RUN's belief draws, beneath RUN, each as the selected one is "
            "weights, and compare them as an ensemble with the selected one. A larger N later goes on from these.",
        ),
    ] = None,
    limit: Limits = [],  # noqa: B006
    time_limit: TimeLimitText = None,
    tensorboard: Tensorboard = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")] = False,
    settings: Set = [],  # noqa: B006
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Train one network properly, and write a report; or several that a search believes in, as an ensemble."""
    from polyarch.errors import PolyarchError

    begun = time.monotonic()
    flags: dict[str, Any] = {"space": space, "method": None, "data": data, "seed": seed, "repeats": repeats}
    flags |= {"device": device, "time_limit": time_limit, "tensorboard": tensorboard or None}
    if members is not None:
        told: dict[str, Any] = {
            "--out": out,
            "--arch": arch,
            "--recipe": recipe,
            "--inherit": inherit,
            "--resume": resume,
            "--limit": limit,
        }
        told |= {f"--{name.replace('_', '-')}": value for name, value in flags.items()} | {"--set": settings}
        others = [option for option, value in told.items() if value is not None and value is not False and value != []]
        _train_members(run, members, others, as_json)
        return
    if out is None:
        raise PolyarchError("say where the run goes: --out FOLDER")
    with interruptible(out, device):
        flags["limit"] = TimeLimit.of(time_limit, begun)
        if resume:
            _check_only_out(run, inherit, limit)
            asked = [f"method.architecture={arch}", *settings] if arch else settings
            found = go_on(out, flags | {"method": _method(recipe) if recipe else None}, asked, [], allow_changed)
        else:
            arch = _within(run, arch, limit, allow_changed) if limit else arch
            found = _begin(out, run, arch, recipe, inherit, flags, settings, allow_changed)
        finish(out, found, as_json)


def _within(folder: Path | None, arch: str | None, limit: list[str], allow_changed: bool) -> str:
    """What a search selects within limits."""
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import open_run

    if folder is None or arch:
        raise PolyarchError("--limit is for what a search selects: give its folder, and leave --arch out")
    run = open_run(folder, allow_changed=allow_changed)
    if run.meaning.kind == "fixed":
        raise PolyarchError(
            f"belief of {folder} is fixed and prefers nothing; give what `polyarch select {folder} --by valid-loss "
            "--limit ...` says as --arch"
        )
    return str(run.selected(run.config.select, run.within(limit)))


def _train_members(folder: Path | None, count: int, others: list[str], as_json: bool) -> None:
    """Trains an ensemble beneath a search, and says what it is worth beside the selected network."""
    from polyarch.cli.metrics import print_metrics
    from polyarch.cli.progress import progress
    from polyarch.errors import PolyarchError
    from polyarch.runs.results import Networks
    from polyarch.runs.run import open_run
    from polyarch.runs.trained import train_members

    if processes() > 1:
        raise PolyarchError("--members are trained in one process; start it without torchrun")
    if folder is None:
        raise PolyarchError("--members are drawn from the belief of a search; give its folder")
    if others:
        raise PolyarchError(
            f"--members are trained beneath {folder} as its search trained weights; leave {others[0]} out"
        )
    run = open_run(folder)
    task = run.task()
    name, split = ("test", task.test) if task.test else ("select", task.select)
    if split is None:
        raise PolyarchError(f"{folder} has no test or validation data, by which networks could be compared")
    try:
        ensemble = train_members(run, count, progress=progress)
    except KeyboardInterrupt:
        last_word("interrupted; the same command goes on where it was")
        raise typer.Exit(130) from None
    assert run.trained is not None
    metrics = Networks(run.trained, run.model(), {"ensemble": ensemble}).evaluate(split)
    if as_json:
        print(json.dumps({"run": str(folder), "members": count, "split": name, "metrics": metrics}))
        return
    where = "on test data" if name == "test" else "on validation data, optimistic"
    rows = {"selected network": metrics["selected"], f"ensemble of {count}": metrics["ensemble"]}
    print_metrics(where, {row: [figures] for row, figures in rows.items()})


def _check_only_out(run: Path | None, inherit: bool, limit: list[str]) -> None:
    """Raises where --resume is told again what a run starts from: it does not start."""
    from polyarch.errors import PolyarchError

    for name, given in (("RUN", run), ("--inherit", inherit), ("--limit", limit)):
        if given:
            raise PolyarchError(
                f"{name} is for a new run, and --resume goes on with the one in --out; leave {name} out"
            )


def _method(recipe: str | None) -> str:
    from polyarch import catalogue
    from polyarch.errors import unknown

    known = {name.removeprefix("standalone-"): name for name in catalogue.METHODS if name.startswith("standalone-")}
    if recipe and recipe not in known:
        raise unknown("recipe", recipe, known)
    return known[recipe] if recipe else "standalone"


def _begin(
    out: Path,
    folder: Path | None,
    arch: str | None,
    recipe: str | None,
    inherit: bool,
    flags: dict[str, Any],
    settings: list[str],
    allow_changed: bool,
) -> Run | list[Run]:
    from polyarch.cli.choices import choose
    from polyarch.cli.progress import progress
    from polyarch.errors import PolyarchError
    from polyarch.runs import search as searching
    from polyarch.runs.options import Compute, Start
    from polyarch.runs.run import open_run

    source = open_run(folder, allow_changed=allow_changed) if folder else None
    if source is None and not (flags["space"] and arch):
        raise PolyarchError("say what to train: --space S --arch TEXT, or the folder of a search")
    if source is None and inherit:
        raise PolyarchError("--inherit takes the weights of a search; give its folder as well")
    if source is not None and flags["space"]:
        raise PolyarchError("--space and the folder of a search: give one of them")
    names, presets = _taken(source, flags)
    presets["method"] = {"architecture": arch or (str(source.architecture) if source else "")}
    if source is not None and inherit:
        presets["method"]["network"] = _form(source)
    chosen = choose(names["space"], _method(recipe), names["data"], settings, presets)
    repeats = 1 if flags["repeats"] is None else flags["repeats"]
    with waiting(f"training: reading {names['data']}"):
        task = chosen.source.task()
    limit = flags["limit"].for_search(chosen.space, chosen.method, repeats) if flags["limit"] else None
    with progress("training") as bar:
        return searching.search(
            chosen.space,
            task,
            chosen.method,
            out=out,
            seed=flags["seed"] or 0,
            repeats=repeats,
            select=chosen.search.selection,
            start=Start(
                prior=chosen.search.prior or None, weights_from=folder if inherit else None, allow_changed=allow_changed
            ),
            compute=Compute(flags["device"] or "auto", time_limit=limit),
            callbacks=[bar, *tensorboard_in(out, flags)],
        )


def _form(run: Run) -> str:
    """The form of network that a run's weights fit."""
    from polyarch.methods.standalone import Standalone

    method = run.config.make_method()
    return method.network if isinstance(method, Standalone) else "search"


def _taken(run: Run | None, flags: dict[str, Any]) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """The names of space and data, and the settings that a search had for them."""
    from polyarch.errors import PolyarchError

    if run is None:
        return {"space": flags["space"], "data": flags["data"] or "digits"}, {}
    presets = {"space": run.config.space["settings"]}
    if flags["data"]:
        return {"space": run.config.space["name"], "data": flags["data"]}, presets
    source = run.config.data["source"]
    if source is None:
        raise PolyarchError(f"the data of {run.folder} came from memory; name some with --data")
    return {"space": run.config.space["name"], "data": source["data"]}, presets | {"data": source["settings"]}
