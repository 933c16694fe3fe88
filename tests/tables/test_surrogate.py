"""NAS-Bench-301's surrogate as a table, compared with its model, which is run directly on codes written by hand."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from polyarch import PolyarchError
from polyarch.spaces import Darts, Listed, NasBench201, Restricted
from polyarch.tables import Surrogate, find_table, find_truth, known_tables, open_table
from polyarch.tables.any_batch import any_batch

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "nasbench301"
MODEL = FOLDER / "nb301_surrogate.onnx"
SPACE = Darts()
DARTS_V2 = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], "
    "normal_concat=[2, 3, 4, 5], "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), "
    "('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], "
    "reduce_concat=[2, 3, 4, 5])"
)
OTHER = DARTS_V2.replace("sep_conv_3x3", "sep_conv_5x5")
TWICE = DARTS_V2.replace("('dil_conv_3x3', 2)", "('dil_conv_3x3', 0)")  # beside a skip from there


@pytest.fixture(scope="module")
def surrogate():
    if not MODEL.exists():
        pytest.skip("nasbench301 is not beside the checkout")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    return open_table(MODEL)


def directly(codes):
    """What the model, as its file has it, says of some codes [34], one by one."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    epoch = np.full((1, 1), 98, np.float32)
    return [session.run(None, {"x_cat": np.array([row], np.int32), "x_cont": epoch})[0][0] for row in codes]


def choices_of(*texts):
    return torch.tensor([SPACE.parse(text).choices for text in texts])


def test_a_cell_encoded_by_hand(surrogate):
    """DARTS_V2: each node's edges are counted from its input 0 on; edges begin at 0, 2, 5 and 9."""
    said = json.loads((FOLDER / "encoding.json").read_text())
    edges = {
        "normal": {
            **{0: "sep_conv_3x3", 1: "sep_conv_3x3"},
            **{2: "sep_conv_3x3", 3: "sep_conv_3x3"},
            **{6: "sep_conv_3x3", 5: "skip_connect"},
            **{9: "skip_connect", 11: "dil_conv_3x3"},
        },
        "reduce": {
            **{0: "max_pool_3x3", 1: "max_pool_3x3"},
            **{4: "skip_connect", 3: "max_pool_3x3"},
            **{5: "max_pool_3x3", 7: "skip_connect"},
            **{11: "skip_connect", 10: "max_pool_3x3"},
        },
    }
    inputs = {"normal": {3: "0_1", 4: "0_1", 5: "0_2"}, "reduce": {3: "1_2", 4: "0_2", 5: "1_2"}}
    prefix = "NetworkSelectorDatasetInfo_COLON_darts_COLON_"
    codes = [said[f"{prefix}edge_{cell}_{k}"][edges[cell].get(k, "#na#")] for cell in edges for k in range(14)]
    codes += [said[f"{prefix}inputs_node_{cell}_{k}"][inputs[cell][k]] for cell in inputs for k in (3, 4, 5)]
    assert len(codes) == 34
    [(accuracy, seconds)] = directly([codes])
    assert surrogate.value("val_accuracy", SPACE, SPACE.parse(DARTS_V2)) == pytest.approx(accuracy, abs=1e-4)
    assert surrogate.value("runtime", SPACE, SPACE.parse(DARTS_V2)) == pytest.approx(seconds, abs=0.1)
    assert 90 < accuracy < 97


def test_the_order_of_edges_is_the_models(surrogate):
    """A skip from a reduction cell's input must halve the image, which takes time; one from a node does nothing.

    The model must see this on every one of the 14 edges. The file of codes sorts edges as texts, 10 before 2: in that
    order it does not.
    """
    choices = surrogate.random(SPACE, 12_000, torch.Generator().manual_seed(0))
    pairs = np.array([option.split("~") for option in SPACE.decisions[-1].options])  # has those of all others
    names, sources = pairs[:, 0], pairs[:, 1].astype(int)
    operations, inputs = names[choices.numpy()], sources[choices.numpy()]
    counts = [(operations[:, half] == name).sum(1) for half in (np.s_[:8], np.s_[8:]) for name in set(names)]
    seconds = surrogate.values("runtime", SPACE, choices).numpy()
    design = np.stack(counts, 1).astype(float)  # eight a cell, so that these have a constant among them
    left = seconds - design @ np.linalg.lstsq(design, seconds, rcond=None)[0]
    for node in range(4):
        for source in range(node + 2):
            slots = np.s_[8 + 2 * node : 10 + 2 * node]
            has = ((operations[:, slots] == "skip_connect") & (inputs[:, slots] == source)).any(1)
            assert (left[has].mean() > 0) == (source < 2), (node, source)


def test_thousands_at_once_are_what_each_is_alone(surrogate):
    choices = surrogate.random(SPACE, 9000, torch.Generator().manual_seed(1))
    assert len(choices) == 9000
    values = surrogate.values("val_accuracy", SPACE, choices)
    assert values.dtype == torch.float64
    some = [0, 4000, 8191, 8192, 8999]
    alone = [surrogate.value("val_accuracy", SPACE, SPACE.architecture(choices[k].tolist())) for k in some]
    assert values[some].tolist() == pytest.approx(alone, abs=1e-4)


def test_equal_cells_have_equal_predictions(surrogate):
    """A node's two slots are added: their order is nothing."""
    choices = surrogate.random(SPACE, 200, torch.Generator().manual_seed(2))
    swapped = choices.unflatten(1, (8, 2)).flip(-1).flatten(1)
    assert not torch.equal(choices, swapped)
    for column in ("val_accuracy", "runtime"):
        assert torch.equal(surrogate.values(column, SPACE, choices), surrogate.values(column, SPACE, swapped))


