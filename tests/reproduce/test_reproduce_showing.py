"""What all experiments share: rows in files, tables and figures."""

import sys
import xml.etree.ElementTree as ElementTree

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def showing():
    from reproduce import showing

    return showing


def test_mean_and_deviation(showing):
    assert showing.mean_sd([-1.0, -2.0], 2) == "−1.50 ± 0.71"
    assert showing.mean_sd([0.5, None], 1) == "0.5"
    assert showing.mean_sd([None], 1) == showing.NOTHING
    assert showing.over([{"a": 0.01}, {"a": 0.03}, {}], "a", 0, 100) == "2 ± 1"


def test_table_of_groups(showing):
    rows = [{"who": "x", "seed": 0, "n": 1.0}, {"who": "y", "seed": 0, "n": 4.0}, {"who": "x", "seed": 1, "n": 3.0}]
    groups = showing.Part(tuple(rows)).groups("who")
    assert showing.mean_table(["who"], groups, {"twice": (lambda row: 2 * row["n"], 1)}).splitlines() == [
        "| who | twice |", "| :-- | --: |", "| x | 4.0 ± 2.8 |", "| y | 8.0 |",
    ]  # fmt: skip
    assert showing.as_table(["who"], []) == ""


def test_rows_are_kept_as_they_come_and_read(showing, monkeypatch, tmp_path, capsys):
    words = "--full --table /home/me/cells.npz --images /home/me/images --raw=/home/me/raw --only 'a;b'"
    monkeypatch.setattr(
        sys, "argv", ["/home/me/reproduce/depth.py", *words.replace("'", "").split(), "--out", "/home/me"]
    )

    def rows():
        yield {"seed": 1, "label": "b"}
        yield {"seed": 0, "label": "a"}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        showing.keep(tmp_path / "new" / "part.json", rows(), "raw", say=lambda row: row["label"], about="it")
    assert capsys.readouterr().out == "b\na\n"
    part = showing.read(tmp_path / "new", "lacking", "part")
    assert part.source.startswith("`python -m reproduce.depth --full --table cells --images FOLDER --only 'a;b'` on ")
    assert (part.values_of("seed"), part.values_of("label"), part.seeds) == ([0, 1], ["b", "a"], "Seeds 0, 1")
    assert [row["label"] for row in part.having(part="part", seed=0)] == ["a"]
    assert showing.read(tmp_path, "part") is None


def test_page_names_the_source_once_for_several_tables(showing, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["depth"])
    showing.keep(tmp_path / "part.json", [{"seed": 0, "n": 1.0}, {"seed": 1}])
    count = showing.Section("count", ("part",), lambda part: str(len(part.rows)), "how many")
    found = showing.page(tmp_path, [count, count._replace(title="again", needs="n"), count._replace(parts=("other",))])
    source = showing.read(tmp_path, "part").source
    assert (
        found
        == f"### count\n\nhow many\n\n2\n\n{source}\n\n### again\n\nhow many\n\n1\n\n{source}\n\n(not run: other)\n"
    )
    assert showing.page(tmp_path, [count, count]).count(source) == 1


def test_figure_files(showing, tmp_path, capsys):
    def make():
        figure, [[axes]] = showing.canvas(2, 1, room=(0.1, 0.1, 0.9, 0.9))
        showing.band(axes, [0, 1], [1, 2], [0, 1], [2, 3], "#0d6cb1")
        showing.note(axes, "here", (0, 1), (2, 2), "#1c2025")
        assert isinstance(figure, Figure)
        return figure

    svg = ElementTree.fromstring(showing.save(tmp_path / "one.svg", make, "A title").read_text(encoding="utf-8"))
    assert (svg.get("width"), svg.get("height")) == ("144pt", "72pt")
    assert svg.find("{http://www.w3.org/2000/svg}title").text == "A title"
    assert showing.save(tmp_path / "one.png", make).read_bytes().startswith(b"\x89PNG")
