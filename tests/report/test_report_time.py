"""What is shown over time: epochs through stages, gaps, areas of belief, the trajectory and what is said of it."""

import itertools
import re

import numpy as np
import pytest
from rewriting import STAGES, rewritten

import polyarch as pa
from polyarch.report import (
    belief_areas,
    beliefs,
    graph_svg,
    operation_colours,
    search_section,
    summary,
    time_figures,
    write_report,
)
from polyarch.report.report_data import ReportData
from polyarch.report.time_figures import Line, Panel
from polyarch.report.trajectory import Trajectory
from polyarch.spaces.graph import Edge, Graph, Node


def trajectory(probs=None, *, epochs=None, stages=(0,), changes=(), kept=None, **values):
    """Of evaluations after epochs 1, 2, ..., or others."""
    length = len(next(iter((probs or values).values())))
    epochs = np.arange(1.0, length + 1) if epochs is None else np.array(epochs, float)
    split = {name: np.array(column, float) for name, column in values.items()}
    found = {"train": split, "belief": {"kl": np.ones(length)}}
    belief = {name: np.array(p, float) for name, p in (probs or {"op": [[0.5, 0.5]] * length}).items()}
    return Trajectory(epochs, stages, belief, np.array(changes, float), found, kept or int(epochs[-1]))


# ---------------------------------------------------------------------------------------------------------------------
# Stages and gaps.


def test_epochs_run_through_all_stages(staged):
    found = Trajectory.of(staged.run)
    assert found.epochs.tolist() == [1, 2, 3, 4, 5, 6]
    assert found.stages == (0, 2, 5)
    assert found.kept == 6


def test_epochs_between_evaluations_count(tmp_path, quick_cells):
    def sparse(lines):
        for line, (stage, epoch) in zip(lines, STAGES, strict=True):
            line |= {"stage": stage, "epoch": 10 * epoch}
        return lines

    found = Trajectory.of(rewritten(quick_cells.run, tmp_path / "sparse", sparse))
    assert found.epochs.tolist() == [10, 20, 30, 40, 50, 60]
    assert found.stages == (0, 20, 50)


def test_numbers_that_a_line_lacks_are_gaps(tmp_path, quick_cells, staged):
    found = Trajectory.of(staged.run).values["step"]["search_log_likelihood"]
    assert np.isnan(found).tolist() == [epoch == 1 for _, epoch in STAGES]
    own = Trajectory.of(quick_cells.run).values["step"]["search_log_likelihood"]
    assert np.array_equal(found[np.isfinite(found)], own[[1, 3, 4]])

    def ragged(lines):
        lines[0]["step"]["early"] = 1.0
        lines[2]["watch"] = {}
        del lines[3]["watch"]
        for k, line in enumerate(lines):
            line["truth"] = None if k % 2 else 90.0 + k
        lines[4]["probs"]["1<-0"] = [0.5, 0.5]
        return lines

    gaps = Trajectory.of(rewritten(quick_cells.run, tmp_path / "ragged", ragged))
    assert np.isnan(gaps.values["step"]["early"]).tolist() == [False, *[True] * 5]
    assert np.isnan(gaps.values["watch"]["skip_share"]).tolist() == [False, False, True, True, False, False]
    truth = gaps.values["table"]["truth"]
    assert truth[::2].tolist() == [90, 92, 94]
    assert np.isnan(truth[1::2]).all()
    assert np.isnan(gaps.probs["1<-0"]).all(1).tolist() == [False, False, False, False, True, False]


def test_a_page_of_lines_that_lack_most_numbers(tmp_path, quick_cells):
    def scarce(lines):
        for k, line in enumerate(lines):
            line["step"] = {} if k else line["step"]
            line["watch"] = {} if k % 2 else line["watch"]
            line["truth"] = None
        lines[1]["probs"]["1<-0"] = [0.5, 0.5]
        return lines

    run = rewritten(quick_cells.run, tmp_path / "scarce", scarce)
    text = write_report(run, quick_cells.task).read_text()
    assert ">skips among the mode's operations<" in text


