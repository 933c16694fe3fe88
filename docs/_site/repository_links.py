"""Links of pages to files and folders of the repository lead to pages of the site, which show them.

On a code host such a link leads to the file itself; `files/` of the site has what is linked to, so that it is whole
without a network.
"""

import os
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri

ROOT = Path(__file__).resolve().parents[2]
SHOWN = {".py": "python", ".md": "markdown", ".sh": "bash", ".toml": "toml"}
"""Files of these kinds are shown in a page; others are for programs, and are handed out."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Is called by Sphinx."""
    app.connect("builder-inited", lambda app: setattr(app.env, "linked_paths", set()))
    app.connect("doctree-read", _lead_to_pages, priority=100)  # before Sphinx copies what is to be downloaded
    app.connect("html-collect-pages", _pages)
    return {"parallel_read_safe": False}


def _lead_to_pages(app: Sphinx, doctree: nodes.document) -> None:
    page = Path(app.env.doc2path(app.env.docname))
    links = [*doctree.findall(addnodes.download_reference), *doctree.findall(addnodes.pending_xref)]
    for link in links:
        if link.get("reftype") != "myst" or link["reftarget"] in app.env.found_docs:
            continue
        path = _linked(page, link["reftarget"] + (".md" if link["refdomain"] == "doc" else ""))
        if path and (path.is_dir() or path.suffix in SHOWN):
            app.env.linked_paths.add(path)
            uri = relative_uri(app.builder.get_target_uri(app.env.docname), _name(path) + ".html")
            link.replace_self(nodes.reference("", "", *link.children, internal=True, refuri=uri))


def _linked(page: Path, target: str) -> Path | None:
    """A file or folder of the repository; None where there is none, which Sphinx then says."""
    path = Path(os.path.normpath(page.parent / target))
    return path if path.exists() and path.is_relative_to(ROOT) else None


def _name(path: Path) -> str:
    return f"files/{path.relative_to(ROOT).as_posix()}"


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    for path in sorted(app.env.linked_paths):
        body = _listing(app, path) if path.is_dir() else _code(app, path)
        title = path.relative_to(ROOT).as_posix()
        yield _name(path), {"title": title, "body": f"<h1>{escape(title)}</h1>{body}"}, "page.html"


def _code(app: Sphinx, path: Path) -> str:
    return app.builder.highlighter.highlight_block(path.read_text(), SHOWN[path.suffix])


def _listing(app: Sphinx, folder: Path) -> str:
    """The files of a folder, copied beside its page."""
    rows = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        copy = Path(app.outdir, _name(file))
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        name = file.relative_to(folder).as_posix()
        rows.append(f'<li><a href="{escape(f"{folder.name}/{name}")}">{escape(name)}</a></li>')
    return f"<ul>{''.join(rows)}</ul>"
