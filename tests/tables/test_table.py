"""A table of a small space, compared with a dictionary; and spaces whose keys are not their texts."""

import itertools
import pickle
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from polyarch import Decision, PolyarchError
from polyarch.spaces import Space
from polyarch.tables import Coverage, Table, open_table
from polyarch.testing.toy import Lines, every_choice

LINES = Lines()
TEXTS = [LINES.format(c) for c in itertools.product(range(3), range(2))]
ORDER = [3, 0, 5, 1, 4, 2]
ACC = np.array([0.3, 0.0, 0.5, 0.1, 0.4, 0.2])  # text k of the space has k / 10


def lines(order=ORDER, **arrays):
    return Table("t.npz", {"arch": np.array([TEXTS[k] for k in order]), **arrays})


@dataclass(frozen=True, kw_only=True)
class Dials(Space):
    """Dials of ten digits; a table knows them by the sum alone."""

    name: ClassVar[str] = "dials"
    dials: int = 2
    by_sum: bool = False

    @property
    def decisions(self):
        return tuple(Decision(f"d{k}", tuple("0123456789")) for k in range(self.dials))

    def key(self, architecture):
        return f"sum{sum(architecture.choices)}" if self.by_sum else architecture.text

    def supernet(self, shape, repeats=1):
        raise NotImplementedError

    def build(self, architecture, shape):
        raise NotImplementedError


def test_values_by_choices_text_and_architecture_agree_with_the_texts():
    table = lines(acc=ACC)
    choices = every_choice(LINES)[[5, 0, 0, 2, 3, 1, 4, 5]]
    values = table.values("acc", LINES, choices)
    assert values.dtype == torch.float64
    assert values.tolist() == [0.5, 0.0, 0.0, 0.2, 0.3, 0.1, 0.4, 0.5]
    texts = [a.text for a in LINES.decode(choices)]
    assert table.look_up("acc", texts).tolist() == values.tolist()
    assert [table.value("acc", LINES, LINES.parse(text)) for text in texts] == values.tolist()
    assert table.values("acc", LINES, choices[:0]).shape == (0,)


def test_a_second_question_sees_what_the_first_did_not_ask():
    table = lines(acc=ACC)
    every = every_choice(LINES)
    assert table.values("acc", LINES, every[2:4]).tolist() == [0.2, 0.3]
    assert table.values("acc", LINES, every).tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize("dials", [2, 4, 7])  # 7: ten million, too many for an index
def test_bulk_answers_equal_a_dictionary(dials):
    space = Dials(dials=dials)
    generator = torch.Generator().manual_seed(0)
    known = torch.randint(10, (500, dials), generator=generator).unique(dim=0)
    numbers = np.random.default_rng(0).normal(size=len(known))
    table = Table("t.npz", {"arch": np.array([a.text for a in space.decode(known)]), "x": numbers})
    asked = torch.randint(len(known), (2000,), generator=generator)
    assert np.array_equal(table.values("x", space, known[asked]).numpy(), numbers[asked.numpy()])


def test_architectures_with_one_key_share_a_row():
    space = Dials(by_sum=True)
    table = Table("t.npz", {"module_hash": np.array([f"sum{k}" for k in range(10)]), "x": np.arange(10.0)})
    assert table.values("x", space, torch.tensor([[3, 4], [4, 3], [0, 0]])).tolist() == [7.0, 7.0, 0.0]
    assert table.coverage(space) == Coverage(
        100, 55, ("d0=1,d1=9 (sum10)", "d0=2,d1=8 (sum10)", "d0=2,d1=9 (sum11)"), 0
    )
    with pytest.raises(
        PolyarchError, match=r"no row for 2 .* asked for: 'd0=5,d1=6 \(sum11\)', 'd0=9,d1=9 \(sum18\)';"
    ):
        table.values("x", space, torch.tensor([[9, 9], [5, 6], [9, 9]]))


