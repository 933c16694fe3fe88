"""How to do a search again: from the shell, and in Python."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyarch import catalogue
from polyarch.data.loading import source_for
from polyarch.distributions import selection
from polyarch.runs.options import Compute
from polyarch.runs.run import Run
from polyarch.settings import dotted, make, settings_of, written
from polyarch.spaces.factory import is_held


def changed(cls: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ from a class's defaults, by dotted name."""
    defaults = {setting.name: setting.default for setting in settings_of(cls).values()}
    told = dotted(cls, settings)
    return {name: value for name, value in told.items() if name not in defaults or defaults[name] != value}


def _options(run: Run) -> dict[str, Any]:
    """What else a search was given beside its data, by the names of the command line's options."""
    config = run.config
    given: dict[str, Any] = {"belief-from": config.belief_from, "table": config.table, "column": config.column}
    given |= {"precision": "" if config.precision == "float32" else config.precision, "price": config.price}
    return {name: value for name, value in given.items() if value}


def _arguments(run: Run) -> dict[str, str]:
    """The same as arguments of `search`, written in Python; the prior always, since a method's own may change."""
    config = run.config
    start = {"prior": repr(config.prior) if isinstance(config.prior, str) else "prior"}
    start |= {"price": repr(config.price)} if config.price else {}
    start |= {"belief_from": repr(config.belief_from)} if config.belief_from else {}
    given = {"start": f"pa.Start({', '.join(f'{name}={value}' for name, value in start.items())})"}
    compute = {"precision": config.precision, "fast": config.fast}
    told = ", ".join(f"{name}={value!r}" for name, value in compute.items() if value != getattr(Compute(), name))
    given |= {"compute": f"pa.Compute({told})"} if told else {}
    given |= {"callbacks": f"[pa.TableTruth({config.table!r}, {config.column!r})]"} if config.table else {}
    return given


def search_command(run: Run, out: Path, repeats: int = 1, baselines: Sequence[int] = ()) -> str | None:
    """What repeats a search from the shell; None where data, prior or networks exist in Python alone."""
    config, source = run.config, run.config.data["source"]
    if source is None or not isinstance(config.prior, str) or _is_object(config.space["settings"].get("factory")):
        return None
    space, method = (
        catalogue.find("space", config.space["name"])[0],
        catalogue.find("method", config.method["name"])[0],
    )
    words = ["polyarch", "search"]
    words += ["--space", config.space_name, "--method", config.method["name"], "--data", source["data"]]
    words += ["--out", str(out), "--seed", str(config.seed)]
    words += ["--repeats", str(repeats)] if repeats > 1 else []
    words += ["--baselines", ",".join(map(str, baselines))] if baselines else []
    words += [part for name, value in _options(run).items() for part in (f"--{name}", str(value))]
    words += [part for limit in config.limits for part in ("--limit", limit)]
    usual = selection.rule_for("auto", config.make_space().nested, config.data["examples"])
    prior = config.make_method().prior(config.make_space()) or "uniform"
    own = changed(space, config.space["settings"])
    settings = {
        "data": changed(source_for(source["data"]), source["settings"]),
        "space": {name: value for name, value in own.items() if name in settings_of(space)},  # --space has the others
        "method": changed(method, config.method["settings"]),
        "search": {
            name: value
            for name, value, default in (
                ("prior", config.prior, prior),
                ("selection", config.select, usual),
                ("fast", config.fast, True),
            )
            if value != default
        },
    }
    for room, values in settings.items():
        for name, value in values.items():
            words += ["--set", f"{room}.{name}={written(value)}"]
    words += ["--no-train"] if run.shares_weights and not run.trained else []  # last, since it has no value
    return _lines(words)


def search_call(run: Run, out: Path, repeats: int = 1) -> str:
    """The same in Python, for data in memory."""
    config = run.config
    made = {}
    for kind, described in (("space", config.space), ("method", config.method)):
        cls, _ = catalogue.find(kind, described["name"])
        held = make(cls, described["settings"])
        names = dict.fromkeys(name.partition(".")[0] for name in changed(cls, described["settings"]))
        values = ", ".join(f"{name}={_in_python(getattr(held, name))}" for name in names)
        home = f"pa.{kind}s." if cls.__module__.startswith(f"polyarch.{kind}s.") else ""
        made[kind] = f"{home}{cls.__name__}({values})"
    extra = f", repeats={repeats}" if repeats > 1 else ""
    extra += "".join(f", {name}={value}" for name, value in _arguments(run).items())
    rule = f"pa.Select({config.select!r}, {config.limits!r})" if config.limits else repr(config.select)
    return (
        f"pa.search(\n    {made['space']},\n    task,\n    {made['method']},\n"
        f"    out={str(out)!r}, seed={config.seed}{extra}, select={rule},\n)"
    )


def _is_object(factory: str | None) -> bool:
    """Whether networks are made by what no text stands for."""
    return factory is not None and is_held(factory)


def _in_python(value: Any) -> str:
    """A setting as Python has it; dots where that was an object."""
    return "..." if isinstance(value, str) and is_held(value) else repr(value)


def _lines(parts: Sequence[str], wide: int = 100) -> str:
    """A command on as many lines as it needs, an option and its value together."""
    pairs = [parts[:2]] + [parts[k : k + 2] for k in range(2, len(parts), 2)]
    lines = [""]
    for pair in pairs:
        text = shlex.join(pair)
        if lines[-1] and len(lines[-1]) + len(text) > wide:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + text
    return " \\\n  ".join(lines)
