"""From what a method learnt to the text of the selected architecture, worked out again in plain Python.

Names, orders and counts are written out here as the benchmarks have them; nothing of the spaces' own is used.
"""

import itertools
import math

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch.distributions import selection
from polyarch.scores.parameters import Parameters
from polyarch.scores.sampling import sample_and_score
from polyarch.training.dry_run import prepare

NASBENCH201 = ["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"]
DARTS = ["none", "max_pool_3x3", "avg_pool_3x3", "skip_connect", "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3",
         "dil_conv_5x5"]  # fmt: skip
NASBENCH101 = ["conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3"]
PARENTS = {
    1: {"3": (3, 2), "4": (4, 2), "-out": (5, 2)},
    2: {"2": (2, 1), "3": (3, 2), "4": (4, 2), "-out": (5, 3)},
    3: {"2": (2, 1), "3": (3, 1), "4": (4, 2), "5": (5, 2), "-out": (6, 2)},
}
"""By sub-space and vertex: how many may be parents, and how many are."""
DRAWS = 20


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    np.savez(folder / "images.npz", x=random.integers(0, 256, (32, 1, 8, 8), np.uint8), y=np.arange(32) % 2)
    return pa.data.load(folder / "images.npz", select=0.5, test=0)


# ---------------------------------------------------------------------------------------------------------------------
# Weights of operations, from what each method learns.


def softmax(row):
    shares = [math.exp(value - max(row)) for value in row]
    return [share / sum(shares) for share in shares]


def dirichlet_mean(row):
    sizes = [value + 1 if value > 0 else math.exp(value) for value in row]
    return [size / sum(sizes) for size in sizes]


METHODS = {
    pa.methods.Darts: softmax,
    pa.methods.Gdas: softmax,
    pa.methods.Drnas: dirichlet_mean,
    pa.methods.Balenas: softmax,
}


# ---------------------------------------------------------------------------------------------------------------------
# Texts, from weights [simplices][options].


def nasbench201_cell(weights):
    """Of every edge the best operation, none included."""
    edges = iter(weights)
    nodes = []
    for target in (1, 2, 3):
        rows = [next(edges) for _ in range(target)]
        nodes.append("|" + "".join(f"{NASBENCH201[row.index(max(row))]}~{k}|" for k, row in enumerate(rows)))
    return "+".join(nodes)


def darts_genotype(weights):
    """Of every edge the best operation but none, of a node's edges the two whose operation weighs most."""
    edges = iter(weights)
    cells = []
    for _ in ("normal", "reduce"):
        pairs = []
        for node in range(4):
            rows = [next(edges)[1:] for _ in range(node + 2)]
            best = sorted(range(len(rows)), key=lambda source, rows=rows: -max(rows[source]))[:2]
            pairs += [(DARTS[1:][rows[source].index(max(rows[source]))], source) for source in best]
        cells.append(pairs)
    return darts_text(*cells)


def darts_text(normal, reduce):
    return f"Genotype(normal={normal}, normal_concat=[2, 3, 4, 5], reduce={reduce}, reduce_concat=[2, 3, 4, 5])"


def nasbench1shot1_cell(sub_space):
    """Of every vertex the best operation, and as many of the best parents as it takes."""
    parents = PARENTS[sub_space]

    def text(weights):
        nodes = len(weights) - len(parents)
        said = [f"op{k + 1}={NASBENCH101[row.index(max(row))]}" for k, row in enumerate(weights[:nodes])]
        for (vertex, (possible, taken)), row in zip(parents.items(), weights[nodes:], strict=True):
            row = row[:possible]
            best = sorted(sorted(range(possible), key=lambda parent, row=row: -row[parent])[:taken])
            said.append(f"parents{vertex}={'+'.join(map(str, best))}")
        return ",".join(said)

    return text


