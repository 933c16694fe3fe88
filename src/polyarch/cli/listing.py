"""`polyarch list`: what there is, by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from polyarch.cli.options import Json


def list_all(
    settings: Annotated[
        bool, typer.Option("--settings", help="Also every setting, with its default and meaning.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Spaces, methods, data and scores, by the names that other verbs take."""
    from polyarch.settings import plain

    found = _found(settings)
    if as_json:
        print(json.dumps(found, default=plain))
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for kind, entries in found.items():
        console.print(f"\n{kind}", style="bold")
        for name, entry in entries.items():
            console.print(f"  {name:<26} {entry['about']}")
            parts = dict(entry.get("parts", {}))
            for setting, (default, meaning) in entry.get("settings", {}).items():
                for part in [part for part in parts if setting.startswith(f"{part}.")]:
                    console.print(f"      {part}", style="cyan")
                    console.print(f"          {' '.join(parts.pop(part).split())}", style="dim")
                console.print(f"      {setting} = {_shown(default)}", style="cyan")
                console.print(f"          {' '.join(meaning.split())}", style="dim")


def _shown(default: Any) -> str:
    """A default, as --set takes it where Python would write it otherwise."""
    from polyarch.settings import written

    return repr(default) if isinstance(default, str) else written(default)


def _found(settings: bool) -> dict[str, dict[str, Any]]:
    from polyarch import catalogue
    from polyarch.cli.choices import SearchSettings
    from polyarch.data import SOURCES
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
    if settings:
        found["search"] = {"search": described(SearchSettings, "what every search takes", {})}
    return found
