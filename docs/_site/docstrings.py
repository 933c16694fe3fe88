"""Docstrings are written to be read in code; here they become what Sphinx reads: sections and reStructuredText."""

import re

from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring

ENTRY = re.compile(r"    (\w+) {2,}(\S.*)")
"""Of the listing in the docstring of `polyarch`: a name, and what it is."""
CODE = re.compile(r"(`[^`]*`)")
SECTIONED = ("module", "class", "exception", "function", "method")
"""What may have sections. Of attributes, napoleon would take what stands before a colon for their type."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Is called by Sphinx."""
    app.connect("autodoc-process-docstring", _in_restructured_text)
    return {"parallel_read_safe": True}


def _in_restructured_text(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = _with_code(_listing(lines) if name == "polyarch" else lines)
    if what in SECTIONED:
        lines[:] = GoogleDocstring(lines, what=what, name=name, obj=obj).lines()


def _listing(lines: list[str]) -> list[str]:
    """Names become links, what stands over them bold."""
    told: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if entry := ENTRY.fullmatch(line):
            told.append(f"- :py:obj:`~polyarch.{entry[1]}`: {entry[2]}")
        elif line and ENTRY.fullmatch(following):
            told += [f"**{line}**", ""]
        else:
            told.append(line)
    return told


def _with_code(lines: list[str]) -> list[str]:
    """What is indented after an empty line is code; the rest stands for itself, as |a - b| and [n, *shape]."""
    told: list[str] = []
    code, before = False, ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line and not line.startswith(" "):
            code = False
        told.append(line if code else _plain(line))
        if not line and following.startswith("    ") and before and not before.startswith(" ") and not code:
            told += ["::", ""]
            code = True
        before = line or before
    return told


def _plain(line: str) -> str:
    parts = CODE.split(line)
    for k in range(0, len(parts), 2):
        parts[k] = parts[k].replace("|", r"\|")
        if parts[k].count("*") == 1:
            parts[k] = parts[k].replace("*", r"\*")
    return "".join(parts)
