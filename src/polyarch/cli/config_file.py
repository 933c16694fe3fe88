"""`--config FILE`: a search as a file has it, a run's own config.json or a TOML that says what options would."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from polyarch.errors import PolyarchError, unknown
from polyarch.files import read_json

if TYPE_CHECKING:
    from polyarch.cli.choices import Asked
    from polyarch.runs.config import Config

OPTIONS = {
    **dict.fromkeys(("space", "method", "data", "preset", "baselines"), str),
    **dict.fromkeys(("device", "precision", "belief_from", "table", "column", "time_limit", "price"), str),
    **dict.fromkeys(("seed", "repeats"), int),
    **dict.fromkeys(("no_train", "no_plain"), bool),
    "limit": list,
}
"""What a TOML may say, by the options' names: a dash may stand for every underscore."""
SET = "set"
"""Its table of settings, as `--set` names them: a table within it is a part, or a group."""
KEPT = ("seed", "device", "precision", "belief_from", "table", "column", "limits", "price")
"""What a run's config has that options say, beside names and settings. Its method has the epochs that a time limit left
it: these are repeated, and not the limit."""


@final
@dataclass(frozen=True)
class ConfigFile:
    """What a file says of a search."""

    path: Path
    options: Mapping[str, Any]
    settings: tuple[str, ...] = ()
    """As `--set` takes them: `NAME=VALUE`."""
    values: Mapping[str, Any] | None = None
    """A run's config; None of a TOML."""

    def run(self) -> Config | None:
        """The config of the run that is repeated."""
        from polyarch.runs.config import Config

        return Config.of(self.values, self.path) if self.values is not None else None


def read_config(path: Path) -> ConfigFile:
    """Reads a run's config.json, or a TOML."""
    if path.suffix == ".json":
        values = read_json(path)
        return ConfigFile(path, {name: values[name] for name in KEPT if values.get(name)}, values=values)
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PolyarchError(f"--config {path}: {error.strerror}; give a run's config.json, or a TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolyarchError(f"--config {path} is neither a run's config.json nor a TOML: {error}") from None
    settings = told.pop(SET, {})
    if not isinstance(settings, dict):
        raise PolyarchError(f"{path}: {SET} is a table: write [{SET}], and settings below it")
    options = {name.replace("-", "_"): value for name, value in told.items()}
    for name, value in options.items():
        if name not in OPTIONS:
            raise unknown(f"option in {path}:", name, [*OPTIONS, SET])
        if type(value) is not OPTIONS[name]:
            kind = {str: "a text", int: "a whole number", bool: "true or false", list: "a list of texts"}[OPTIONS[name]]
            raise PolyarchError(f"{path}: {name} is {kind}, not {value!r}")
    if "limit" in options:
        options["limits"] = [str(limit) for limit in options.pop("limit")]
    return ConfigFile(path, options, tuple(_assignments(settings)))


def _assignments(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The settings of a table, as texts that `--set` takes."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _assignments(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={_text(value)}"


def _text(value: Any, between: str = ",") -> str:
    if isinstance(value, list):
        return between.join(_text(one, ":") for one in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def search_of(config: Config) -> Asked:
    """A run's search, by names and settings, every one as it was."""
    from polyarch.cli.choices import Asked

    source = config.data["source"] or {"data": "", "settings": {}}
    if isinstance(config.prior, dict):
        raise PolyarchError("the prior of this run was made in Python; repeat its search there")
    settings = {
        "data": source["settings"],
        "space": config.space["settings"],
        "method": config.method["settings"],
        "search": {"prior": config.prior, "selection": config.select, "fast": config.fast},
    }
    return Asked(config.space_name, config.method["name"], source["data"], settings, config.repeats)
