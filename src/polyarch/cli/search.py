"""`polyarch search`: learn a distribution over architectures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.baselines import already_begun, baselines_of, train_baselines
from polyarch.cli.config_file import read_config
from polyarch.cli.options import AllowChanged, Json, Limits, Set, Tensorboard, TimeLimitText
from polyarch.cli.saying import is_first, on_terminal, processes, tell, warn
from polyarch.cli.time_limit import TimeLimit
from polyarch.cli.waiting import is_large, spinning, waiting

if TYPE_CHECKING:
    from polyarch.callbacks import Callback
    from polyarch.cli.choices import Choices
    from polyarch.data.task import Task
    from polyarch.runs.config import Config
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
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="A published search (see `polyarch list`), which other options may change."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Every random draw comes from it. [default: 0]")] = None,
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", help="Train so many seeds as one batched computation. [default: the preset's, or 1]"),
    ] = None,
    baselines: Annotated[
        str,
        typer.Option(
            "--baselines",
            metavar="O,O,...",
            help="Of a nested space: also train the networks of these options alone, such as depths 1,5,20.",
        ),
    ] = "",
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or cuda:N. [default: auto]")] = None,
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="float32, or bfloat16 on a CUDA device. [default: float32]"),
    ] = None,
    belief_from: Annotated[
        Path | None, typer.Option("--belief-from", metavar="RUN", help="Start from the belief that another run learnt.")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="NAME_OR_FILE",
            help="Ground truth (.npz), or a model that predicts it (.onnx), to watch the search by: every evaluation "
            "also says what it has for the current mode of belief. Nothing is ever chosen by it.",
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option("--column", metavar="NAME", help="Of --table. [default: the only one of validation accuracy]"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A run's config.json, whose search is repeated, or a TOML with options by name and settings under "
            "[set]. Other options here have the last word.",
        ),
    ] = None,
    limit: Limits = [],  # noqa: B006
    price: Annotated[
        str | None,
        typer.Option(
            "--price",
            metavar="NAME=NATS/UNIT",
            help="What cost is worth in fit while searching: nats of log-likelihood per example for so many parameters "
            "or macs, such as parameters=0.01/10k.",
        ),
    ] = None,
    time_limit: TimeLimitText = None,
    no_train: Annotated[
        bool,
        typer.Option(
            "--no-train",
            help="Where networks share weights: leave the selected one as it is, instead of training it alone.",
        ),
    ] = False,
    no_plain: Annotated[
        bool,
        typer.Option(
            "--no-plain",
            help="Leave out the plain models that are fitted at the end to compare with: logistic regression, boosted "
            "trees, a plain network.",
        ),
    ] = False,
    tensorboard: Tensorboard = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")] = False,
    settings: Set = [],  # noqa: B006
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Learn a distribution over architectures, train the network that it selects, and write a report."""
    begun = time.monotonic()
    flags: dict[str, Any] = {"space": space, "method": method, "data": data, "seed": seed, "repeats": repeats}
    flags |= {"device": device, "precision": precision, "preset": preset, "time_limit": time_limit}
    flags |= {"belief_from": str(belief_from.resolve()) if belief_from else None, "table": table, "column": column}
    flags |= {"limits": limit, "price": price}
    flags |= {"baselines": baselines, "no_train": no_train, "no_plain": no_plain}
    flags["config"] = told = read_config(config) if config else None
    if told:
        flags |= {name: value for name, value in told.options.items() if flags[name] in (None, "", []) or value is True}
        settings = [*told.settings, *settings]
        baselines, no_train, no_plain = flags["baselines"], flags["no_train"], flags["no_plain"]
    flags["tensorboard"] = tensorboard
    again = f" --baselines {baselines}" if baselines else ""
    again += " --no-train" * no_train + " --no-plain" * no_plain
    with interruptible(out, flags["device"], again):
        if data and is_large(data) and not on_terminal():
            tell(f"search: {data} is large; reading it takes a while")
        with spinning("polyarch: starting"):  # torch takes seconds to import
            from polyarch.cli.progress import Followed
            from polyarch.errors import PolyarchError
        begin_or_go_on = go_on if resume else _begin
        options = [part.strip() for part in baselines.split(",") if part.strip()]
        if baselines and flags["time_limit"]:
            raise PolyarchError("--time-limit is for one search, and --baselines are others; leave one of them out")
        flags["followed"] = Followed(trains=not no_train, plain=not no_plain)
        flags["limit"] = TimeLimit.of(flags["time_limit"], begun, trains=not no_train, plain=not no_plain)
        found = begin_or_go_on(out, flags, settings, options, allow_changed)
        runs = found if isinstance(found, list) else [found]
        if not no_train:
            _train_selected(out, runs, tensorboard)
        if not is_first():
            return
        if not no_plain:
            _fit_plain_models(runs)
        finish(out, found, as_json)