def test_stages_are_marked_between_two_epochs_and_named_as_there_is_room():
    three = [trajectory(a=np.zeros(9), stages=(0, 4, 8))]
    assert [x for x, _ in time_figures.stage_marks(three, 1000)] == [1, 4.5, 8.5]
    names = {wide: [name for _, name in time_figures.stage_marks(three, wide)] for wide in (1000, 300, 100)}
    assert names[1000] == ["stage 1", "stage 2", "stage 3"]
    assert names[300] == ["1", "2", "3"]
    assert names[100] == ["1", "2", ""]
    assert time_figures.stage_marks([trajectory(a=np.zeros(9))], 1000) == []


def test_every_figure_over_epochs_names_the_stages(page):
    text = page("staged").read_text()
    found = {}
    for name in ("belief_over_time", "search", "curves"):
        [own] = re.findall(rf'<section id="{name}">.*?</section>', text, flags=re.S)
        found[name] = own.count(">stage 1<"), own.count(">stage 2<")
    # The last stage is short, and beside it panels have room for the numbers of stages only.
    assert found == {"belief_over_time": (0, 0), "search": (1, 1), "curves": (0, 0)}
    assert "Epochs are counted through all 3 stages" in text
    assert "epochs of its stages" in text
    assert "2 + 3 + 1" in text
    plain = page("quick_cells").read_text()
    assert "stage 1" not in plain
    assert "Epochs are counted" not in plain


def line_paths(svg, colour):
    return re.findall(rf'<path d="([^"]*)"[^>]*style="fill: none; stroke: {re.escape(colour)}', svg)


def test_lines_leave_gaps_and_a_number_alone_is_a_dot():
    values = [1.0, 2.0, np.nan, 3.0, np.nan, 2.0, 1.0]
    panel = Panel("title", [Line("train", "a", "train")])
    svg = str(time_figures.curves([trajectory(a=values)], [panel]))
    [path] = line_paths(svg, "var(--green)")
    assert path.count("L") == 2  # from 1 to 2, and from 6 to 7
    [whole] = line_paths(str(time_figures.curves([trajectory(a=np.arange(7) % 3)], [panel])), "var(--green)")
    assert whole.count("L") == 6
    assert len(re.findall(r"<use [^>]*style=\"fill: var\(--green\)", svg)) == 1


# ---------------------------------------------------------------------------------------------------------------------
# When the likeliest architecture changed.


def test_changes_of_the_likeliest_architecture(tmp_path, quick_cells):
    favourites = [(0, 0), (0, 0), (0, 3), (0, 3), (4, 3), (0, 3)]

    def with_favourites(lines):
        for line, (first, last) in zip(lines, favourites, strict=True):
            for name in line["probs"]:
                line["probs"][name] = [0.2] * 5
            for name, option in (("1<-0", first), ("3<-2", last)):
                line["probs"][name] = [0.6 if k == option else 0.1 for k in range(5)]
        return lines

    found = Trajectory.of(rewritten(quick_cells.run, tmp_path / "favourites", with_favourites))
    assert found.changes.tolist() == [3, 5, 6]


def test_changes_where_architectures_are_read_out(tmp_path, parents):
    random = np.random.default_rng(3)
    space = parents.run.space

    def drawn(lines):
        found = []
        for k in range(12):
            probs = {name: random.dirichlet(np.full(len(p), 30)).tolist() for name, p in lines[0]["probs"].items()}
            # Every third line only strengthens what is the best already.
            found.append({**lines[0], "epoch": k + 1, "probs": probs if k % 3 else sharper(found, probs)})
        return found

    def sharper(before, probs):
        return {n: [v**1.1 for v in p] for n, p in before[-1]["probs"].items()} if before else probs

    run = rewritten(parents.run, tmp_path / "drawn", drawn)
    parents_of = {space.inputs_name(v): space.parents[v - 1] for v in space.ways}

    def read(probs):
        """The best operation of a node, and the best so many parents of a vertex, in plain Python."""
        ranked = {name: sorted(range(len(p)), key=lambda k, p=p: -p[k]) for name, p in probs.items()}
        return {name: set(order[: parents_of.get(name, 1)]) for name, order in ranked.items()}

    architectures = [read(line["probs"]) for line in run.history()]
    expected = [k + 2 for k, (a, b) in enumerate(itertools.pairwise(architectures)) if a != b]
    assert 3 < len(expected) < 11
    assert Trajectory.of(run).changes.tolist() == expected


