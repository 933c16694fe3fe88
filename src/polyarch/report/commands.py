"""How to do a search again: from the shell, and in Python."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyarch import catalogue, selection
from polyarch.data.loading import source_for
from polyarch.runs.run import Run


def changed(cls: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ from a class's defaults."""
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}
    return {name: value for name, value in settings.items() if name not in defaults or defaults[name] != value}


def _given(run: Run) -> dict[str, Any]:
    """What else a search was given beside its data, by the names of `search`'s arguments."""
    config = run.config
    given: dict[str, Any] = {"init_from": config.init_from, "table": config.table, "column": config.column}
    given |= {"labels": config.labels, "precision": "" if config.precision == "float32" else config.precision}
    return {name: value for name, value in given.items() if value}


def search_command(run: Run, out: Path, repeats: int = 1, baselines: Sequence[int] = ()) -> str | None:
    """What repeats a search from the shell; None where the data or the prior exist in Python alone."""
    config, source = run.config, run.config.data["source"]
    if source is None or not isinstance(config.prior, str):
        return None
    space, _ = catalogue.find("space", config.space["name"])
    method, _ = catalogue.find("method", config.method["name"])
    words = ["polyarch", "search"]
    words += ["--space", config.space["name"], "--method", config.method["name"], "--data", source["data"]]
    words += ["--out", str(out), "--seed", str(config.seed)]
    words += ["--repeats", str(repeats)] if repeats > 1 else []
    words += ["--baselines", ",".join(map(str, baselines))] if baselines else []
    words += [part for name, value in _given(run).items() for part in (f"--{name.replace('_', '-')}", str(value))]
    usual = selection.rule_for("auto", config.make_space().nested, config.data["examples"]["train"])
    asked = (("prior", config.prior, method.default_prior), ("select", config.select, usual))
    settings = {
        "data": changed(source_for(source["data"]), source["settings"]),
        "space": changed(space, config.space["settings"]),
        "method": changed(method, config.method["settings"]),
        "search": {name: value for name, value, default in asked if value != default},
    }
    for group, values in settings.items():
        for name, value in values.items():
            words += ["--set", f"{group}.{name}={str(value).lower() if isinstance(value, bool) else value}"]
    return _lines(words)


def search_call(run: Run, out: Path, repeats: int = 1) -> str:
    """The same in Python, for data in memory."""
    config = run.config
    made = {}
    for kind, described in (("space", config.space), ("method", config.method)):
        cls, _ = catalogue.find(kind, described["name"])
        values = ", ".join(f"{k}={v!r}" for k, v in changed(cls, described["settings"]).items())
        home = f"pa.{kind}s." if cls.__module__.startswith(f"polyarch.{kind}s.") else ""
        made[kind] = f"{home}{cls.__name__}({values})"
    extra = f", repeats={repeats}" if repeats > 1 else ""
    extra += "".join(f", {name}={value!r}" for name, value in _given(run).items())
    extra += ", prior=prior" if not isinstance(config.prior, str) else f", prior={config.prior!r}"
    return (
        f"pa.search(\n    {made['space']},\n    task,\n    {made['method']},\n"
        f"    out={str(out)!r}, seed={config.seed}{extra}, select={config.select!r},\n)"
    )


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