@contextmanager
def interruptible(out: Path, device: str | None, again: str = "") -> Iterator[None]:
    """Joins the other processes, if any, and says how to go on where it is ended: with the options `again`, too."""
    from polyarch.cli.ranks import Terminated, joined, last_word

    try:
        with joined(device):
            yield
    except KeyboardInterrupt:
        last_word(f"interrupted; {_how_to_go_on(out, again)}")
        raise typer.Exit(130) from None
    except Exception as error:
        from polyarch.distributed import Lost
        from polyarch.errors import PolyarchError

        if isinstance(error, Lost | Terminated):
            raise PolyarchError(f"{error}; {_how_to_go_on(out, again)}") from error
        raise


def _begin(
    out: Path, flags: dict[str, Any], settings: list[str], options: list[str], allow_changed: bool
) -> Run | list[Run]:
    from polyarch import distributed
    from polyarch.cli.choices import asked, choose, published
    from polyarch.cli.config_file import search_of
    from polyarch.cli.progress import Says, progress
    from polyarch.errors import PolyarchError
    from polyarch.runs import search as searching
    from polyarch.runs.options import Compute, Select, Start
    from polyarch.spaces.limits import Price, limits_of

    config = flags["config"].run() if flags["config"] else None
    if config and flags["preset"]:
        raise PolyarchError("--preset, and --config with what a run was; give one of them")
    begins = search_of(config) if config else published(flags["preset"]) if flags["preset"] else None
    names = asked(begins, flags["space"], flags["method"], flags["data"])
    if not names.data:
        raise PolyarchError("the data of this run came from memory; name some with --data, or search in Python")
    limits, price = limits_of(flags["limits"]), Price.of(flags["price"]) if flags["price"] else ""
    chosen = choose(names.space, names.method, names.data, settings, names.settings)
    repeats = (names.repeats or chosen.repeats) if flags["repeats"] is None else flags["repeats"]
    truth, board = _table_truth(flags["table"], flags["column"]), tensorboard_in(out, flags)
    if distributed.rank() == 0:
        searching.check_free(out)
    with waiting(f"search: reading {names.data}"):
        task, space, method, by_rule = chosen.prepared(deep=bool(options))
    weights_from = _check_repeated(config, task, chosen, allow_changed) if config else ""
    baselines = baselines_of(options, space, method)
    limit = flags["limit"].for_search(space, method, repeats) if flags["limit"] else None
    precision = flags["precision"] or "float32"
    with progress(followed=flags["followed"]) as bar:
        found = searching.search(
            space,
            task,
            method,
            out=out,
            seed=flags["seed"] or 0,
            repeats=repeats,
            select=Select(chosen.search.selection, limits),
            start=Start(
                prior=chosen.search.prior or None,
                price=price,
                belief_from=flags["belief_from"],
                weights_from=weights_from or None,
                allow_changed=allow_changed,
            ),
            compute=Compute(flags["device"] or "auto", precision, chosen.search.fast, limit),
            callbacks=[*truth, bar, *([Says(bar, str(by_rule))] if by_rule else []), *board],
        )
    train_baselines(out, baselines, allow_changed)
    return found