def test_what_a_caller_does_to_the_numbers_does_not_change_the_table():
    table = lines(acc=ACC)
    table.values("acc", LINES, every_choice(LINES)).zero_()
    table.look_up("acc", TEXTS)[:] = 0
    with pytest.raises(ValueError, match="read-only"):
        table.whole("acc")[:] = 0
    assert table.whole("acc").tolist() == ACC.tolist()


def test_what_is_missing_is_said_and_never_guessed():
    table = lines(ORDER[:4], acc=ACC[:4])
    with pytest.raises(PolyarchError) as failed:
        table.values("acc", LINES, every_choice(LINES))
    assert "t.npz: no row for 2 of the architectures asked for" in str(failed.value)
    assert f"{TEXTS[2]!r}, {TEXTS[4]!r}; see `polyarch table info --space lines`" in str(failed.value)
    with pytest.raises(PolyarchError, match=r"no row for 4 .*: 'a', 'b', 'c', \.\.\.; write them exactly"):
        table.look_up("acc", ["a", TEXTS[0], "b", "b", "c", "d"])


def test_coverage():
    whole, part = lines(acc=ACC), lines(ORDER[:2], acc=ACC[:2])
    assert whole.coverage(LINES) == Coverage(6, 6, (), 0)
    assert part.coverage(LINES) == Coverage(6, 2, (TEXTS[1], TEXTS[2], TEXTS[4]), 0)
    mixed = Table("t.npz", {"arch": np.array([*TEXTS, "d0=1,d1=2"]), "acc": np.arange(7.0)})
    assert mixed.coverage(LINES) == Coverage(6, 6, (), 1)


def test_coverage_of_a_space_too_large_to_enumerate():
    space = Dials(dials=7)
    texts = [space.format([k] * 7) for k in range(4)]
    table = Table("t.npz", {"arch": np.array([*texts, "x", texts[3].replace(",", ", ")]), "a": np.arange(6)})
    assert table.coverage(space) == Coverage(10**7, 4, (), 2)


@pytest.mark.parametrize("dials", [2, 7])
def test_texts_of_another_space(dials):
    table = lines(acc=ACC)
    with pytest.raises(
        PolyarchError, match=r"none of its 6 rows is of the space 'dials'; the first .* unknown decision"
    ):
        table.coverage(Dials(dials=dials))
    spelt = Table("t.npz", {"arch": np.array([text.replace(",", ", ") for text in TEXTS]), "acc": ACC})
    with pytest.raises(PolyarchError, match=f"none of its 6 rows .* the space writes '{TEXTS[0]}'"):
        spelt.coverage(LINES)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([[0, 2]], "an option that a decision of the space 'lines' does not have"),  # its code would be that of [1, 0]
        ([[1, -1]], "an option that a decision"),
        ([[0, 0, 0]], r"int64 of shape \[1, 3\]; the space 'lines' takes whole numbers \[n, 2\]"),
        ([0, 0], r"of shape \[2\]"),
        ([[0.0, 1.0]], "choices are float32"),
    ],
)
def test_choices_that_are_none(choices, message):
    with pytest.raises(PolyarchError, match=message):
        lines(acc=ACC).values("acc", LINES, torch.tensor(choices))


def test_a_column_with_gaps_cannot_be_asked_and_the_others_can():
    gaps = ACC.copy()
    gaps[[1, 4]] = np.nan, np.inf
    table = lines(acc=ACC, gaps=gaps, several=np.stack([ACC, gaps], 1))
    for name in ("gaps", "several[1]"):
        for ask in (
            lambda: table.values(name, LINES, every_choice(LINES)[:1]),  # noqa: B023
            lambda: table.look_up(name, TEXTS[:1]),  # noqa: B023
            lambda: table.best(name, better="lower"),  # noqa: B023
        ):
            with pytest.raises(PolyarchError, match="no finite number in 2 of its 6 rows, first in row 1") as failed:
                ask()
            assert repr(name) in str(failed.value)
    assert table.value("several[0]", LINES, LINES.parse(TEXTS[4])) == 0.4
    assert np.isnan(table.with_gaps("gaps")[1])