# ---------------------------------------------------------------------------------------------------------------------
# Areas.


def corners(path):
    """The upper edge of every piece of an area: pairs of where it is and how high, both in %."""
    assert re.fullmatch(r"(?:M[\d.e-]+ 100L(?:[\d.e-]+ [\d.e-]+ ?)+V100Z)+", path)
    pieces = re.findall(r"L([^V]*)V", path)
    numbers = [[float(number) for number in piece.split()] for piece in pieces]
    return [[(x, 100 - y) for x, y in zip(own[::2], own[1::2], strict=True)] for own in numbers]


def heights(panel):
    """How high each area is, from the lowest: [areas, places]."""
    tops = [[y for piece in corners(area.path) for _, y in piece] for area in reversed(panel.areas)]
    return np.diff(np.array([np.zeros(len(tops[0])), *tops]), axis=0)


def drawn(probs, **more):
    names = {name: [f"o{k}" for k in range(len(p[0]))] for name, p in probs.items()}
    return belief_areas.picture([trajectory(probs, **more)], names, names)


def test_areas_are_as_high_as_options_are_probable():
    probs = np.random.default_rng(0).dirichlet(np.ones(5), 7)
    picture = drawn({"edge": probs}, epochs=[1, 2, 3, 5, 8, 9, 11])
    [panel] = picture.panels
    assert heights(panel) == pytest.approx(100 * probs.T, abs=0.02)
    [edge] = corners(panel.areas[0].path)
    assert [x for x, _ in edge] == pytest.approx([0, 10, 20, 40, 70, 80, 100])
    best = probs[-1].argmax()
    assert panel.likeliest == f"o{best}"
    assert panel.share == f"{100 * probs[-1, best]:.0f}\u202f%"
    assert panel.colour == dict(picture.legend)[f"o{best}"]
    assert (picture.first, picture.last, picture.has_rest) == (1, 11, False)


def test_seeds_are_averaged_as_long_as_they_went_on():
    long, short = np.array([[1, 0], [0.8, 0.2], [0.6, 0.4], [0.5, 0.5]]), np.array([[0, 1], [0.2, 0.8]])
    two = [trajectory({"edge": long}), trajectory({"edge": short})]
    [panel] = belief_areas.picture(two, {"edge": ("a", "b")}, {"edge": ("a", "b")}).panels
    assert heights(panel)[0] == pytest.approx([50, 50, 60, 50])


def test_of_many_options_those_have_an_area_that_were_ever_among_the_likeliest():
    probs = np.full((4, 35), 0.01)
    for row, (first, second, third) in enumerate([(3, 4, 5), (3, 9, 4), (20, 3, 4), (20, 3, 34)]):
        probs[row, [first, second, third]] = 0.3, 0.2, 0.18
    picture = drawn({"slot": probs})
    [panel] = picture.panels
    shown = [3, 4, 5, 9, 20, 34]
    named = [area.hint.partition(":")[0] for area in reversed(panel.areas)]
    assert named == [*(f"o{k}" for k in shown), "29 other options"]
    assert heights(panel)[:-1] == pytest.approx(100 * probs[:, shown].T, abs=0.02)
    assert heights(panel).sum(0) == pytest.approx(100)
    assert picture.has_rest
    assert picture.legend[-1] == ("others", "var(--line)")
    restless = np.random.default_rng(0).dirichlet(np.ones(35), 50)
    [panel] = drawn({"slot": restless}).panels
    assert len(panel.areas) == belief_areas.MOST_AREAS + 1


