"""The small parts: figures without a run, numbers in formatting."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from polyarch import plotting
from polyarch.architecture import Decision
from polyarch.report import belief_figures, formatting, prediction_figures, time_figures, uncertainty_figures
from polyarch.report.prediction_sections import picked
from polyarch.report.trajectory import Trajectory
from polyarch.uncertainty import Predictive, reliability, risk_coverage
from polyarch.uncertainty.coverage import errors_last


def texts(svg):
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter("text")]


def depth_of(options):
    return Decision("depth", tuple(map(str, range(options))))


@pytest.mark.parametrize("depths", [1, 2, 51])
@pytest.mark.parametrize("runs", [1, 4])
def test_posterior_of_any_size(depths, runs):
    probs = np.random.default_rng(0).dirichlet(np.ones(depths), runs)
    fit = belief_figures.Fit(
        "fit", [0, 60], [[-0.1] * runs, [-9.0] * runs], "fixed", plotting.GREEN, [-0.2] * runs, (0, -0.1)
    )
    rules = {"argmax": 0, "95%": depths - 1, "expectation": depths // 2} if runs == 1 else {}
    prior = np.full(depths, 1 / depths)
    found = texts(belief_figures.posterior(depth_of(depths), probs, prior, [0] * runs, rules, fit))
    assert {"belief", "prior", "mixture", "fixed"} <= set(found)
    if runs == 1:
        assert any(text.startswith("selected 0 (argmax") for text in found)


@pytest.mark.parametrize("errors", [(), (0.4, 0.1, 0.1)])
def test_error_bars_are_whole(errors):
    """As long as a value is in the picture, so is all of its spread."""
    values = [[-1.0], [-0.5], [-0.4]] if errors else [[-1.4, -0.6, -1.0], [-0.6, -0.4, -0.5], [-0.4, -0.4, -0.1]]
    mixture = [-0.2] if errors else [0.4, -0.4, -0.8]
    fit = belief_figures.Fit("fit", [0, 1, 2], values, "fixed", plotting.GREEN, mixture, errors=errors)
    with plotting.style():
        axes = Figure().subplots()
        belief_figures._fit(axes, fit)
    low, high = axes.get_ylim()
    spreads = errors or [np.std(v, ddof=1) for v in values]
    middle, around = np.mean(mixture), 0.0 if errors else np.std(mixture, ddof=1)
    assert low <= min(np.mean(v) - s for v, s in zip(values, spreads, strict=True))
    assert high >= max(middle + around, *(np.mean(v) + s for v, s in zip(values, spreads, strict=True)))


def trajectory(evaluations, decision="depth", options=4):
    epochs = np.arange(1.0, evaluations + 1)
    probs = np.full((evaluations, options), 1 / options)
    values = {"train": {"a": np.linspace(-1, -0.1, evaluations)}, "belief": {"kl": np.ones(evaluations)}}
    return Trajectory(epochs, (0,), {decision: probs}, np.array([]), values, int(epochs[-1]))


def test_values_of_neighbours_below_the_axes_do_not_lie_on_each_other():
    values = [[-90.0], [-80.0], [-0.5], [-0.4], [-0.41]]
    fit = belief_figures.Fit("fit", [0, 1, 2, 3, 4], values, "each", plotting.GREEN, [-0.4])
    with plotting.style():
        figure = Figure(figsize=(time_figures.NARROW, 2))
        axes = figure.subplots()
        axes.set_xlim(-0.7, 8.7)
        belief_figures._fit(axes, fit)
        figure.canvas.draw()
        first, second = [text.get_window_extent() for text in axes.texts]
    assert not first.overlaps(second)


@pytest.mark.parametrize("evaluations", [2, 1000])
def test_long_trajectories_stay_small(evaluations):
    both = [trajectory(evaluations), trajectory(max(2, evaluations // 2))]
    assert len(time_figures.belief_map(both, depth_of(4))) < 100_000
    panel = time_figures.Panel("title", [time_figures.Line("train", "a", "train")])
    assert len(time_figures.curves(both, [panel])) < 100_000
    assert len(time_figures.search_progress(both, panel, [panel], [])) < 100_000


def test_values_that_are_not_numbers_do_not_spoil_a_curve():
    broken = trajectory(5)
    broken.values["train"]["a"][:] = np.nan
    panel = time_figures.Panel("title", [time_figures.Line("train", "a", "train")])
    assert "title" in texts(time_figures.curves([broken], [panel]))


def test_options_with_long_names():
    probs = {"op": np.array([[0.2, 0.8]]), "x" * 60: np.array([[1.0]])}
    prior = {name: p[0] for name, p in probs.items()}
    options = {"op": ("$conv$ <3>", "y" * 50), "x" * 60: ("only",)}
    found = texts(belief_figures.decisions(probs, prior, options, {name: [0] for name in probs}))
    assert "$conv$ <3>" in found
    assert any(text.endswith("…") for text in found)


def test_reliability_of_a_single_example():
    diagram = reliability(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0]))
    assert "ECE 0.1" in texts(prediction_figures.reliability([("one", "ECE 0.1", diagram)], "examples"))


def risk_of(*correct):
    """The curve of answers that become less sure from one to the next."""
    return risk_coverage(torch.arange(len(correct), 0, -1), torch.tensor(correct))


def test_risk_begins_where_there_is_something_to_see():
    def percentages(*correct):
        lines = [uncertainty_figures.Risk("a", plotting.BLUE, [risk_of(*correct)])]
        return [t for t in texts(uncertainty_figures.risks(lines)) if t.endswith("\u202f%")][:5]

    thin = "\u202f"
    assert percentages(False) == [f"{p}{thin}%" for p in (0, 25, 50, 75, 100)]
    assert percentages(*[True] * 9, False) == [f"{p}{thin}%" for p in (80, 85, 90, 95, 100)]
    assert percentages(*[True] * 99, False) == [f"{p}{thin}%" for p in (80, 85, 90, 95, 100)]
    assert percentages(*[True] * 70, *[False] * 30) == [f"{p}{thin}%" for p in (60, 70, 80, 90, 100)]
    assert percentages(True, True) == [f"{p}{thin}%" for p in (0, 25, 50, 75, 100)]


def test_risk_of_many_examples_and_of_equally_sure_ones():
    random = torch.Generator().manual_seed(0)
    right = torch.rand(50_000, generator=random) < 0.8
    many = [
        uncertainty_figures.Risk(
            "many", plotting.GREEN, [risk_coverage(torch.rand(50_000, generator=random), right)] * 3
        ),
        uncertainty_figures.Risk("equal", plotting.BLUE, [risk_coverage(torch.ones(50_000), right)]),
        uncertainty_figures.Risk("ideal", plotting.MUTED, [errors_last(right)], is_ideal=True),
    ]
    svg = uncertainty_figures.risks(many)
    assert len(svg) < 150_000
    assert [text for text in texts(svg) if text in ("many", "equal", "ideal")] == ["many", "equal", "ideal"]


def mixture(information, right=None):
    """A mixture of two classes with this mutual information, which predicts class 0."""
    n = len(information)
    zeros = torch.zeros(n)
    said = Predictive(torch.tensor([[0.7, 0.3]]).log().expand(n, 2), zeros, zeros, torch.tensor(information))
    return said, torch.zeros(n, dtype=torch.int64) if right is None else 1 - torch.tensor(right).long()


def test_right_and_wrong_answers():
    said, target = mixture([0.1, 0.2, 0.3, 0.4], [True, False, True, False])
    right, wrong = uncertainty_figures.right_and_wrong(said, target)
    assert (right.label, wrong.label) == ("right (2)", "wrong (2), AUROC 0.750")
    assert (right.information.tolist(), wrong.information.tolist()) == (
        pytest.approx([0.1, 0.3]),
        pytest.approx([0.2, 0.4]),
    )
    for all_alike, name in ((True, "right (4)"), (False, "wrong (4)")):
        [kind] = uncertainty_figures.right_and_wrong(*mixture([0.1, 0.2, 0.3, 0.4], [all_alike] * 4))
        assert kind.label == name


@pytest.mark.parametrize("values", [[0.3], [0.0, 0.5], [1e-9, 2e-5], [0.2] * 5, list(np.geomspace(1e-8, 2, 500))])
def test_histograms_of_any_mutual_information(values):
    kind = uncertainty_figures.Kind("x" * 60, plotting.BLUE, torch.tensor(values, dtype=torch.float64))
    found = texts(uncertainty_figures.information([kind, kind]))
    assert f"{'x' * 23}… ({len(values)})" in found
    assert "mutual information, nats" in found
    assert [t for t in found if re.fullmatch(r"[\d.]+", t)] or len(set(values)) < 3


def test_members_that_agree_are_not_drawn():
    assert not uncertainty_figures.disagrees(torch.tensor([0.0, 1e-6]))
    assert uncertainty_figures.disagrees(torch.tensor([0.0, 1e-3]))


@pytest.mark.parametrize(
    ("information", "others", "kinds"),
    [
        ([0.1, 0.2], {}, ["right (1)", "wrong (1), AUROC 1.000"]),
        ([0.1, 0.2], {"pigs": [0.15, 0.3, 0.4]}, ["test data (2)", "pigs (3), AUROC 0.833"]),
        (
            [0.0, 0.0],
            {"pigs": [0.3], "cows": [0.0]},
            ["test data (2)", "pigs (1), AUROC 1.000", "cows (1), AUROC 0.500"],
        ),
        ([0.0, 0.0], {"pigs": [0.0]}, []),
    ],
)
def test_an_evaluation_in_one_file(information, others, kinds):
    said, target = mixture(information, [True, False])
    outside = {name: mixture(values)[0] for name, values in others.items()}
    svg = uncertainty_figures.draw_evaluation(said, said, target, outside, "svg")
    assert svg == uncertainty_figures.draw_evaluation(said, said, target, outside, "svg")
    found = ["".join(e.itertext()) for e in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in found if re.match(r"(right|wrong|test data|pigs|cows) \(", text)] == kinds
    # Both answers are equally sure, so half of what is answered is wrong, however much that is.
    assert "mixture, AURC 0.5000" in found
    assert "errors of the mixture last, 0.2500" in found
    assert len([text for text in found if text == "confidence"]) == 2
    alone = uncertainty_figures.draw_evaluation(said, None, target, {}, "png")
    assert alone.startswith(b"\x89PNG")


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


def test_numbers_as_people_write_them():
    thin = "\u202f"
    assert formatting.number(-0.0612) == "−0.061"
    assert formatting.number(-0.0002) == "−0.0002"
    assert formatting.number(0.0) == "0.000"
    assert formatting.number(1.5, 1, 0.25) == f"1.5{thin}±{thin}0.2"
    assert formatting.percent(0.9804) == f"98.0{thin}%"
    assert formatting.about_percent(0.204) == f"20{thin}%"
    assert formatting.about_percent(0.0) == f"0{thin}%"
    assert formatting.whole(1234567) == f"1{thin}234{thin}567"
    assert formatting.milliseconds(0.00026) == f"0.26{thin}ms"
    assert formatting.milliseconds(0.0178) == f"17.8{thin}ms"
    assert formatting.milliseconds(1.5) == f"1500{thin}ms"
    assert formatting.ranges([5, 3, 4, 9]) == "3–5, 9"
    assert formatting.ranges([0, 1, 3], ["one", "two", "three", "four"]) == "one–two, four"
    assert (formatting.plural("depth"), formatting.plural("layers")) == ("depths", "layers")
