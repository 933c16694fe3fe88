"""Pictures of cells: what is written is there, and nothing lies on anything else."""

import functools
import itertools
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import networkx
import pytest
from browser import Browser, find_browser

from polyarch.cli.show import show
from polyarch.errors import PolyarchError
from polyarch.report import graph_svg
from polyarch.report.graph_svg import draw, draw_all
from polyarch.spaces.graph import Edge, Graph, Node

picture = functools.cache(graph_svg.picture)


@pytest.fixture(autouse=True)
def _shared_layouts(monkeypatch):
    """Many tests look at the same graphs; each is laid out once, also where it is drawn."""
    monkeypatch.setattr(graph_svg, "picture", picture)


SVG = "{http://www.w3.org/2000/svg}"
SMALL_OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
OPERATIONS = (
    "none",
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)


def nodes(*names):
    return tuple(Node(name, name) for name in names)


def shares(draws, count):
    weights = [draws.expovariate(1) for _ in range(count)]
    return [weight / sum(weights) for weight in weights]


def small_cell():
    chosen = ("nor_conv_3x3", "nor_conv_3x3", "avg_pool_3x3", "skip_connect", "nor_conv_1x1", "none")
    pairs = itertools.combinations(("input", "1", "2", "output"), 2)
    edges = tuple(Edge(a, b, operation) for (a, b), operation in zip(pairs, chosen, strict=True))
    return Graph("cell", nodes("input", "1", "2", "output"), edges)


def small_belief():
    draws = random.Random(1)
    edges = [
        Edge(a, b, operation, share)
        for a, b in itertools.combinations(("input", "1", "2", "output"), 2)
        for operation, share in zip(SMALL_OPERATIONS, shares(draws, 5), strict=True)
    ]
    return Graph("belief", nodes("input", "1", "2", "output"), tuple(edges))


PLACES = ("c_{k-2}", "c_{k-1}", "0", "1", "2", "3")
TO_OUTPUT = tuple(Edge(place, "c_{k}", "") for place in PLACES[2:])


