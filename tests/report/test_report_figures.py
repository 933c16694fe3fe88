"""The small parts: figures without a run, numbers in words."""

import re
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from polyarch.report import drawing, figures, prediction_figures, time_figures, words
from polyarch.report.evidence import Course
from polyarch.report.pictures import picked
from polyarch.uncertainty import reliability


def texts(svg):
    root = ElementTree.fromstring(str(svg).replace("<svg ", '<svg xmlns:xlink="x" ', 1))
    return ["".join(element.itertext()) for element in root.iter("text")]


def test_settings_of_matplotlib_are_left_alone():
    before = dict(mpl.rcParams)
    with drawing.style():
        assert mpl.rcParams["svg.fonttype"] == "none"
    assert dict(mpl.rcParams) == before


def test_svg_has_the_colours_and_the_font_of_the_page_and_ids_of_its_own():
    with drawing.style():
        figure = Figure(figsize=(2, 1))
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], "o", color=drawing.BLUE)
        axes.set_title("日本 $x$ <b>", weight="bold")
        svg = drawing.to_svg(figure, "one")
    assert "日本 $x$ <b>" in texts(svg)
    assert "var(--blue)" in svg
    assert drawing.BLUE not in svg
    assert "font-family" not in svg
    ids = re.findall(r'id="([^"]*)"', svg)
    assert ids
    assert all(name.startswith("one-") for name in ids)
    assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', svg)) <= {(i, "") for i in ids} | {("", i) for i in ids}


def test_fonts_as_older_matplotlib_wrote_them():
    old = "<text style=\"font: 700 10px 'DejaVu Sans', sans-serif; fill: #000\">"
    assert drawing.page_font(old) == '<text style="font-weight: 700; font-size: 10px; fill: #000">'
    assert drawing.page_font("style=\"font: 8px 'DejaVu Sans', x\"") == 'style="font-size: 8px"'


def test_labels_are_moved_apart():
    moved = drawing.spread([5.0, 5.0, 5.5, 100.0], 10)
    assert sorted(moved) == moved
    assert np.diff(moved).min() > 9.99
    assert moved[3] == 100


@pytest.mark.parametrize("depths", [1, 2, 51])
@pytest.mark.parametrize("runs", [1, 4])
def test_posterior_of_any_size(depths, runs):
    probs = np.random.default_rng(0).dirichlet(np.ones(depths), runs)
    fit = figures.Fit("fit", [0, 60], [[-0.1] * runs, [-9.0] * runs], "fixed", drawing.GREEN, [-0.2] * runs, (0, -0.1))
    rules = {"argmax": 0, "95%": depths - 1, "expectation": depths // 2} if runs == 1 else {}
    found = texts(figures.posterior(probs, np.full(depths, 1 / depths), [0] * runs, rules, fit))
    assert {"belief", "prior", "mixture", "fixed"} <= set(found)
    if runs == 1:
        assert any(text.startswith("selected 0 (argmax") for text in found)


def course(evaluations, decision="depth", options=4):
    epochs = np.arange(1.0, evaluations + 1)
    probs = np.full((evaluations, options), 1 / options)
    values = {"train": {"a": np.linspace(-1, -0.1, evaluations)}, "belief": {"entropy": np.ones(evaluations)}}
    return Course(epochs, (0,), {decision: probs}, np.array([]), values, int(epochs[-1]))


@pytest.mark.parametrize("evaluations", [2, 1000])
def test_long_courses_stay_small(evaluations):
    both = [course(evaluations), course(max(2, evaluations // 2))]
    assert len(time_figures.course(both, "depth")) < 100_000
    panel = time_figures.Panel("title", [time_figures.Line("train", "a", "train")])
    assert len(time_figures.curves(both, [panel])) < 100_000
    assert len(time_figures.trajectory(both, panel, [panel], [])) < 100_000


def test_values_that_are_not_numbers_do_not_spoil_a_curve():
    broken = course(5)
    broken.values["train"]["a"][:] = np.nan
    panel = time_figures.Panel("title", [time_figures.Line("train", "a", "train")])
    assert "title" in texts(time_figures.curves([broken], [panel]))


def test_options_with_long_names():
    probs = {"op": np.array([[0.2, 0.8]]), "x" * 60: np.array([[1.0]])}
    prior = {name: p[0] for name, p in probs.items()}
    options = {"op": ("$conv$ <3>", "y" * 50), "x" * 60: ("only",)}
    found = texts(figures.decisions(probs, prior, options, {name: [0] for name in probs}))
    assert "$conv$ <3>" in found
    assert any(text.endswith("…") for text in found)


def test_reliability_of_a_single_example():
    diagram = reliability(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0]))
    assert "ECE 0.1" in texts(prediction_figures.reliability([("one", "ECE 0.1", diagram)], "examples"))


def test_images_of_probabilities():
    image = prediction_figures.class_image(np.array([[[1.0, 0, 0], [0, 0, 1.0], [1 / 3, 1 / 3, 1 / 3]]]))
    assert image[0, 2, 3] == 0
    assert image[0, 0, 3] == image[0, 1, 3] > 100
    assert tuple(image[0, 0, :3]) != tuple(image[0, 1, :3])
    signed = prediction_figures.signed_image(np.array([[-1.0, 0.0, 1.0]]))
    assert [signed[0, k, 3] > 0 for k in range(3)] == [True, False, True]


@pytest.mark.parametrize(("count", "selected", "most"), [(1, 0, 10), (3, 2, 10), (21, 14, 10), (51, 50, 10)])
def test_picked_depths(count, selected, most):
    found = picked(count, selected, most)
    assert found == sorted(set(found))
    assert len(found) == min(count, most)
    assert {0, selected, count - 1} <= set(found)


def test_numbers_in_words():
    thin = "\u202f"
    assert words.number(-0.0612) == "−0.061"
    assert words.number(-0.0002) == "−0.0002"
    assert words.number(0.0) == "0.000"
    assert words.number(1.5, 1, 0.25) == f"1.5{thin}±{thin}0.2"
    assert words.percent(0.9804) == f"98.0{thin}%"
    assert words.about_percent(0.204) == f"20{thin}%"
    assert words.about_percent(0.0) == f"0{thin}%"
    assert words.whole(1234567) == f"1{thin}234{thin}567"
    assert words.milliseconds(0.00026) == f"0.26{thin}ms"
    assert words.milliseconds(0.0178) == f"17.8{thin}ms"
    assert words.milliseconds(1.5) == f"1500{thin}ms"
    assert words.ranges([5, 3, 4, 9]) == "3–5, 9"
    assert (words.plural(1, "block"), words.plural(2, "block")) == ("1 block", "2 blocks")
