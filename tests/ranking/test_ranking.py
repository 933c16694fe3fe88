"""Rankings: evaluated once, kept in a folder, gone on with, and drawn."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import scipy.stats
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.data.likelihood import Classification
from polyarch.data.task import Split, TaskShape
from polyarch.distributions import Categorical
from polyarch.ranking import draw, mean_of_best, rank, spearman
from polyarch.ranking.figure import draw_ranking
from polyarch.scores import Candidate, Macs, Parameters, Score, Sog, Sotl, SynFlow, TrainLoss, ValidLoss
from polyarch.spaces import NasBench201, ResidualDepth
from polyarch.streams import Streams

SPACE, SHAPE = NasBench201(channels=2, cells=1), TaskShape((1, 6, 6), 3)
QUICK = {"steps": 2, "batch_size": 4}
TUNED = {"sotl": Sotl(**QUICK), "last": TrainLoss(**QUICK), "sog": Sog(steps=1, batch_size=4), "loss": ValidLoss()}
NASBENCH201 = Path(__file__).parents[2].parent / "shared" / "data" / "nasbench201.npz"


@pytest.fixture(scope="module")
def candidates():
    generator = torch.Generator().manual_seed(0)
    supernet = SPACE.supernet(SHAPE)
    supernet.reset_parameters([generator])
    data = Split(torch.randn(12, *SHAPE.input, generator=generator), torch.arange(12) % 3)
    given = {"data": data, "likelihood": Classification(3), "train": data, "select": data}
    return [Candidate(a, SPACE, SHAPE, supernet, **given) for a in draw(SPACE, 6, seed=0)]


@dataclass(frozen=True, kw_only=True)
class Counted(Score):
    """Notes what it scored; a few architectures have no number."""

    name: ClassVar[str] = "counted"
    larger_is_better: ClassVar[bool] = False
    meaning: ClassVar[str] = "A test."
    cost: ClassVar[str] = "Nothing."
    asked: ClassVar[Counter] = Counter()

    without: int = 0

    def __call__(self, candidates, generator):
        self.asked.update(c.architecture.text for c in candidates)
        sums = [float(sum(c.architecture.choices)) for c in candidates]
        return torch.tensor([torch.inf if s == self.without else s for s in sums], dtype=torch.float64)


@pytest.fixture(autouse=True)
def _nobody_asked():
    Counted.asked.clear()


TRUTH = np.array([90.0, 91.0, 92.5, 88.0, 95.0, 93.0])


def test_a_ranking_is_what_its_scores_say(candidates):
    found = rank(candidates, {"synflow": SynFlow(), "counted": Counted(), **TUNED}, TRUTH, resamples=50)
    assert list(found.scores) == ["synflow", "counted", *TUNED, "parameters"]
    for name, score in {"synflow": SynFlow(), "counted": Counted(), **TUNED, "parameters": Parameters()}.items():
        values = score(candidates, Streams(0)["init"]).numpy()
        np.testing.assert_array_equal(found.scores[name].values, values)
        merit = values if score.larger_is_better else -values
        wanted = scipy.stats.spearmanr(merit, TRUTH).statistic
        assert found.scores[name].standing.spearman.value == pytest.approx(wanted), name
        sizes = scipy.stats.spearmanr(merit, found.parameters).statistic
        assert found.scores[name].standing.with_parameters.value == pytest.approx(sizes), name
        assert found.scores[name].seconds > 0
    told = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert list(told["scores"]) == [*found.scores, "random"]
    assert told["truth"] == {"mean": TRUTH.mean(), "best": 95.0, "better": "higher"}
    for figures in told["scores"].values():
        assert {"spearman", "kendall", "sparse_kendall", "top10", "regret", "seconds", "with_parameters"} < set(figures)
        low, high = figures["intervals"]["kendall"]
        assert low <= figures["kendall"] <= high
    for name, figures in told["scores"].items():
        for best in ("top10", "regret"):
            assert (figures["intervals"][best] is None) == (name != "random")  # facts about these architectures
    assert told["scores"]["random"]["spearman"] == 0
    assert told["scores"]["random"]["regret"] == pytest.approx(95 - TRUTH.mean())


def test_each_candidate_is_fine_tuned_once(candidates, monkeypatch):
    taken_out = Counter()
    extract = type(candidates[0].supernet).extract

    def counted(supernet, architecture, repeat=0):
        taken_out[architecture.text] += 1
        return extract(supernet, architecture, repeat)

    monkeypatch.setattr(type(candidates[0].supernet), "extract", counted)
    same = {**TUNED, "loss": ValidLoss(batch_size=4)}
    rank(candidates, same, TRUTH, resamples=2)
    assert set(taken_out.values()) == {1}
    assert len(taken_out) == len(candidates)


@pytest.mark.parametrize("together", [1, 4, 100])
def test_how_many_at_a_time_changes_nothing(candidates, together):
    scores = {"synflow": SynFlow(), "sotl": Sotl(**QUICK)}
    one, other = (rank(candidates, scores, TRUTH, resamples=2, together=k) for k in (2, together))
    for name in scores:
        np.testing.assert_array_equal(one.scores[name].values, other.scores[name].values)


# ---------------------------------------------------------------------------------------------------------------------
# Going on.


class Stopped(Exception):
    pass


def stop_after(count):
    def watch(done, total):
        if done == count:
            raise Stopped

    return watch


def evaluations(folder):
    return [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]


def test_what_was_killed_goes_on(candidates, tmp_path):
    scores = {"counted": Counted(), **TUNED}
    whole = rank(candidates, scores, TRUTH, resamples=20)
    Counted.asked.clear()
    with pytest.raises(Stopped):
        rank(candidates, scores, TRUTH, resamples=20, out=tmp_path / "r", watch=stop_after(4))
    assert len(evaluations(tmp_path / "r")) == 4 * 6
    file = tmp_path / "r" / "scores.jsonl"
    cut = file.read_bytes()[:-9]  # killed while writing the last line
    file.write_bytes(cut)
    found = rank(candidates, scores, TRUTH, resamples=20, out=tmp_path / "r")
    assert set(Counted.asked.values()) == {1}
    assert len(evaluations(tmp_path / "r")) == 6 * 6
    assert file.read_bytes().startswith(cut[: cut.rindex(b"\n") + 1])
    for name in whole.scores:
        np.testing.assert_array_equal(found.scores[name].values, whole.scores[name].values)
        assert found.scores[name].standing == whole.scores[name].standing
    before = file.read_bytes()
    again = rank(candidates, scores, TRUTH, resamples=20, out=tmp_path / "r")
    assert again.summary() == found.summary()
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scores": {"counted": Counted(without=1)}}, "scores"),
        ({"scores": {"counted": Counted(), "macs": Macs()}}, "scores"),
        ({"seed": 1}, "seed"),
        ({"about": {"data": "other"}}, "data"),
        ({"part": slice(5)}, "architectures"),
    ],
)
def test_other_arguments_are_refused(candidates, tmp_path, change, says):
    def go(part=slice(None), scores=None, about=None, seed=0):
        given = scores or {"counted": Counted()}
        options = {"about": about or {"data": "this"}, "seed": seed, "out": tmp_path / "r", "resamples": 2}
        rank(candidates[part], given, TRUTH[part], **options)

    go()
    before = {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()}
    with pytest.raises(PolyarchError, match=rf"other arguments \({says}\); choose another --out"):
        go(**change)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()}


def test_folders_that_hold_something_else(candidates, tmp_path):
    (tmp_path / "mine.txt").write_text("not to be touched")
    with pytest.raises(PolyarchError, match="holds no ranking"):
        rank(candidates, {"macs": Macs()}, TRUTH, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_damaged_line_is_named(candidates, tmp_path):
    rank(candidates, {"macs": Macs()}, TRUTH, out=tmp_path / "r", resamples=2)
    file = tmp_path / "r" / "scores.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[0], "{}\n", *lines[2:]]))
    with pytest.raises(PolyarchError, match="line 2 is damaged"):
        rank(candidates, {"macs": Macs()}, TRUTH, out=tmp_path / "r")


# ---------------------------------------------------------------------------------------------------------------------
# What cannot be ranked.


def test_what_has_no_number_comes_last(candidates, tmp_path):
    sums = [sum(c.architecture.choices) for c in candidates]
    lost = sums[2]
    found = rank(candidates, {"counted": Counted(without=lost)}, TRUTH, resamples=5, out=tmp_path / "r")
    told = found.summary()["scores"]["counted"]
    assert told["not_finite"] == sums.count(lost)
    merit = [-1000 if s == lost else -s for s in sums]
    assert told["spearman"] == pytest.approx(spearman(merit, TRUTH))
    assert None in [line["value"] for line in evaluations(tmp_path / "r")]
    again = rank(candidates, {"counted": Counted(without=lost)}, TRUTH, resamples=5, out=tmp_path / "r")
    assert again.summary() == found.summary()


def test_a_constant_truth_is_undefined_and_no_error(candidates):
    told = rank(candidates, {"macs": Macs()}, np.full(6, 90.0), resamples=5).summary()["scores"]
    assert {figures["undefined"] for figures in told.values()} == {"the truth is the same for all"}
    assert {figures["spearman"] for figures in told.values()} == {None}
    json.dumps(told, allow_nan=False)


def test_refusals(candidates):
    with pytest.raises(PolyarchError, match="no architecture to rank"):
        rank([], {"macs": Macs()}, [])
    with pytest.raises(PolyarchError, match="6 architectures and 5 true numbers"):
        rank(candidates, {"macs": Macs()}, TRUTH[:5])
    with pytest.raises(PolyarchError, match="stands there twice"):
        rank([candidates[0]] * 2, {"macs": Macs()}, TRUTH[:2])
    for name in ("random", "parameters"):
        with pytest.raises(PolyarchError, match="beside every ranking already"):
            rank(candidates, {name: Macs()}, TRUTH)
    bare = [Candidate(c.architecture, SPACE, SHAPE) for c in candidates]
    with pytest.raises(PolyarchError, match="sotl needs trained weights"):
        rank(bare, {"macs": Macs(), "sotl": Sotl()}, TRUTH)


# ---------------------------------------------------------------------------------------------------------------------
# Architectures.


def test_draws_are_different_and_even():
    space = ResidualDepth(max_depth=9)
    assert {a.text for a in draw(space, 10, 0)} == {f"depth={d}" for d in range(10)}
    assert len(draw(space, 50, 0)) == 10
    counts = Counter(a.text for seed in range(300) for a in draw(space, 3, seed))
    assert sum(counts.values()) == 900
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3
    assert draw(SPACE, 20, 4) == draw(SPACE, 200, 4)[:20] != draw(SPACE, 20, 5)
    with pytest.raises(PolyarchError, match="sample is 0"):
        draw(space, 0, 0)


def test_draws_from_a_belief_that_knows_few():
    space = ResidualDepth(max_depth=3)
    belief = Categorical(space.decisions, torch.tensor([[0.0, 0.0, -1e9, -1e9]]))
    assert {a.text for a in draw(space, 4, 0, belief)} == {"depth=0", "depth=1"}


@pytest.mark.skipif(not NASBENCH201.exists(), reason="needs the table of NAS-Bench-201")
def test_parameters_rank_nasbench201_as_published():
    """Spearman's correlation over all cells; mean truth of the ten largest of 200 random cells, and of the ten best."""
    opened = pa.tables.open_table(NASBENCH201)
    sizes = opened.whole(
        "cifar10_params_analytic_M"
    )  # as networks here have them; 150 published ones are of other cells
    random = np.random.default_rng(0)
    for column, correlation, largest, best in (
        ("cifar10_test_acc_200", 0.753, 92.97, 93.57),
        ("cifar100_test_acc_200", 0.728, 69.59, 70.76),
    ):
        truth = opened.whole(column)
        assert spearman(sizes, truth) == pytest.approx(correlation, abs=5e-4)
        drawn = [random.choice(len(truth), 200, replace=False) for _ in range(300)]
        assert np.mean([mean_of_best(sizes[d], truth[d]) for d in drawn]) == pytest.approx(largest, abs=0.12)
        assert np.mean([mean_of_best(truth[d], truth[d]) for d in drawn]) == pytest.approx(best, abs=0.05)


# ---------------------------------------------------------------------------------------------------------------------
# The picture.


def test_the_picture(candidates):
    found = rank(candidates, {f"score-{k}": Counted(without=k) for k in range(5)}, TRUTH, resamples=20)
    drawn = draw_ranking(found, "test_acc")
    assert drawn["png"].startswith(b"\x89PNG")
    svg = drawn["svg"].decode()
    value = found.scores["score-0"].standing.spearman.value
    for text in ("score-0", "score-4", "parameters", "where test_acc does", f"{value:.2f} [".replace("-", "−")):
        assert text in svg
    assert "undefined" not in svg
    alone = rank(candidates, {}, np.ones(6), resamples=2)
    assert "undefined" in draw_ranking(alone, "test_acc")["svg"].decode()