def darts_v2():
    chosen = [
        ("sep_conv_3x3", 0), ("sep_conv_3x3", 1), ("sep_conv_3x3", 0), ("sep_conv_3x3", 1),
        ("sep_conv_3x3", 1), ("skip_connect", 0), ("skip_connect", 0), ("dil_conv_3x3", 2),
    ]  # fmt: skip
    edges = [Edge(PLACES[source], PLACES[2 + k // 2], operation) for k, (operation, source) in enumerate(chosen)]
    return Graph("normal", nodes(*PLACES, "c_{k}"), (*edges, *TO_OUTPUT))


def darts_belief():
    draws = random.Random(2)
    edges = [
        Edge(PLACES[source], PLACES[target], operation, share)
        for target in range(2, 6)
        for source in range(target)
        for operation, share in zip(OPERATIONS, shares(draws, 8), strict=True)
    ]
    return Graph("normal", nodes(*PLACES, "c_{k}"), (*edges, *TO_OUTPUT))


def seven_vertices():
    labels = ("input", *(["conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3", *["conv3x3-bn-relu"] * 2]), "output")
    pairs = ((0, 1), (0, 2), (0, 4), (1, 3), (2, 3), (3, 5), (4, 5), (1, 6), (5, 6))
    return Graph(
        "cell",
        tuple(Node(str(k), label) for k, label in enumerate(labels)),
        tuple(Edge(str(a), str(b), "") for a, b in pairs),
    )


def chain(decisions=3, options=("conv 3x3", "attention", "identity"), probabilities=(0.62, 0.3, 0.08)):
    names = ("input", *(f"block {k}" for k in range(decisions)))
    edges = [
        Edge(source, target, option, probability)
        for source, target in itertools.pairwise(names)
        for option, probability in zip(options, probabilities, strict=True)
    ]
    return Graph("own model", nodes(*names), tuple(edges))


def wiring():
    draws = random.Random(5)
    pairs = itertools.combinations(range(10), 2)
    edges = [Edge(str(a), str(b), "", 1 if b == a + 1 else draws.random()) for a, b in pairs]
    return Graph("stage", nodes(*map(str, range(10))), tuple(edges))


def any_graph(seed):
    """Any number of nodes, layers and options, some edges certain and some without a label."""
    draws = random.Random(seed)
    names = [f"node {k}" for k in range(draws.randint(1, 9))]
    edges = []
    for source, target in itertools.combinations(names, 2):
        if draws.random() < 0.5:
            options = draws.sample(OPERATIONS, draws.choice((1, 1, 2, 4, 8)))
            probabilities = shares(draws, len(options))
            labels = options if draws.random() < 0.8 else [""] * len(options)
            edges += [Edge(source, target, *option) for option in zip(labels, probabilities, strict=True)]
    return Graph(f"graph {seed}", nodes(*names), tuple(edges))


EXAMPLES = {
    graph.__name__: graph() for graph in (small_cell, small_belief, darts_v2, darts_belief, seven_vertices, wiring)
} | {"chain": chain(), "long chain": chain(14), "nothing": Graph("nothing", (), ())}
examples = pytest.mark.parametrize("graph", [pytest.param(graph, id=name) for name, graph in EXAMPLES.items()])


def parsed(svg):
    """Names without namespaces, which only a document of its own has."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
    return root


def texts(svg):
    return ["".join(element.itertext()) for element in parsed(svg).iter("text")]


def hints(svg):
    return [element.text for element in parsed(svg).iter("title")]


def strokes(svg):
    """Paths of the edges, in the order in which they are drawn."""
    return [group.find("path") for group in parsed(svg).iter("g") if group.find("title") is not None]


def labels(graph):
    return [line.stroke.text for line in picture(graph).lines if line.label]


def two_nodes(*options):
    return Graph("two", nodes("a", "b"), tuple(Edge("a", "b", label, share) for label, share in options))


# ---------------------------------------------------------------------------------------------------------------------
# What is written.


@examples
def test_everything_is_written(graph):
    svg = draw(graph)
    root = parsed(svg)
    assert root.tag == "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == graph.title
    assert len(root.get("viewBox").split()) == 4
    written = texts(svg)
    assert {node.label for node in graph.nodes} <= set(written)
    everywhere = " ".join(hints(svg))
    assert all(edge.label in everywhere for edge in graph.edges)


def test_any_text_is_escaped_and_stays_text():
    graph = Graph(
        "<b> & \"both\" 'quotes' é",
        (Node("a", "<a&b>"), Node("b", "日本語")),
        (Edge("a", "b", 'x < y & "z"', 0.5), Edge("a", "b", "bell\x07", 0.5)),
    )
    svg = draw(graph)
    assert parsed(svg).get("aria-label") == graph.title
    assert texts(svg) == ["<a&b>", "日本語", 'x < y & "z" 50 %', "bell\N{REPLACEMENT CHARACTER} 50 %"]
    assert draw_all([graph]).count("&lt;b&gt; &amp;") == 3


def test_a_long_label_is_shortened_where_it_stands_and_whole_in_the_hint():
    name = "one operation whose name goes on and on for ever"
    svg = draw(two_nodes((name, 1.0)))
    assert any(text.endswith("…") and name.startswith(text[:-1].rstrip()) for text in texts(svg))
    assert f"a → b: {name}" in hints(svg)


def test_labels_of_one_architecture_have_no_percent_and_lines_one_width():
    svg = draw(small_cell())
    assert not any("%" in text for text in texts(svg))
    assert len({stroke.get("stroke-width") for stroke in strokes(svg)}) == 1


def test_labels_of_belief_say_how_likely():
    assert labels(chain(1)) == ["conv 3x3 62 %", "attention 30 %", "identity 8 %"]
    assert labels(two_nodes(("", 0.25))) == ["25 %"]


def test_what_cannot_be_is_not_drawn():
    graph = chain(2, probabilities=(0.0, 1.0, 0.0))
    assert labels(graph) == ["attention", "attention"]
    assert "conv" not in draw(graph)


# ---------------------------------------------------------------------------------------------------------------------
# How strong, and which options.


def test_width_and_opacity_grow_with_probability():
    probabilities = (0.06, 0.1, 0.16, 0.28, 0.4)
    found = strokes(draw(two_nodes(*((f"op {p}", p) for p in reversed(probabilities)))))
    widths = [float(stroke.get("stroke-width")) for stroke in found]
    opacities = [float(stroke.get("stroke-opacity")) for stroke in found]
    assert len(widths) == 5
    assert widths == sorted(set(widths))
    assert opacities == sorted(set(opacities))
    assert widths[0] >= 1
    assert widths[-1] <= 7


def test_unlikely_options_are_hairs_without_a_label():
    graph = two_nodes(("likely", 0.951), ("unlikely", 0.049))
    hair, stroke = strokes(draw(graph))
    assert float(hair.get("stroke-width")) < 1 < float(stroke.get("stroke-width"))
    assert labels(graph) == ["likely 95 %"]
    assert "a → b: unlikely 5 %" in hints(draw(graph))
    assert labels(two_nodes(("likely", 0.95), ("just", 0.05))) == ["likely 95 %", "just 5 %"]


def test_of_many_options_the_five_likeliest_have_an_edge_and_the_rest_share_one():
    shared = [0.01] * 10 + [0.005] * 6
    own = [0.27, 0.24, 0.15, 0.12, 0.09]
    draws = random.Random(0)
    probabilities = draws.sample(own + shared, 21)
    graph = two_nodes(*((f"op{k}", p) for k, p in enumerate(probabilities)))
    expected = [f"op{k} {100 * p:.0f} %" for k, p in enumerate(probabilities) if p in own]
    assert labels(graph) == [*expected, "+16 more (13 %)"]
    assert len(strokes(draw(graph))) == 6
    assert all(f"op{k} " in " ".join(hints(draw(graph))) for k in range(21))


def test_options_that_look_alike_are_counted_one_by_one():
    assert labels(two_nodes(*[("same", 0.125)] * 8))[-1] == "+3 more (38 %)"


def test_six_options_have_an_edge_each():
    assert len(labels(two_nodes(*((f"op{k}", 1 / 6) for k in range(6))))) == 6


def test_a_crowded_picture_labels_the_likeliest_option_of_each_pair_and_has_a_legend():
    graph = darts_belief()
    best = {}
    for edge in graph.edges:
        if edge.label and edge.probability > best.get((edge.source, edge.target), edge).probability:
            best[edge.source, edge.target] = edge
        best.setdefault((edge.source, edge.target), edge)
    expected = [f"{edge.label} {100 * edge.probability:.0f} %" for edge in best.values() if edge.label]
    assert len(expected) == 14
    assert sorted(labels(graph)) == sorted(expected)
    assert [name for name, _, _ in picture(graph).legend] == [*OPERATIONS, "other options"]
    assert set(OPERATIONS) <= set(texts(draw(graph)))


def test_only_more_than_24_edges_are_a_crowd():
    assert len(labels(chain(8))) == 24
    assert not picture(chain(8)).legend
    assert labels(chain(9)) == ["conv 3x3 62 %"] * 9
    assert [name for name, _, _ in picture(chain(9)).legend] == ["conv 3x3", "attention", "identity"]


def test_one_architecture_keeps_all_its_labels_in_a_crowd():
    graph = chain(30, options=("conv 3x3",), probabilities=(1.0,))
    assert labels(graph) == ["conv 3x3"] * 30
    assert not picture(graph).legend


# ---------------------------------------------------------------------------------------------------------------------
# Colours.


def test_an_operation_has_one_colour_in_every_picture():
    seen = {}
    for graph in EXAMPLES.values():
        for line in picture(graph).lines:
            assert seen.setdefault(line.stroke.operation, line.stroke.colour) == line.stroke.colour
    assert len({seen[name] for name in OPERATIONS}) == len(OPERATIONS)


def test_operations_of_no_family_have_colours_of_their_own():
    names = ("gelu", "tanh", "linear", "mlp", "attention", "mixer")
    lines = picture(two_nodes(*((name, 1 / 6) for name in names))).lines
    assert len({line.stroke.colour for line in lines}) == 6


def test_nothing_is_a_dashed_line():
    dashed = {
        line.stroke.operation: stroke.get("stroke-dasharray")
        for line, stroke in zip(drawn_lines(picture(small_cell())), strokes(draw(small_cell())), strict=True)
    }
    assert [name for name, dashes in dashed.items() if dashes] == ["none"]


def test_the_picture_takes_the_colours_of_its_page_or_of_the_screen():
    svg = draw(small_belief())
    assert "var(--ink, #1c2025)" in svg
    light, dark = svg.split("prefers-color-scheme: dark")
    assert "var(--card, #ffffff)" in light
    assert "var(--card, #1b1f24)" in dark
    assert " id=" not in svg, "several pictures may stand in one page"
    assert "href" not in svg


# ---------------------------------------------------------------------------------------------------------------------
# Where things stand.


def overlap(a, b):
    across = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
    down = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
    return across > 1e-6 and down > 1e-6


def drawn_lines(placed):
    """In the order of `strokes`."""
    return sorted(placed.lines, key=lambda line: line.stroke.probability)


def points_of(path):
    """Points along the curves of a path of the SVG."""
    x = y = 0.0
    for command, numbers in re.findall(r"([MCH])([^MCH]*)", path):
        values = [float(number) for number in numbers.split()]
        if command == "C":
            x1, y1, x2, y2, x3, y3 = values
            for k in range(1, 21):
                t = k / 20
                yield tuple(
                    (1 - t) ** 3 * a + 3 * t * (1 - t) ** 2 * b + 3 * t**2 * (1 - t) * c + t**3 * d
                    for a, b, c, d in ((x, x1, x2, x3), (y, y1, y2, y3))
                )
            x, y = x3, y3
        elif command == "H":
            yield from ((x + (values[0] - x) * k / 20, y) for k in range(1, 21))
            [x] = values
        else:
            x, y = values
            yield x, y


def check_geometry(graph):
    placed = picture(graph)
    boxes = [box for _, box in placed.nodes]
    pills = [line.label for line in placed.lines if line.label]
    legend = [box for _, _, box in placed.legend]
    for a, b in itertools.combinations([*boxes, *pills, *legend], 2):
        assert not overlap(a, b)
    for box in [*boxes, *pills, *legend]:
        assert min(box.x, box.y) >= 0
        assert box.x + box.width <= placed.width
        assert box.y + box.height <= placed.height
    found = strokes(draw(graph))
    lines = drawn_lines(placed)
    assert len(found) == len(lines)
    for line, stroke in zip(lines, found, strict=True):
        points = list(points_of(stroke.get("d")))
        assert points[0] == pytest.approx(line.points[0], abs=0.06)
        assert points[-1] == pytest.approx(line.points[-1], abs=0.06)
        half = line.stroke.width / 2
        for box in [*boxes, *(pill for pill in pills if pill is not line.label)]:
            assert not any(
                box.x + 0.1 < x < box.x + box.width - 0.1 and box.y - half < y < box.y + box.height + half
                for x, y in points
            ), f"{line.stroke.hint} runs through a box"
        if line.label:
            middle = line.label.y + line.label.height / 2
            inside = [y for x, y in points if line.label.x < x < line.label.x + line.label.width]
            assert inside
            assert inside == pytest.approx([middle] * len(inside), abs=0.06)


@examples
def test_nothing_lies_on_anything_else(graph):
    check_geometry(graph)


@pytest.mark.parametrize("seed", range(25))
def test_nothing_lies_on_anything_else_in_any_graph(seed):
    check_geometry(any_graph(seed))


@pytest.mark.parametrize("seed", range(25))
def test_nodes_stand_in_columns_by_their_longest_path(seed):
    graph = any_graph(seed)
    net = networkx.DiGraph()
    net.add_nodes_from(node.name for node in graph.nodes)
    net.add_edges_from((edge.source, edge.target) for edge in graph.edges)
    left = {node.name: box.x for node, box in picture(graph).nodes}
    columns = [{left[name] for name in generation} for generation in networkx.topological_generations(net)]
    assert all(len(column) == 1 for column in columns)
    assert [x for column in columns for x in column] == sorted(set(left.values()))


@pytest.mark.parametrize("graph", [small_cell(), seven_vertices()], ids=["small", "seven"])
def test_a_cell_that_needs_no_crossings_has_none(graph):
    ways = [list(points_of(stroke.get("d"))) for stroke in strokes(draw(graph))]
    for one, other in itertools.combinations(ways, 2):
        for (a, b), (c, d) in itertools.product(itertools.pairwise(one), itertools.pairwise(other)):
            assert not crossing(a, b, c, d)


def crossing(a, b, c, d):
    def side(p, q, r):
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def test_a_chain_is_straight():
    graph = chain(4)
    assert len({round(box.y + box.height / 2, 6) for _, box in picture(graph).nodes}) == 1


def test_the_only_labelled_stroke_of_a_connection_is_straight():
    graph = two_nodes(("main", 0.9), ("b", 0.04), ("c", 0.03), ("d", 0.03))
    [main] = [line for line in picture(graph).lines if line.label]
    assert len({round(y, 6) for _, y in main.points}) == 1


def test_a_long_chain_goes_on_in_the_next_row_at_a_node_shown_again():
    placed = picture(chain(14))
    assert placed.width <= graph_svg.WIDEST
    tops = [round(box.y + box.height / 2) for _, box in placed.nodes]
    rows = [
        [node.name for (node, _), top in zip(placed.nodes, tops, strict=True) if top == row]
        for row in sorted(set(tops))
    ]
    assert len(rows) > 1
    for above, below in itertools.pairwise(rows):
        assert above[-1] == below[0]
    assert list(dict.fromkeys(itertools.chain.from_iterable(rows))) == [node.name for node in chain(14).nodes]
    assert sum(line.stroke.operation == "attention" for line in placed.lines) == 14
    again = parsed(draw(chain(14))).findall(".//rect[@class='node'][@stroke-dasharray]")
    assert len(again) == len(rows) - 1


def test_a_row_ends_only_where_everything_passes_through_one_node():
    names = ["input", *(f"{part} {k}" for k in range(7) for part in ("upper", "lower", "sum"))]
    edges = []
    for k in range(0, 21, 3):
        source, upper, lower, end = names[k : k + 4]
        pairs = ((source, upper), (source, lower), (upper, end), (lower, end))
        edges += [Edge(*pair, "attention") for pair in pairs]
    graph = Graph("diamonds", nodes(*names), tuple(edges))
    check_geometry(graph)
    shown = [node.name for node, _ in picture(graph).nodes]
    again = [name for name in names if shown.count(name) > 1]
    assert again
    assert set(again) <= {f"sum {k}" for k in range(6)}
    assert len(picture(graph).lines) == len(edges)


# ---------------------------------------------------------------------------------------------------------------------
# Documents.


def test_several_graphs_stand_below_each_other_with_their_titles():
    graphs = [darts_v2(), chain(), Graph("empty", (), ())]
    svg = draw_all(graphs)
    assert ElementTree.fromstring(svg).tag == f"{SVG}svg"
    written = texts(svg)
    assert [text for text in written if text in ("normal", "own model", "empty")] == ["normal", "own model", "empty"]
    for graph in graphs:
        assert set(texts(draw(graph))) <= set(written)
    moves = [float(re.findall(r"[\d.]+", g.get("transform"))[1]) for g in parsed(svg).findall("g")]
    for above, top, below in zip(graphs, moves, moves[1:], strict=False):
        assert top + picture(above).height <= below
    width, height = (float(value) for value in parsed(svg).get("viewBox").split()[2:])
    assert width >= max(picture(graph).width for graph in graphs) - 1
    assert height >= moves[-1] + picture(graphs[-1]).height - 1


@examples
def test_the_same_graph_gives_the_same_text(graph, monkeypatch):
    shared = draw(graph)
    monkeypatch.setattr(graph_svg, "picture", picture.__wrapped__)
    assert draw(graph) == shared


def test_the_text_does_not_depend_on_the_hashes_of_a_process():
    graph = darts_belief()
    # Drawing needs nothing of what the packages around it import, which takes seconds.
    code = f"""
import sys, types
for package in ("report", "spaces"):
    sys.modules[f"polyarch.{{package}}"] = module = types.ModuleType(package)
    module.__path__ = [{str(Path(graph_svg.__file__).parents[1])!r} + "/" + package]
from polyarch.report.graph_svg import draw
from polyarch.spaces.graph import Edge, Graph, Node
sys.stdout.buffer.write(draw({graph!r}).encode())
"""
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, check=True
    )
    assert told.stdout.decode() == draw(graph)


@pytest.mark.parametrize(("source", "target"), [("b", "a"), ("a", "a"), ("a", "c"), ("c", "a")])
def test_an_edge_that_does_not_lead_on_is_named(source, target):
    with pytest.raises(PolyarchError, match=f"from '{source}' to '{target}' of the graph 'bad'.*topological"):
        draw(Graph("bad", nodes("a", "b"), (Edge(source, target, ""),)))


def test_two_nodes_of_one_name_are_refused():
    with pytest.raises(PolyarchError, match="same name"):
        draw(Graph("bad", nodes("a", "a"), ()))


def test_the_command_line_draws_what_every_seed_selected_and_believes(cell_search, tmp_path, capsys):
    show(cell_search.folder, svg=tmp_path / "cells.svg")
    capsys.readouterr()
    written = texts((tmp_path / "cells.svg").read_text(encoding="utf-8"))
    titles = [f"cell, {what}, seed {seed}" for seed in (0, 1) for what in ("selected", "belief")]
    assert [text for text in written if "seed" in text] == titles


# ---------------------------------------------------------------------------------------------------------------------
# In a real browser, whose fonts are not guessed.

TOO_WIDE = """[...document.querySelectorAll('text')].filter(text => {
  const box = text.previousElementSibling;
  return box && box.tagName === 'rect' && box.getBBox().width < text.getBBox().width + 4;
}).map(text => text.textContent)"""
COLOURS = """['text', '.card', '.node'].map(name => getComputedStyle(document.querySelector(name)).fill)"""


@pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome on the PATH")
def test_texts_fit_their_boxes_and_colours_follow_the_screen(tmp_path):
    page = tmp_path / "all.svg"
    page.write_text(draw_all(list(EXAMPLES.values())), encoding="utf-8")
    with Browser() as browser:
        light = browser.open(page, TOO_WIDE, COLOURS)
        dark = browser.open(page, TOO_WIDE, COLOURS, dark=True)
    assert light.complaints == []
    assert light.values[0] == dark.values[0] == []
    assert light.values[1] == ["rgb(28, 32, 37)", "rgb(255, 255, 255)", "rgb(241, 244, 247)"]
    assert dark.values[1] == ["rgb(230, 233, 236)", "rgb(27, 31, 36)", "rgb(35, 40, 46)"]