def test_options_with_an_area_differ_in_colour_though_there_are_more_options_than_colours():
    probs = np.full((3, 20), 0.01)
    probs[:, [2, 9, 17]] = 0.4, 0.23, 0.2
    options = {"degree": [str(k) for k in range(20)]}
    assert len(set(operation_colours.colours(options["degree"]).values())) == len(operation_colours.OTHERS) < 20
    one = [trajectory({"degree": probs})]
    legend = dict(belief_areas.picture(one, options, options).legend)
    assert list(legend) == ["2", "9", "17", "others"]
    assert len(set(legend.values())) == 4
    assert sorted(belief_areas.colour_order(one, options), key=int) == options["degree"]


def test_options_that_are_left_out_for_good():
    probs = [[0.4, 0.3, 0.3, 0], [0.5, 0.2, 0.3, 0], [0.6, 0, 0.4, 0], [1, 0, 0, 0]]
    picture = drawn({"edge": probs}, stages=(0, 2, 3))
    [panel] = picture.panels
    assert heights(panel) == pytest.approx(100 * np.array(probs)[:, :3].T)
    assert [name for name, _ in picture.legend] == ["o0", "o1", "o2"]
    assert [x for x, _ in picture.stages] == pytest.approx([0, 50, 250 / 3])


def test_areas_leave_gaps():
    probs = np.array([[0.5, 0.5], [0.4, 0.6], [np.nan, np.nan], [0.2, 0.8], [0.1, 0.9]])
    [panel] = drawn({"edge": probs}).panels
    assert [[x for x, _ in piece] for piece in corners(panel.areas[0].path)] == [[0, 25], [75, 100]]


@pytest.mark.parametrize("evaluations", [2, 1000])
@pytest.mark.parametrize("decisions", [1, 100])
def test_panels_of_any_number(evaluations, decisions):
    random = np.random.default_rng(0)
    probs = {f"d{k}": np.repeat(random.dirichlet(np.ones(3), 1), evaluations, 0) for k in range(decisions)}
    moving = [f"d{k}" for k in range(decisions) if k % 10 == 0]
    for name in moving:
        probs[name] = np.linspace(probs[name][0], [0, 0, 1], evaluations)
    picture = drawn(probs)
    shown = [panel.name for panel in picture.panels]
    assert len(shown) == min(decisions, belief_areas.MOST_PANELS)
    assert set(moving) <= set(shown)
    assert sorted(shown, key=lambda name: int(name[1:])) == shown
    assert picture.decisions == decisions
    assert sum(len(area.path) for panel in picture.panels for area in panel.areas) < 200_000


def test_cells_begin_a_row():
    flat = np.full((2, 2), 0.5)
    edges = [f"{cell}.{k}" for cell in ("normal", "reduce") for k in range(14)]
    assert drawn(dict.fromkeys(edges, flat)).groups == {"normal.0", "reduce.0"}
    assert drawn({f"block{k}.activation": flat for k in range(12)}).groups == frozenset()
    assert drawn(dict.fromkeys("abcdef", flat)).groups == {"a"}


def test_an_operation_has_the_colour_that_it_has_in_the_picture_of_the_cell(pairs, quick_cells):
    for run in (pairs.run, quick_cells.run):
        operations = beliefs.operations(run)
        options = {d.name: d.options for d in beliefs.simplices(run)}
        legend = dict(belief_areas.picture([Trajectory.of(run)], options, operations).legend)
        every = tuple(itertools.chain.from_iterable(operations.values()))
        lines = [line for graph in beliefs.graphs([run]) for line in graph_svg.picture(graph, every).lines]
        in_cells = {line.stroke.operation: line.stroke.colour for line in lines}
        compared = {name for name in legend.keys() & in_cells.keys() if name != "none"}
        assert {"skip_connect", "avg_pool_3x3"} < compared
        assert {name: legend[name] for name in compared} == {name: in_cells[name] for name in compared}


