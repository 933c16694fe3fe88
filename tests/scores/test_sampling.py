"""Sample and score, on a search of seconds."""

import shutil
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.runs.examples import EXAMPLES
from polyarch.scores import Candidate, Macs, Score, Snip, SynFlow, sample_and_score
from polyarch.scores.sampling import candidates_of
from polyarch.streams import Streams


@pytest.fixture(scope="module")
def task():
    random = np.random.default_rng(0)
    return pa.data.load((random.normal(size=(60, 1, 6, 6)), np.arange(60) % 3), select=0.4, test=0)


@pytest.fixture(scope="module")
def run(task, tmp_path_factory):
    method = pa.methods.Parsec(epochs=2, samples=2, batch_size=10, arch={"lr": 0.5})
    space = pa.spaces.NasBench201(channels=2, cells=1)
    return pa.search(space, task, method, out=tmp_path_factory.mktemp("sampling") / "run", compute=pa.Compute("cpu"))


@dataclass(frozen=True, kw_only=True)
class Skips(Score):
    """How many skips a cell has; few are good."""

    name: ClassVar[str] = "skips"
    larger_is_better: ClassVar[bool] = False
    meaning: ClassVar[str] = "Number of skips."
    cost: ClassVar[str] = "A count."

    def __call__(self, candidates, generator):
        return torch.tensor([c.architecture.choices.count(1) for c in candidates], dtype=torch.float64)


def test_the_best_of_what_belief_draws(run):
    found = sample_and_score(run, Macs(), n=40, seed=3)
    drawn = run.space.decode(run.distribution.sample(40, Streams(3)["architecture"]))
    mode = run.space.architecture(run.distribution.mode().tolist())
    drawn = [mode if run.space.canonical(a) == run.space.canonical(mode) else a for a in drawn]
    # The first of a kind stands for all; dead operations make the same network cost more in another writing.
    macs = {run.space.canonical(a): run.space.cost(a, run.config.shape()).macs for a in reversed(drawn)}
    assert found.drawn == 40
    assert [c.score for c in found.candidates] == sorted(macs.values(), reverse=True)
    assert found.best.score == max(macs.values())
    names = [run.space.canonical(c.architecture) for c in found.candidates]
    assert len(set(names)) == len(names)
    assert set(names) == set(macs)


def test_the_argmax_beside_it(run):
    found = sample_and_score(run, Macs(), n=3)
    mode = run.space.architecture(run.distribution.mode().tolist())
    assert found.argmax.architecture == mode
    assert found.argmax.score == run.space.cost(mode, run.config.shape()).macs
    for each in (found.argmax, *found.candidates):
        choices = torch.tensor([each.architecture.choices])
        assert each.log_prob == pytest.approx(run.distribution.log_prob(choices).item(), rel=1e-5)
        assert each.log_prob <= found.argmax.log_prob


def test_smaller_may_be_better(run):
    found = sample_and_score(run, Skips(), n=30)
    scores = [c.score for c in found.candidates]
    assert scores == sorted(scores)
    assert scores[0] < scores[-1]


@pytest.mark.parametrize("score", [SynFlow(), Snip()], ids=lambda s: s.name)
def test_a_seed_decides_everything_and_moves_no_other_chance(run, score):
    chance = torch.get_rng_state()
    one, again, other = (sample_and_score(run, score, n=4, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert torch.equal(chance, torch.get_rng_state())


def test_scores_are_those_of_the_score(run, task):
    found = sample_and_score(run, Snip(), n=2)
    streams = Streams(0)
    order = torch.randperm(len(task.train), generator=streams["data"])[:64]
    given = candidates_of(run, [found.best.architecture], Snip.needs, Streams(0)["data"])
    assert torch.equal(given[0].data.x, task.preprocess(task.train.x[order]))
    assert torch.equal(given[0].data.y, task.train.y[order])
    assert Snip()(given, streams["init"]).item() == found.best.score


def test_what_a_score_needs_is_given_and_nothing_else(run):
    [plain] = candidates_of(run, [run.architecture], SynFlow.needs, torch.Generator())
    assert plain == Candidate(run.architecture, run.space, run.config.shape(), likelihood=run.config.likelihood())
    [candidate] = candidates_of(run, [run.architecture], {"weights"}, torch.Generator())
    state, wanted = candidate.inherited().state_dict(), run.supernet().extract(run.architecture).state_dict()
    assert all(torch.equal(state[name], value) for name, value in wanted.items())


def test_belief_without_log_probabilities(run, monkeypatch):
    def cannot(self, choices):
        raise PolyarchError("not in closed form")

    monkeypatch.setattr(type(run.distribution), "log_prob", cannot)
    found = sample_and_score(run, Macs(), n=3)
    assert {c.log_prob for c in (found.argmax, *found.candidates)} == {None}


def test_refusals(run, tmp_path):
    with pytest.raises(PolyarchError, match="n is 0"):
        sample_and_score(run, Macs(), n=0)
    shutil.copytree(run.folder, tmp_path / "run", ignore=shutil.ignore_patterns(EXAMPLES))
    gone = pa.open_run(tmp_path / "run")
    assert sample_and_score(gone, SynFlow(), n=2).candidates
    with pytest.raises(PolyarchError, match="came from memory"):
        sample_and_score(gone, Snip(), n=2)


def test_a_score_that_is_no_number(run, monkeypatch):
    def not_a_number(self, candidates, generator):
        return torch.full((len(candidates),), torch.nan, dtype=torch.float64)

    monkeypatch.setattr(Skips, "__call__", not_a_number)
    with pytest.raises(PolyarchError, match=r"skips of .* is nan"):
        sample_and_score(run, Skips(), n=2)


def test_scores_see_no_label_that_the_run_did_not(task, tmp_path):
    method = pa.methods.Parsec(epochs=1, samples=2, batch_size=6)
    space = pa.spaces.NasBench201(channels=2, cells=1)
    run = pa.search(space, task.resplit(labels=9), method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    [candidate] = candidates_of(run, [run.architecture], {"train", "data"}, torch.Generator())
    for given in (candidate.train, candidate.data):
        assert given.y.bincount().tolist() == [3, 3, 3]
