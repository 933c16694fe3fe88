"""`polyarch list`: what there is, by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.options import Json

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST = 30
"""Characters of a line that a description has at least."""


def list_all(
    name: Annotated[
        str | None, typer.Argument(help="One of them alone, such as darts, with its settings.", show_default=False)
    ] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="Also every setting, with its default and meaning.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Spaces, methods, data, scores and published searches, by the names that other verbs take."""
    from polyarch.settings import plain

    found = _found(settings or name is not None)
    if name is not None:
        found = _of_name(found, name)
    if as_json:
        print(json.dumps(found, default=plain))
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for kind, entries in found.items():
        console.print(f"\n{kind}", style="bold")
        width = min(max(len(name) for name in entries), 36)
        for name, entry in entries.items():
            _print_hanging(console, f"  {name:<{width}}  ", entry["about"])
            (_print_published if kind == "presets" else _print_settings)(console, entry)


def _of_name(found: dict[str, dict[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    """Whatever has a name: `darts` is a space and a method, and `csv` or `people.csv` mean `*.csv`."""
    from polyarch.errors import unknown

    named = {
        kind: {known: entry for known, entry in entries.items() if _means(name, known)}
        for kind, entries in found.items()
    }
    if not any(named.values()):
        raise unknown("name", name, sorted({known for entries in found.values() for known in entries}))
    return {kind: entries for kind, entries in named.items() if entries}


def _means(name: str, known: str) -> bool:
    """Whether a name is a known one, or fits a pattern of paths."""
    patterns = [name.lower(), f".{name.lower()}"] if "*" in known else []
    return name == known or any(fnmatchcase(text, known) for text in patterns)


def _print_hanging(console: Console, head: str, text: str, style: str = "") -> None:
    """A text to the right of its head, which is as long as the lines that follow are indented."""
    lines = wrap(" ".join(text.split()), max(console.width - len(head), NARROWEST), break_on_hyphens=False) or [""]
    for start, line in zip([head] + [" " * len(head)] * len(lines), lines, strict=False):
        console.print(f"{start}{line}", style=style, soft_wrap=True)


def _print_settings(console: Console, entry: Mapping[str, Any]) -> None:
    """Every setting with its default, and under it what it means."""
    parts = dict(entry.get("parts", {}))
    for setting, (default, meaning) in entry.get("settings", {}).items():
        for part in [part for part in parts if setting.startswith(f"{part}.")]:
            console.print(f"      {part}", style="cyan")
            _print_hanging(console, " " * 10, parts.pop(part), "dim")
        console.print(f"      {setting} = {_shown(default)}", style="cyan", soft_wrap=True)
        _print_hanging(console, " " * 10, meaning, "dim")


def _print_published(console: Console, entry: Mapping[str, Any]) -> None:
    """What a published search stands for: its settings by their source."""
    from rich.padding import Padding

    from polyarch.settings import written

    for word in ("means", "then"):
        if word in entry:
            console.print(f"      {word}: {entry[word]}", style="cyan", soft_wrap=True)
    by_source: dict[str, list[str]] = {}
    for setting, (value, source) in entry.get("settings", {}).items():
        by_source.setdefault(source, []).append(f"{setting}={written(value)}")
    for source, settings in by_source.items():
        console.print(f"      {source}:", style="cyan")
        console.print(Padding("  ".join(settings), (0, 0, 0, 10)), style="dim")


def _shown(default: Any) -> str:
    """A default, as --set takes it where Python would write it otherwise."""
    from polyarch.settings import written

    return repr(default) if isinstance(default, str) else written(default)


def _found(settings: bool) -> dict[str, dict[str, Any]]:
    from polyarch import catalogue
    from polyarch.cli.choices import SearchSettings
    from polyarch.data import SOURCES
    from polyarch.presets import PRESETS
    from polyarch.settings import dotted, parts_of, settings_of

    def described(cls: type[Any], about: str, preset: Mapping[str, Any]) -> dict[str, Any]:
        if not settings:
            return {"about": about}
        told = dotted(cls, preset)
        own = {s.name: (told.get(s.name, s.default), s.help) for s in settings_of(cls).values()}
        parts = {part.name: part.help for part in parts_of(cls).values()}
        return {"about": about, "settings": own} | ({"parts": parts} if parts else {})

    found = {
        f"{kind}s": {
            name: described(catalogue.find(kind, name)[0], entry.about, entry.settings)
            for name, entry in entries.items()
        }
        for kind, entries in catalogue.KINDS.items()
    }
    found["data"] = {name: described(cls, about, {}) for name, (cls, about) in SOURCES.items()}
    found["presets"] = {}
    for name, preset in PRESETS.items():
        parts = f"--space {preset.space} --method {preset.method} --data {preset.data} --repeats {preset.repeats}"
        own: dict[str, Any] = {"about": f"{preset.paper}: {preset.about}"}
        if settings:
            own |= {"means": parts, "settings": preset.settings} | ({"then": preset.then} if preset.then else {})
        found["presets"][name] = own
    if settings:
        found["search"] = {"search": described(SearchSettings, "what every search takes", {})}
    return found
