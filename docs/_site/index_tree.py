"""The site's navigation is the index page itself: its headings are captions, the links of its lists the pages."""

import re

from sphinx.application import Sphinx

LINK = re.compile(r"^- \[([^\]]+)\]\(([^):#]+)\.(?:md|rst)\)", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    """Is called by Sphinx."""
    app.connect("source-read", _add_trees)
    return {"parallel_read_safe": True}


def _add_trees(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname != "index":
        return
    trees = []
    for section in source[0].split("\n## ")[1:]:
        pages = [f"{title} <{page}>" for title, page in LINK.findall(section) if not page.startswith("..")]
        if pages:
            trees += ["```{toctree}", ":hidden:", f":caption: {section.splitlines()[0]}", "", *pages, "```", ""]
    source[0] += "\n\n" + "\n".join(trees)
