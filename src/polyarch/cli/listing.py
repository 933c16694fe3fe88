"""`polyarch list`: what there is, by name."""

from __future__ import annotations

import json
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
    found = _found(settings)
    if as_json:
        print(json.dumps(found))
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for kind, entries in found.items():
        console.print(f"\n{kind}", style="bold")
        for name, entry in entries.items():
            console.print(f"  {name:<26} {entry['about']}")
            for setting, (default, meaning) in entry.get("settings", {}).items():
                console.print(f"      {setting} = {default!r}", style="cyan")
                console.print(f"          {' '.join(meaning.split())}", style="dim")


def _found(settings: bool) -> dict[str, dict[str, Any]]:
    from polyarch import catalogue
    from polyarch.cli.choices import SearchSettings
    from polyarch.data import SOURCES
    from polyarch.settings import settings_of

    def described(cls: type[Any], about: str, preset: dict[str, Any]) -> dict[str, Any]:
        if not settings:
            return {"about": about}
        own = {s.name: (preset.get(s.name, s.default), s.help) for s in settings_of(cls).values()}
        return {"about": about, "settings": own}

    found = {
        f"{kind}s": {
            name: described(catalogue.find(kind, name)[0], entry.about, dict(entry.settings))
            for name, entry in entries.items()
        }
        for kind, entries in catalogue.KINDS.items()
    }
    found["data"] = {name: described(cls, about, {}) for name, (cls, about) in SOURCES.items()}
    if settings:
        found["search"] = {"search": described(SearchSettings, "what every search takes", {})}
    return found
