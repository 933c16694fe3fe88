"""The page about a comparison: what it says, and that names do no harm in it."""

import html
import re
from dataclasses import asdict, replace

import pytest
import torch
from browser import Browser, find_browser
from looking import EYES

import polyarch as pa
from polyarch.files import write_json
from polyarch.report import write_comparison
from polyarch.runs.compare import begin
from polyarch.runs.examples import COMPARISON
from polyarch.runs.grid import FAILED, RUNS, Entry, Grid, Question
from polyarch.runs.standings import Comparison
from polyarch.runs.workers import work

HOSTILE = "<script>alert('x')</script> & \"more\""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    before = torch.get_num_threads()
    home = tmp_path_factory.mktemp("comparison") / "<b>it</b>"
    method = pa.methods.VariationalDepth(epochs=2, batch_size=20)
    entries = [Entry(HOSTILE, "depth", pa.spaces.ResidualDepth(max_depth=2, width=4), method)]
    task = pa.data.load("spirals", points=60, test_points=40, select=0.3)
    begin(home, Question(tuple(entries), (0, 1)), lambda: replace(task, name=HOSTILE), "spirals")
    work(home)
    torch.set_num_threads(before)
    return home


def test_the_page(folder):
    found = Comparison(folder)
    path = write_comparison(found)
    text = path.read_text(encoding="utf-8")
    assert path == folder / "comparison.html"
    assert not re.search(r"https?://|@import|<script|<link|<iframe|<b>it", text)
    assert set(re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text)) == set()
    assert re.findall(r'<a href="#(\w+)">', text) == re.findall(r'<section id="(\w+)">', text)
    assert not re.search(r"\b(nan|None|NaN|inf)\b", re.sub(r"<(svg|pre).*?</\1>", "", text, flags=re.S))
    shown = html.unescape(text)
    assert HOSTILE in shown
    for row in found.rows:
        values = [100 * value for value in row.values("accuracy")]
        assert f"{sum(values) / 2:.1f}\u202f±\u202f" in text
        assert row.entrant.about in shown
    assert len(re.findall(r'<tr class="baseline">', text)) == 3
    assert text.count('<td data-label="seed">') == 8
    assert write_comparison(Comparison(folder)).read_text(encoding="utf-8") == text


def test_what_is_missing_is_told(folder, tmp_path):
    grid = Grid.read(folder)
    (tmp_path / RUNS).mkdir()
    write_json(tmp_path / COMPARISON, asdict(grid))
    assert "No run is finished yet." in write_comparison(Comparison(tmp_path)).read_text()
    for run in grid.runs[::2]:
        (tmp_path / RUNS / run.name).symlink_to(folder / RUNS / run.name)
    lost = tmp_path / RUNS / grid.runs[1].name
    lost.mkdir()
    write_json(lost / FAILED, {"error": "training <i>diverged</i>"})
    text = write_comparison(Comparison(tmp_path)).read_text()
    assert "1 failed, the first since training &lt;i&gt;diverged&lt;/i&gt;" in text
    assert ": 1 not finished." in text


@pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome on the PATH")
def test_all_of_the_page_can_be_seen(folder):
    page = write_comparison(Comparison(folder))
    with Browser() as browser:
        for width, media in ((400, "screen"), (800, "screen"), (1200, "screen"), (718, "print")):
            seen = browser.open(page, *EYES.values(), width=width, media=media)
            assert seen.complaints == []
            assert dict(zip(EYES, seen.values, strict=True)) == {"sticks out": 0} | {name: [] for name in [*EYES][1:]}