def _check_repeated(config: Config, task: Task, chosen: Choices, allow_changed: bool) -> str:
    """Raises where a run cannot be repeated as it was; gives the run whose weights that one started from."""
    from polyarch.runs.config import describe_method
    from polyarch.runs.run import check_same_data

    if not allow_changed:
        config.check_code()
    source = chosen.source
    if config.data["source"] == {"data": source.text, "settings": source.settings()}:
        check_same_data(config, task)
    return config.weights_from if describe_method(chosen.method)["name"] == config.method["name"] else ""


def tensorboard_in(out: Path, flags: Mapping[str, Any]) -> list[Callback]:
    """What writes for TensorBoard into a run's folder, where that is asked for."""
    from polyarch.callbacks import TensorBoard

    return [TensorBoard(out / "tensorboard")] if flags["tensorboard"] else []


def _table_truth(table: str | None, column: str | None) -> list[Callback]:
    from polyarch.errors import PolyarchError
    from polyarch.runs.table_truth import TableTruth

    if column and not table:
        raise PolyarchError(f"column {column!r} is of no table; name the table as well")
    return [TableTruth(table, column)] if table else []


def go_on(
    out: Path, flags: dict[str, Any], settings: list[str], options: list[str], allow_changed: bool
) -> Run | list[Run]:
    """Resumes the run in a folder; a flag may repeat what it was told, not change it."""
    from polyarch.cli.progress import progress
    from polyarch.runs import search as searching
    from polyarch.runs.config import Config

    config = Config.read(out)
    _check_no_conflict(out, config, flags, settings)
    space = config.make_space()
    baselines = baselines_of([*options, *already_begun(out, space)], space, config.make_method())
    with progress() as bar:
        callbacks = [bar, *tensorboard_in(out, flags)]
        found = searching.resume(out, callbacks=callbacks, allow_changed=allow_changed)
    train_baselines(out, baselines, allow_changed)
    return found


def finish(out: Path, found: Run | list[Run], as_json: bool) -> None:
    """Writes the report of a search and says what was found; `found` have their data at hand."""
    from polyarch import distributed
    from polyarch.cli.report import write
    from polyarch.cli.show import show_runs

    if distributed.rank() > 0:
        return
    runs = found if isinstance(found, list) else [found]
    page = write(out, runs=runs, allow_changed=True)  # else nothing had been found
    show_runs(out, runs, as_json)
    if not as_json:
        print(f"\nreport: {page}")


def _how_to_go_on(out: Path, again: str) -> str:
    from polyarch.runs.config import CONFIG
    from polyarch.runs.run import resume_command

    if not (out / CONFIG).exists():
        return "nothing had been learnt yet, so start again"
    return f"go on with `{resume_command(out)}{again}`{', under torchrun or without' if processes() > 1 else ''}"


def _train_selected(out: Path, runs: list[Run], tensorboard: bool) -> None:
    """Trains the selected network of every repeat alone, or goes on with that, where its weights are those of many."""
    from polyarch.cli.progress import progress
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import TRAINED, resume_command
    from polyarch.runs.timing import NoTime
    from polyarch.runs.trained import train_selected

    for run in runs:
        if not run.shares_weights or run.trained:
            continue
        with progress(f"training seed {run.seed} alone" if len(runs) > 1 else "training alone") as bar:
            try:
                board = tensorboard_in(run.folder / TRAINED, {"tensorboard": tensorboard})
                train_selected(run, callbacks=[bar, *board])
            except NoTime as error:
                warn(f"what was selected was not trained alone: {error}")
            except PolyarchError as error:
                raise PolyarchError(
                    f"the search is finished, and what it selected could not be trained: {error}; to have the search "
                    f"as it is, run `{resume_command(out)} --no-train`"
                ) from None