def test_published_cells_are_in_order(surrogate):
    from reproduce.surrogate import CELLS

    values = {name: surrogate.value("val_accuracy", SPACE, SPACE.parse(text)) for name, text in CELLS.items()}
    best, second = sorted((values[name] for name in values if "DARTS" in name), reverse=True)[:2]
    assert (best, second) == (values["PC-DARTS (Xu et al. 2020)"], values["P-DARTS (Chen et al. 2019)"])
    random = surrogate.values("val_accuracy", SPACE, surrogate.random(SPACE, 1000, torch.Generator().manual_seed(3)))
    assert all((random < values[name]).double().mean() > 0.98 for name in values if "DARTS" in name)


def test_parts_of_the_space_and_what_is_none(surrogate):
    texts = [DARTS_V2, OTHER]
    whole = surrogate.values("val_accuracy", SPACE, choices_of(*texts)).tolist()
    convolutions = [name for name in SPACE.decisions[0].options if "pool" not in name]
    part = Restricted(SPACE, {"normal.0.0": convolutions})
    for space in (Darts(channels=36, layers=20, network="evaluation"), Listed(SPACE, texts), part):
        choices = torch.tensor([space.parse(text).choices for text in texts])
        assert surrogate.values("val_accuracy", space, choices).tolist() == pytest.approx(whole, abs=1e-4)
    with pytest.raises(PolyarchError, match="for cells of the space 'darts', not for the space 'nasbench201'; take"):
        surrogate.coverage(NasBench201())
    with pytest.raises(PolyarchError, match="name an option that a decision of the space 'darts' does not have"):
        surrogate.values("runtime", SPACE, torch.full((1, 16), 40))


def test_cells_that_take_an_input_twice(surrogate):
    both = choices_of(DARTS_V2, TWICE)
    known = surrogate.known("val_accuracy", SPACE, both)
    assert np.isfinite(known).tolist() == [True, False]
    with pytest.raises(PolyarchError, match=r"no prediction for 1 of the 2 .* takes the same input twice") as error:
        surrogate.values("val_accuracy", SPACE, both)
    assert "\n" not in str(error.value)
    listed = surrogate.coverage(Listed(SPACE, [DARTS_V2, TWICE]))
    assert (listed.architectures, listed.covered) == (2, 1)
    # Of two inputs 1 pair of 4 orders in 2, and so on: 7 operations a slot, both cells.
    per_cell = np.prod([inputs * (inputs - 1) * 49 for inputs in (2, 3, 4, 5)], dtype=object)
    assert surrogate.coverage(SPACE).covered == per_cell**2


def test_what_it_says_as_the_truth(surrogate):
    truth = find_truth(SPACE, MODEL, splits=("valid",))
    truth.check_fits()
    assert (truth.column.name, truth.better, truth.column.split) == ("val_accuracy", "higher", "prediction")
    drawn = truth.draw(50, seed=1)
    assert len(set(drawn)) == 50
    assert truth.draw(20, seed=1) == drawn[:20]
    found = truth.result(SPACE, SPACE.parse(DARTS_V2))
    assert found["predicted"] is True
    assert (found["best"], found["random"]["architectures"]) == (None, 1000)
    assert 94 < found["random"]["mean"] < found["selected"] < 96
    assert truth.known(SPACE, choices_of(TWICE)) == [None]


def test_names_folders_and_files_that_do_not_fit(surrogate, tmp_path, monkeypatch):
    monkeypatch.setenv("POLYARCH_TABLES", str(FOLDER.parent))
    assert find_table("nasbench301") == known_tables()["nasbench301"] == MODEL
    alone = tmp_path / "model.onnx"
    shutil.copy(MODEL, alone)
    with pytest.raises(PolyarchError, match=r"encoding.json: there is none"):
        Surrogate(alone)
    codes = tmp_path / "encoding.json"
    codes.write_text("{}")
    with pytest.raises(PolyarchError, match=r"encoding.json: it is no encoding of NAS-Bench-301 \(KeyError"):
        Surrogate(alone)
    shutil.copyfile(FOLDER / "encoding.json", codes)
    assert Surrogate(alone).columns == surrogate.columns
    for content in (b"", b"no model at all", MODEL.read_bytes()[:-1000]):
        broken = tmp_path / "broken.onnx"
        broken.write_bytes(content)
        with pytest.raises(PolyarchError, match=r"broken.onnx: "):
            Surrogate(broken)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(PolyarchError, match=r"needs onnxruntime; install polyarch\[onnx\]"):
        open_table(MODEL)


def message(*fields):
    """Bytes of a message: numbers of fields, and what they hold, texts or numbers below 128."""
    parts = [
        bytes([number << 3, value]) if isinstance(value, int) else bytes([number << 3 | 2, len(value)]) + value
        for number, value in fields
    ]
    return b"".join(parts)


def test_only_the_first_dimensions_of_inputs_and_outputs_are_opened():
    def named(*sizes):
        dimensions = [(1, message((1, size))) for size in sizes]
        tensor = message((1, 1), (2, message(*dimensions)))
        return message((1, b"x"), (2, message((1, tensor))))

    weight = message((1, 1), (8, b"\x08\x01"))
    model = message((1, 6), (7, message((5, weight), (11, named(1, 3)), (11, named(4, 1)), (12, named(1, 1)))))
    changed = [k for k, (old, new) in enumerate(zip(model, any_batch(model), strict=True)) if old != new]
    assert len(changed) == 4, "two bytes of one input, and of the output"
    assert bytes(any_batch(model)[k] for k in changed) == b"\x12\x00" * 2, "a name, which is empty"
    for broken in (b"\x0f", b"\x3a\x90\x4e\x08"):
        with pytest.raises((ValueError, IndexError)):
            any_batch(broken + b"\x80")