SPACES = {
    "nasbench201": (pa.spaces.NasBench201(channels=2, cells=1), nasbench201_cell, [5] * 6),
    "darts": (pa.spaces.Darts(channels=2, layers=3), darts_genotype, [8] * 28),
    **{
        f"nasbench1shot1-{k}": (
            pa.spaces.NasBench1Shot1(sub_space=k, channels=2, cells=3),
            nasbench1shot1_cell(k),
            [3] * (5 if k == 3 else 4) + [possible for possible, _ in PARENTS[k].values()],
        )
        for k in PARENTS
    },
}


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("cls", METHODS)
def test_selected_from_random_weights(images, cls, name):
    space, text_of, sizes = SPACES[name]
    method = cls(batch_size=8)
    problem, state, _ = prepare(method, space, images, images.seen(images.train), repeats=2)
    [learnt] = [value for value in state.belief.values() if value.requires_grad]
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(DRAWS):
        with torch.no_grad():
            learnt.normal_(generator=generator)
        belief = method.distribution(problem.space, state.belief)
        for repeat in range(2):
            rows = [row[:size] for row, size in zip(learnt[repeat].tolist(), sizes, strict=True)]
            expected = text_of([METHODS[cls](row) for row in rows])
            choices = selection.select(belief.repeat(repeat), "argmax")
            assert space.architecture(choices).text == expected
            found.append(expected)
    assert len(set(found)) > DRAWS, "the draws must differ to tell anything"
    assert any("none" in text for text in found) == (name == "nasbench201")


@pytest.mark.parametrize("name", SPACES)
def test_mode_of_factorised_belief(images, name):
    """PARSEC: the best option of every decision, which in darts is a pair of operation and input, zero left out."""
    space = SPACES[name][0]
    method = pa.methods.Parsec(batch_size=8)
    _, state, _ = prepare(method, space, images, images.seen(images.train), repeats=1)
    with torch.no_grad():
        state.belief["logits"].normal_(generator=torch.Generator().manual_seed(1))
    rows = state.belief["logits"][0].tolist()
    architecture = space.architecture(selection.select(method.distribution(space, state.belief).repeat(0), "argmax"))
    if name == "nasbench201":
        assert architecture.text == nasbench201_cell(rows)
    elif name == "darts":
        cells = []
        for first in (0, 8):
            pairs = []
            for slot in range(8):
                sources = slot // 2 + 2
                row = rows[first + slot][: 7 * sources]
                source, operation = divmod(row.index(max(row)), 7)
                pairs.append((DARTS[1:][operation], source))
            cells.append(pairs)
        assert architecture.text == darts_text(*cells)
    else:
        parents = PARENTS[int(name[-1])]
        nodes = len(rows) - len(parents)
        said = [f"op{k + 1}={NASBENCH101[row[:3].index(max(row[:3]))]}" for k, row in enumerate(rows[:nodes])]
        for (vertex, (possible, taken)), row in zip(parents.items(), rows[nodes:], strict=True):
            ways = list(itertools.combinations(range(possible), taken))
            chosen = ways[row.index(max(row[: len(ways)]))]
            said.append(f"parents{vertex}={'+'.join(map(str, chosen))}")
        assert architecture.text == ",".join(said)


@pytest.mark.parametrize("name", ["nasbench201", "darts", "nasbench1shot1-2"])
def test_what_a_run_selects(tmp_path, images, name):
    """The same through a search: the run's own choice, its rule asked again, and what `polyarch select` prints."""
    space, text_of, sizes = SPACES[name]
    run = pa.search(space, images, pa.methods.Balenas(batch_size=16, epochs=1), out=tmp_path / "run")
    rows = [row[:size] for row, size in zip(run.belief["mean"][0].tolist(), sizes, strict=True)]
    expected = text_of([softmax(row) for row in rows])
    assert run.architecture.text == run.selected("argmax").text == expected
    assert sample_and_score(run, Parameters(), n=2).argmax.architecture.text == expected