def _fit_plain_models(runs: list[Run]) -> None:
    """Fits plain models to compare with, unless they were compared before with what the run hands over now."""
    from polyarch.runs.plain import fit_plain_models, read_plain

    known = [(run, read_plain(run.folder)) for run in runs]
    if any(not plain or plain.trained != bool(run.trained) for run, plain in known):
        fit_plain_models(runs, tell=lambda doing: tell(f"plain models: {doing}"))


def _check_no_conflict(out: Path, config: Config, flags: dict[str, Any], settings: list[str]) -> None:
    """A flag beside --resume may repeat what the run was told, not change it."""
    from polyarch.cli.choices import SearchSettings, assign, find
    from polyarch.data.loading import source_for, source_from
    from polyarch.distributions.selection import rule_for
    from polyarch.errors import PolyarchError
    from polyarch.settings import dotted, written
    from polyarch.spaces.limits import Price, limits_of
    from polyarch.tables import find_table

    if flags.get("config"):
        raise PolyarchError("--config is for a new run, and --resume goes on with the one in --out; leave it out")
    if flags.get("preset"):
        raise PolyarchError("--preset is for a new run, and --resume goes on with the one in --out; leave it out")

    if flags.get("time_limit"):
        raise PolyarchError(
            "--time-limit is for a new run, and --resume goes on with the one in --out, which keeps its own; leave it "
            "out"
        )

    def check(flag: str, asked: Any, has: Any) -> None:
        if asked != has:
            held = "none" if has == "" else has
            raise PolyarchError(f"{flag} conflicts with the run in {out}, which has {held}; leave it out")

    for name in ("seed", "repeats", "device", "precision", "belief_from", "column"):
        if flags.get(name) not in (None, "auto"):
            check(f"--{name.replace('_', '-')} {flags[name]}", flags[name], getattr(config, name))
    if flags.get("limits"):
        asked_for = [str(limit) for limit in limits_of(flags["limits"])]
        check(f"--limit {' --limit '.join(asked_for)}", asked_for, config.limits or "")
    if flags.get("price"):
        price = str(Price.of(flags["price"]))
        check(f"--price {price}", price, config.price)
    if flags.get("table"):
        check(f"--table {flags['table']}", str(find_table(flags["table"]).resolve()), config.table)
    source = config.data["source"] or {"data": None, "settings": {}}
    if flags["data"]:
        check(f"--data {flags['data']}", source_from(flags["data"], {}).text, source["data"])

    described = {"space": config.space, "method": config.method}
    classes = {kind: find(kind, own["name"])[0] for kind, own in described.items()}
    groups = {**classes, "search": SearchSettings}
    if source["data"]:
        groups["data"] = source_for(source["data"])
    asked = {group: dotted(groups[group], values) for group, values in assign(groups, settings).items()}
    for kind, own in described.items():
        if flags[kind]:
            named, preset = find(kind, flags[kind])
            check(f"--{kind} {flags[kind]}", own["name"] if named is classes[kind] else None, own["name"])
            asked[kind] = dotted(named, preset) | asked[kind]
    asked["search"].pop("by_data", None)  # what it led to is among the settings
    if "selection" in asked["search"]:  # a run keeps what `auto` stood for
        asked["search"]["selection"] = rule_for(
            asked["search"]["selection"], config.make_space().nested, config.data["examples"]
        )
    if asked.get("data"):  # a source spells paths out
        told = dotted(groups["data"], source_from(source["data"], asked["data"]).settings())
        asked["data"] = {name: told[name] for name in asked["data"]}

    held = {group: dotted(groups[group], own["settings"]) for group, own in described.items()}
    held |= {"search": {"prior": config.prior, "selection": config.select, "fast": config.fast}}
    held |= {"data": dotted(groups["data"], source["settings"])} if source["data"] else {}
    for group, values in asked.items():
        for name, value in values.items():
            check(f"{name}={written(value)}", value, held[group].get(name))