def test_own_operations_have_one_colour_in_all_pictures_of_a_page():
    """Several names would like the same colour: which of them gets it must not depend on the picture."""
    names = ["relu", "gelu", "silu", "tanh", "linear", "deep", "attention", "mix"]
    one_by_one = {name: operation_colours.colours([name])[name] for name in names}
    assert len(set(one_by_one.values())) < len(names)
    together = operation_colours.colours(names)
    assert len(set(together.values())) == len(names)
    for name in names:
        graph = Graph("cell", (Node("a", "a"), Node("b", "b")), (Edge("a", "b", name, 1.0),))
        [line] = graph_svg.picture(graph, tuple(names)).lines
        assert line.stroke.colour == together[name]


def test_pairs_of_input_and_operation_share_the_colour_of_the_operation(pairs):
    options = {d.name: d.options for d in pairs.run.space.decisions}
    found = beliefs.operations(pairs.run)
    assert {name: len(own) for name, own in found.items()} == {name: len(own) for name, own in options.items()}
    for name, own in options.items():
        assert [option.partition("~")[0] for option in own] == list(found[name])
    picture = belief_areas.picture([Trajectory.of(pairs.run)], options, found)
    assert picture.shares_colours
    assert len(picture.panels) == 16


def test_operations_of_own_options(parents):
    """Where belief is about what a supernet mixes, options are operations."""
    assert beliefs.operations(parents.run) == {d.name: d.options for d in parents.run.space.relaxation.simplices}


# ---------------------------------------------------------------------------------------------------------------------
# What is said.


def report(*runs, task):
    return ReportData(list(runs), task, (), runs[0].folder)


def collapsing(run, folder, flags):
    """The run with cells that are skips alone where a flag is up."""

    def change(lines):
        for line, flag in zip(lines, flags, strict=True):
            line["watch"] |= {"collapsed": float(flag), "skip_share": 1.0 if flag else 0.5}
        return lines

    return rewritten(run, folder, change)


def test_a_collapse_is_marked_and_said(tmp_path, quick_cells):
    def told(*rows):
        home = tmp_path / "".join(map(str, itertools.chain(*rows)))
        runs = [collapsing(quick_cells.run, home / str(k), row) for k, row in enumerate(rows)]
        own = report(*runs, task=quick_cells.task)
        return search_section.collapse(own), search_section.search_progress(own)

    never, late, between = (0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 1, 1), (0, 1, 1, 0, 0, 0)
    sentence, section = told(never)
    assert sentence == ""
    assert ">collapsed<" not in section["svg"]
    sentence, section = told(late)
    assert sentence == "The search collapsed at epoch 5: 100\u202f% of the kept mode's operations are skips."
    assert section["notes"][0] == sentence
    assert section["svg"].count(">collapsed<") == 2, "once at each width"
    sentence, section = told(between)
    assert sentence == (
        "The search collapsed at epoch 2, but not for good: 50\u202f% of the kept mode's operations are skips."
    )
    assert ">collapsed<" in section["svg"]
    assert told(never, late, between)[0] == (
        "The search collapsed for 2 of 3 seeds, first at epoch 2; of the kept cells 1 is little more than skips."
    )
    assert told(never, between)[0] == (
        "The search collapsed for 1 of 2 seeds, at epoch 2; of the kept cells none are little more than skips."
    )


def test_the_top_of_the_page_tells_of_a_collapse(tmp_path, quick_cells):
    run = collapsing(quick_cells.run, tmp_path / "run", (0, 0, 1, 1, 1, 1))
    assert dict(summary.finding(report(run, task=quick_cells.task))[1])["Found"][0].startswith(
        "The search collapsed at epoch 3"
    )


