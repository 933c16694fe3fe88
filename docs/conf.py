"""The documentation as a site: `make docs` builds it from the pages as they are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_site"))

from polyarch.version import __version__

project = "polyarch"
author = "the polyarch authors"
project_copyright = "2026, the polyarch authors"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "docstrings",
    "index_tree",
    "repository_links",
]
exclude_patterns = ["_site", "skeletons"]

myst_heading_anchors = 4  # those that a code host gives to headings
suppress_warnings = ["myst.header"]  # pages of results go from their title to tables of the third level

default_role = "py:obj"  # `name` in a docstring: a link where there is something of that name, else code
autoclass_content = "both"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88

html_theme = "furo"  # readable on telephones and in the dark, with few dependencies, and no file from elsewhere
html_title = "polyarch"
html_static_path = ["_site/static"]
html_css_files = ["figures.css"]
html_show_sphinx = False
html_copy_source = False