def test_best_goes_by_the_columns_direction():
    table = lines(acc=ACC, loss=ACC, zen=ACC, tied=np.array([1, 2, 2, 1, 2, 0]))
    assert table.best("acc", 2) == [(TEXTS[5], 0.5), (TEXTS[4], 0.4)]
    assert table.best("loss", 2) == [(TEXTS[0], 0.0), (TEXTS[1], 0.1)]
    assert table.best("acc", 1, better="lower") == [(TEXTS[0], 0.0)]
    assert [value for _, value in table.best("acc", 99)] == sorted(ACC, reverse=True)
    assert table.best("tied", 3, "higher") == [(TEXTS[ORDER[k]], 2.0) for k in (1, 2, 4)]  # as they stand in the file
    with pytest.raises(PolyarchError, match="'zen' does not say which direction is better; add --higher or --lower"):
        table.best("zen")
    with pytest.raises(PolyarchError, match="top is 0; it must be at least 1"):
        table.best("acc", 0)


def test_unknown_columns():
    table = lines(test_acc=ACC, latency_ms=np.stack([ACC] * 3, 1), devices=np.array(["a", "b", "c"]))
    with pytest.raises(PolyarchError, match=r"unknown column of t.npz 'tset_acc'; did you mean 'test_acc'"):
        table.best("tset_acc")
    with pytest.raises(PolyarchError, match=r"no column 'latency_ms'; latency_ms has the columns \[a, b, c\]"):
        table.look_up("latency_ms", TEXTS)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"acc": ACC}, "no array arch or module_hash"),
        ({"arch": np.array(TEXTS)}, "no column; add arrays of numbers, one for each of its 6 texts"),
        ({"arch": np.array(TEXTS), "acc": ACC[:5]}, "no column; add arrays"),
        ({"arch": np.array(TEXTS)[:0], "acc": ACC[:0]}, "arch is empty"),
        ({"arch": np.array(TEXTS)[:, None], "acc": ACC}, r"arch is <U\d+ of shape \[6, 1\]; it must be texts"),
        ({"arch": np.arange(6), "acc": ACC}, r"arch is int64 of shape \[6\]; it must be texts"),
        (
            {"arch": np.array(["a", "b", "a", "c", "b", "a"]), "acc": ACC},
            "2 architectures stand in several rows: 'a' in rows 0, 2, 5; 'b' in rows 1, 4; keep one",
        ),
        (
            {"arch": np.array(["a", "b", "c", "d"] * 2), "acc": np.zeros(8)},
            "4 architectures .* 'c' in rows 2, 6, ...; keep one",
        ),
    ],
)
def test_arrays_that_are_no_table(arrays, message):
    with pytest.raises(PolyarchError, match=f"t.npz: {message}"):
        Table("t.npz", arrays)


def test_files_that_are_no_table(tmp_path):
    np.savez_compressed(tmp_path / "whole.npz", arch=np.array(TEXTS), acc=ACC)
    assert open_table(tmp_path / "whole.npz").look_up("acc", TEXTS).tolist() == ACC.tolist()
    whole = (tmp_path / "whole.npz").read_bytes()
    middle = len(whole) // 3
    contents = {
        "empty.npz": b"",
        "cut.npz": whole[:-30],
        "changed.npz": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
        "pickle.npz": pickle.dumps({"arch": TEXTS}),
        "text.npz": b"arch,acc\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    np.savez(tmp_path / "objects.npz", arch=np.array(TEXTS, object), acc=ACC)
    np.savez(tmp_path / "hidden.npz", arch=np.array(TEXTS), acc=ACC, notes=np.array([{}]))
    np.savez(tmp_path / "data.npz", x=np.zeros((3, 2)), y=np.arange(3))
    for name in [*contents, "objects.npz", "hidden.npz", "data.npz"]:
        with pytest.raises(PolyarchError, match=name) as failed:
            open_table(tmp_path / name)
        assert "\n" not in str(failed.value)
    with pytest.raises(PolyarchError, match=r"no array arch \(it holds x, y\); write it with numpy.savez\(path, arch="):
        open_table(tmp_path / "data.npz")
