"""Figures for a page: its colours, ids of their own, labels that do not lie on each other."""

import re
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from polyarch import plotting


def test_settings_of_matplotlib_are_left_alone():
    before = dict(mpl.rcParams)
    with plotting.style():
        assert mpl.rcParams["svg.fonttype"] == "none"
    assert dict(mpl.rcParams) == before


def one_line(name):
    with plotting.style():
        figure = Figure(figsize=(2, 1))
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], "o", color=plotting.BLUE)
        axes.set_title("日本 $x$ <b>", weight="bold")
        return plotting.to_svg(figure, name)


def test_svg_has_the_colours_of_the_page_and_ids_of_its_own():
    svg = one_line("one")
    assert [text.text for text in ElementTree.fromstring(svg).iter("text")][-1] == "日本 $x$ <b>"
    assert "var(--blue)" in svg
    assert plotting.BLUE not in svg
    assert svg == one_line("one")
    ids, others = (re.findall(r' id="([^"]*)"', found) for found in (svg, one_line("two")))
    assert ids
    assert len(ids) == len(set(ids))
    assert not set(ids) & set(others)
    assert {href or url for href, url in re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', svg)} == set(ids)
    assert "xmlns" not in svg


def test_labels_are_moved_apart():
    moved = plotting.spread([5.0, 5.0, 5.5, 100.0], 10)
    assert sorted(moved) == moved
    assert np.diff(moved).min() > 9.99
    assert moved[3] == 100
