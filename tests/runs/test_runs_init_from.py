"""A search that starts from the belief of another."""

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.runs.search import resume

SMALL, WIDER = (pa.spaces.NasBench201(channels=c, cells=1) for c in (2, 3))
STILL = {"epochs": 1, "batch_size": 8, "belief_rate": 0.0}  # belief stays where it starts


@pytest.fixture(scope="module")
def task():
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (60, 1, 8, 8), np.uint8), np.arange(60) % 3
    return pa.data.load((x, y), select=0.3)


@pytest.fixture(scope="module")
def source(task, tmp_path_factory):
    method = pa.methods.Parsec(epochs=1, samples=2, batch_size=8)
    return pa.search(SMALL, task, method, out=tmp_path_factory.mktemp("source") / "run", device="cpu")


def same_belief(one, other):
    pairs = zip(one.distribution.probs().values(), other.distribution.probs().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_probabilities_are_the_sources_exactly_on_a_wider_network(tmp_path, task, source):
    method = pa.methods.Parsec(samples=2, **STILL)
    runs = pa.search(WIDER, task, method, out=tmp_path / "run", repeats=2, init_from=source.folder, device="cpu")
    for run in runs:
        assert same_belief(run, source)
        assert run.config.init_from == str(source.folder)
    fresh = pa.search(WIDER, task, method, out=tmp_path / "fresh", device="cpu")
    assert not same_belief(fresh, source)


def test_of_every_kind_of_belief(tmp_path, task):
    for method in (pa.methods.Darts, pa.methods.Drnas, pa.methods.Gdas):
        first = pa.search(SMALL, task, method(epochs=1, batch_size=8), out=tmp_path / method.name, device="cpu")
        still = method(**STILL)
        again = pa.search(
            WIDER, task, still, out=tmp_path / f"{method.name}-again", init_from=first.folder, device="cpu"
        )
        assert same_belief(first, again)


def test_killed_before_the_first_checkpoint_it_starts_there_again(tmp_path, task, source):
    method = pa.methods.Parsec(samples=2, **STILL)

    def stop(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pa.search(WIDER, task, method, out=tmp_path / "run", init_from=source.folder, device="cpu", watch=stop)
    assert not list((tmp_path / "run").glob("checkpoint-*"))
    assert same_belief(resume(tmp_path / "run", task=task), source)


@pytest.mark.parametrize(
    ("space", "method", "message"),
    [
        (pa.spaces.Darts(channels=2, layers=3), pa.methods.Parsec(samples=2), "is a run of another space"),
        (SMALL, pa.methods.Darts(epochs=1), "is a run of another method"),
    ],
)
def test_other_belief_is_refused_before_anything_is_written(tmp_path, task, source, space, method, message):
    with pytest.raises(PolyarchError, match=message):
        pa.search(space, task, method, out=tmp_path / "run", init_from=source.folder, device="cpu")
    assert not (tmp_path / "run").exists()
