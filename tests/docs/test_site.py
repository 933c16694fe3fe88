"""The site is built without a warning and without a network, and has a page for all that `dir(polyarch)` lists."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import polyarch as pa

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_every_package_has_a_page_of_reference():
    packages = {name for name in dir(pa) if isinstance(getattr(pa, name), ModuleType)}
    assert {page.stem for page in (DOCS / "api").glob("*.rst")} == {"polyarch", *packages}


def test_the_index_leads_to_every_page():
    pages = {page.relative_to(DOCS).as_posix() for ending in ("md", "rst") for page in DOCS.rglob(f"*.{ending}")}
    linked = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", (DOCS / "index.md").read_text(), re.MULTILINE)
    assert {link for link in linked if not link.startswith("..")} == pages - {"index.md"}


@pytest.mark.slow
def test_the_site_is_built(tmp_path):
    pytest.importorskip("furo", reason="the site needs polyarch[docs]")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--doctree-dir", tmp_path / "trees"]
    done = subprocess.run([*command, DOCS, site], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    pages = {page.relative_to(site).as_posix(): page.read_text() for page in site.rglob("*.html")}

    # What is loaded to show a page is in the site.
    loaded = re.compile(r"""<(script|img|source)[^>]*\ssrc="(\w+:)?//|<link[^>]*"stylesheet"[^>]*href="(\w+:)?//""")
    assert [name for name, text in pages.items() if loaded.search(text)] == []

    # Links between pages, with their anchors, and to files and folders of the repository lead somewhere.
    for name, text in pages.items():
        for link in re.findall(r'<a [^>]*href="([^"#:]+)(#[^"]*)?"', text):
            target = os.path.normpath(os.path.join(os.path.dirname(name), link[0]))
            assert (site / target).exists(), f"{name} links to {link[0]}"
            if link[1] and target in pages:
                assert f'id="{link[1][1:]}"' in pages[target], f"{name} links to {link[0]}{link[1]}"
    assert "files/src/polyarch/catalogue.py.html" in pages
    assert "files/docs/results/depth.html" in pages
    assert (site / "files/docs/results/depth/fig2.svg").exists()

    # The reference has what is public, under the name that users write, and nothing else.
    reference = "".join(text for name, text in pages.items() if name.startswith("api/"))
    told = set(re.findall(r'<dt class="sig sig-object py" id="(polyarch\.[\w.]+)"', reference))
    assert {"polyarch.search", "polyarch.Run.distribution", "polyarch.methods.Parsec", "polyarch.data.load"} <= told
    assert {name for name in told if "._" in name} == set()


def test_the_citation_is_of_this_version():
    assert f"\nversion: {pa.__version__}\n" in (ROOT / "CITATION.cff").read_text()
