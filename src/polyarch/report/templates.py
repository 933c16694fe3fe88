"""Fills in the templates of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


def render(template: str, context: dict[str, Any]) -> str:
    """A template's text with values for all its names, which are escaped."""
    return _TEMPLATES.get_template(template).render(context)
