from polyarch.spaces import Darts, NasBench201
from polyarch.spaces.cells import collapse
from polyarch.spaces.graph import Edge, Graph, Node

CELLS, DARTS = NasBench201(), Darts()
SKIPS = "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|"


def chain(*labels):
    nodes = tuple(Node(str(k), str(k)) for k in range(len(labels) + 1))
    return Graph("chain", nodes, tuple(Edge(str(k), str(k + 1), label) for k, label in enumerate(labels)))


def test_depth_counts_edges_that_lead_to_the_end():
    assert chain("a", "b", "c").depth() == 3
    assert chain("a", "none", "c").depth() == 0
    shortcut = chain("a", "none", "c")
    assert Graph("g", shortcut.nodes, (*shortcut.edges, Edge("0", "2", "b"))).depth() == 2


def test_the_cell_of_skips_has_collapsed():
    assert collapse(CELLS, CELLS.parse(SKIPS)) == {"cell_depth": 3.0, "skip_share": 1.0, "collapsed": 1.0}
    one_less = CELLS.parse(SKIPS.replace("skip_connect~2", "none~2"))
    assert collapse(CELLS, one_less) == {"cell_depth": 2.0, "skip_share": 5 / 6, "collapsed": 0.0}


def test_a_darts_cell_bears_three_skips_of_eight():
    def genotype(skips):
        pairs = [(("skip_connect" if k < skips else "sep_conv_3x3"), k % 2) for k in range(8)]
        text = f"Genotype(normal={pairs}, normal_concat=[2, 3, 4, 5], reduce={pairs}, reduce_concat=[2, 3, 4, 5])"
        return DARTS.parse(text)

    assert collapse(DARTS, genotype(3)) == {"cell_depth": 2.0, "skip_share": 3 / 8, "collapsed": 0.0}
    assert collapse(DARTS, genotype(4))["collapsed"] == 1.0


def test_depth_of_a_darts_cell_is_two_to_five():
    deep = [("sep_conv_3x3", 0), ("sep_conv_3x3", 1)]
    for node in range(3):
        deep += [("sep_conv_3x3", node + 2), ("sep_conv_3x3", 0)]
    text = f"Genotype(normal={deep}, normal_concat=[2, 3, 4, 5], reduce={deep}, reduce_concat=[2, 3, 4, 5])"
    assert collapse(DARTS, DARTS.parse(text))["cell_depth"] == 5.0
