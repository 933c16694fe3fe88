"""`polyarch search`: learn a distribution over architectures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.options import Json, Set

if TYPE_CHECKING:
    from polyarch.runs.run import Run


def search(
    out: Annotated[Path, typer.Option("--out", help="Folder for the run; must not exist, or be empty.")],
    space: Annotated[str | None, typer.Option("--space", help="See `polyarch list`; or package.module:Class.")] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="See `polyarch list`; or package.module:Class.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="A name (see `polyarch list`), or a file or folder.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Every random draw comes from it. [default: 0]")] = None,
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", help="Train so many seeds as one batched computation. [default: 1]"),
    ] = None,
    baselines: Annotated[
        str, typer.Option("--baselines", metavar="D,D,...", help="Also train networks of these fixed depths.")
    ] = "",
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda. [default: auto]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")] = False,
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Learn a distribution over architectures and the weights that go with it, and write a report."""
    _join_ranks()
    from polyarch.cli.progress import watching
    from polyarch.runs import search as searching

    depths = _depths(baselines)
    if resume:
        _check_no_conflict(
            out, settings, space=space, method=method, data=data, seed=seed, repeats=repeats, device=device
        )
        with watching() as watch:
            found = searching.resume(out, watch=watch)
    else:
        from polyarch.cli.choices import choose

        chosen = choose(space or "depth", method or "variational-depth", data or "digits", settings)
        task = chosen.source.task()
        with watching() as watch:
            found = searching.search(
                chosen.space,
                task,
                chosen.method,
                out=out,
                seed=seed or 0,
                repeats=1 if repeats is None else repeats,
                prior=chosen.search.prior or None,
                select=chosen.search.select,
                device=device or "auto",
                watch=watch,
            )
    _train_baselines(out, depths, device or "auto")
    _finish(out, found, as_json)


def _finish(out: Path, found: Run | list[Run], as_json: bool) -> None:
    """Writes the report and says what was found."""
    from polyarch.cli.report import write
    from polyarch.cli.show import show_runs
    from polyarch.training import world

    if world.rank() > 0:
        return
    page = write(out)
    show_runs(out, found if isinstance(found, list) else [found], as_json)
    if not as_json:
        print(f"\nreport: {page}")


def _join_ranks() -> None:
    """Under torchrun, all processes work on one search."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        import torch
        import torch.distributed as dist

        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def _depths(text: str) -> list[int]:
    from polyarch.errors import PolyarchError

    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise PolyarchError(f"--baselines {text}: write depths as whole numbers, such as 1,5,20") from None


def _train_baselines(out: Path, depths: list[int], chosen_device: str) -> None:
    """Fixed depths under the same training as the run in `out`, each in a folder of its own beneath it."""
    from polyarch.cli.progress import watching
    from polyarch.methods.fixed_depth import FixedDepth
    from polyarch.runs import search as searching
    from polyarch.runs.config import Config
    from polyarch.runs.run import open_repeats
    from polyarch.settings import settings_of

    config = Config.read(out)
    task = open_repeats(out)[0].task()
    training = {k: v for k, v in config.method["settings"].items() if k in settings_of(FixedDepth)}
    for depth in depths:
        folder = out / "baselines" / f"depth-{depth}"
        with watching(f"fixed depth {depth}") as watch:
            if folder.exists():
                searching.resume(folder, task=task, watch=watch)
                continue
            searching.search(
                config.make_space(),
                task,
                FixedDepth(**{**training, "depth": depth}),
                out=folder,
                seed=config.seed,
                repeats=config.repeats,
                device=chosen_device,
                watch=watch,
            )


def _check_no_conflict(out: Path, settings: list[str], **given: Any) -> None:
    """A flag beside --resume may repeat what the run was told, not change it."""
    from polyarch import catalogue
    from polyarch.cli.choices import SearchSettings, assign
    from polyarch.data.loading import source_for
    from polyarch.errors import PolyarchError
    from polyarch.runs.config import Config

    config = Config.read(out)
    source = config.data["source"] or {"data": None, "settings": {}}
    known: dict[str, Any] = {
        "space": config.space["name"],
        "method": config.method["name"],
        "data": source["data"],
        "seed": config.seed,
        "repeats": config.repeats,
        "device": config.device,
    }
    for name, value in given.items():
        if value is not None and value != known[name] and not (name == "device" and value == "auto"):
            raise PolyarchError(
                f"--{name} {value} conflicts with the run in {out}, which has {known[name]}; leave it out"
            )
    groups = {
        "data": source_for(source["data"]) if source["data"] else SearchSettings,
        "space": catalogue.find("space", config.space["name"])[0],
        "method": catalogue.find("method", config.method["name"])[0],
        "search": SearchSettings,
    }
    held = {
        "data": source["settings"],
        "space": config.space["settings"],
        "method": config.method["settings"],
        "search": {"prior": config.prior, "select": config.select},
    }
    for group, values in assign(groups, settings).items():
        for name, value in values.items():
            if held[group].get(name) != value:
                raise PolyarchError(
                    f"--set {name}={value} conflicts with the run in {out}, which has {held[group].get(name)}; leave it out"
                )
