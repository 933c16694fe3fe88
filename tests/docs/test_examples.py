"""What the docs show is so: marked blocks run, links lead somewhere, tables of settings are those of the code."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from polyarch.cli.choices import SearchSettings
from polyarch.data.files import Csv, ImageFolder, Npz
from polyarch.methods import FixedDepth, VariationalDepth
from polyarch.settings import settings_of
from polyarch.spaces import ResidualDepth

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")])
MARK = "<!-- run -->"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass
class Block:
    language: str
    code: str
    line: int
    marked: bool


def blocks_of(text):
    return [
        Block(m[1], m[2], text[: m.start()].count("\n") + 1, text[: m.start()].rstrip().endswith(MARK))
        for m in FENCE.finditer(text)
    ]


def name_of(page):
    return page.relative_to(DOCS).as_posix()


def marked_blocks(page):
    return [block for block in blocks_of(page.read_text()) if block.marked]


SLOW = {
    "compare.md",
    "data-parallel.md",
    "depth.md",
    "diagnostics.md",
    "export.md",
    "semi-supervised.md",
    "tutorials/own-data.md",
    "uncertainty.md",
}
"""Their searches are those of a first look at the library, not of a test; or they start many processes."""
NEEDS = {"export.md": ("onnxscript", "onnxruntime")}
"""Optional packages, by page."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.slow] if name_of(p) in SLOW else []) for p in PAGES if marked_blocks(p)],
    ids=name_of,
)
def test_marked_blocks_run(page, tmp_path, monkeypatch, skeletons):
    """In order, in an empty folder with the skeletons under the names that the docs copy them to."""
    for package in NEEDS.get(page.name, ()):
        pytest.importorskip(package)
    for skeleton in skeletons.glob("*.py"):
        shutil.copy(skeleton, tmp_path / f"my_{skeleton.name}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"])
    names = {"__name__": "__main__"}
    try:
        for block in marked_blocks(page):
            if block.language == "python":
                # Empty lines in front, so that a traceback names the line of the page.
                exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
            else:
                assert block.language == "sh", f"{page.name}:{block.line}: cannot run {block.language!r}"
                done = subprocess.run(["bash", "-ec", block.code], capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{page.name}:{block.line}\n{done.stdout}\n{done.stderr}"
    finally:
        for skeleton in skeletons.glob("*.py"):
            sys.modules.pop(f"my_{skeleton.stem}", None)


def test_every_page_with_code_is_run():
    run = {name_of(page) for page in PAGES if marked_blocks(page)}
    assert {"add-a-method.md", "add-a-score.md", "add-a-space.md", "depth.md"} <= run
    assert {f"tutorials/{page.name}" for page in DOCS.glob("tutorials/*.md")} <= run


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {link}, but there is no such heading"


def anchors(page):
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_settings_of_the_depth_page_are_those_of_the_code():
    rows = re.findall(r"^\| `([\w.]+)` \| `([^`]*)` \|", (DOCS / "depth.md").read_text(), re.MULTILINE)
    told = dict(rows)
    assert len(told) == len(rows), "a setting has two rows"
    classes = (ResidualDepth, VariationalDepth, FixedDepth, SearchSettings, Npz, Csv, ImageFolder)
    real = {name: repr(setting.default) for cls in classes for name, setting in settings_of(cls).items()}
    assert told == real