def test_panels_are_those_of_what_was_watched(tmp_path, cell_search, quick_cells):
    def curved(lines):
        for k, line in enumerate(lines):
            line["watch"] |= {"hessian_eigenvalue": 0.1 * k, "hessian_trace": -0.3 * k}
        return lines

    run = rewritten(quick_cells.run, tmp_path / "curved", curved)
    section = search_section.search_progress(report(run, task=quick_cells.task))
    for title in (
        "accuracy on validation data",
        "KL(belief || prior), nats",
        "skips among the mode's operations",
        "architecture Hessian: largest eigenvalue",
        "architecture Hessian: trace",
        "depth of the mode's cell, edges",
    ):
        assert f">{title}<" in section["svg"]
    for other in ("effective samples", "deviation of the logits", "random ones"):
        assert f">{other}<" not in section["svg"]
    assert section["lines"] == {"mode", "supernet"}
    both = search_section.search_progress(report(*cell_search.runs, task=cell_search.task))
    assert ">effective samples<" in both["svg"]
    assert both["lines"] == {"mode"}


@pytest.mark.parametrize(("count", "said"), [(0, "never changed"), (1, "once, after"), (2, "twice, last after")])
def test_changes_in_words(tmp_path, quick_cells, count, said):
    def change(lines):
        for k, line in enumerate(lines):
            for name in line["probs"]:
                line["probs"][name] = [0.6 if option == min(k, count) else 0.1 for option in range(5)]
        return lines

    run = rewritten(quick_cells.run, tmp_path / f"changes-{count}", change)
    when = f" epoch {count + 1}" if count else ""
    notes = search_section.search_progress(report(run, task=quick_cells.task))["notes"]
    assert notes[-1] == f"The mode of belief {'changed ' if count else ''}{said}{when}."


# ---------------------------------------------------------------------------------------------------------------------
# Ground truth.


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Of all cells: accuracies that depend on the first and the last edge alone, in % and as shares, and a loss."""
    space = pa.spaces.NasBench201()
    choices = list(itertools.product(range(5), repeat=6))
    share = np.array([0.5 + 0.08 * c[0] + 0.02 * c[-1] for c in choices])
    path = tmp_path_factory.mktemp("table") / "truth.npz"
    texts = np.array([space.format(c) for c in choices])
    np.savez(path, arch=texts, valid_acc=100 * share, test_accuracy=share, valid_loss=5 - share)
    return path


@pytest.fixture(scope="module")
def watched_by(table, images, tmp_path_factory):
    def search(column):
        space, method = pa.spaces.NasBench201(channels=2, cells=1), pa.methods.Darts(epochs=2, batch_size=8)
        out = tmp_path_factory.mktemp("truth") / "run"
        return pa.search(
            space, images, method, out=out, compute=pa.Compute("cpu"), callbacks=[pa.TableTruth(table, column)]
        )

    return search


@pytest.mark.parametrize("column", ["valid_acc", "test_accuracy"])
def test_true_accuracies_have_an_axis_of_their_own(watched_by, images, column):
    """They are of the data of the table, not of the run's."""
    run = watched_by(column)
    section = search_section.search_progress(report(run, task=images))
    wide = section["svg"].partition('<div class="narrow">')[0]
    for text, times in (("mode", 2), ("supernet", 1), ("random ones", 1), ("the best", 1)):
        assert wide.count(f">{text}</text>") == times
    for title in ("accuracy on validation data", f"{column} of the mode, by the table"):
        assert f">{title}</text>" in wide
    first, *_, last = run.architecture.choices
    # Of all cells, the mean and the deviation of two independent uniform choices.
    spread = 100 * np.sqrt((0.08**2 + 0.02**2) * 2)
    assert section["notes"][-1].replace("\u202f", "") == (
        f"By the table, {column} of the selected architecture is {50 + 8 * first + 2 * last:.1f}%, of random ones "
        f"70.0±{spread:.1f}%, of the best 90.0%. Nothing was chosen by it."
    )


def test_a_truth_that_is_no_accuracy_has_a_panel_of_its_own(watched_by, images):
    run = watched_by("valid_loss")
    section = search_section.search_progress(report(run, task=images))
    assert ">valid_loss of the mode, by the table</text>" in section["svg"]
    assert ">accuracy on validation data</text>" in section["svg"]
    assert "of the best 4.100" in section["notes"][-1]
