"""A search that starts from the belief of another."""

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.runs.search import resume
from polyarch.testing.callbacks import InterruptAfter

SMALL, WIDER = (pa.spaces.NasBench201(channels=c, cells=1) for c in (2, 3))
STILL = {"epochs": 1, "batch_size": 8, "arch": {"lr": 0.0}}  # belief stays where it starts


@pytest.fixture(scope="module")
def task():
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (30, 1, 4, 4), np.uint8), np.arange(30) % 3
    return pa.data.load((x, y), select=0.3)


@pytest.fixture(scope="module")
def source(task, tmp_path_factory):
    method = pa.methods.Parsec(epochs=1, samples=2, batch_size=8)
    return pa.search(SMALL, task, method, out=tmp_path_factory.mktemp("source") / "run", compute=pa.Compute("cpu"))


def same_belief(one, other):
    pairs = zip(one.distribution.probs().values(), other.distribution.probs().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_probabilities_are_the_sources_exactly_on_a_wider_network(tmp_path, task, source):
    method = pa.methods.Parsec(samples=2, **STILL)
    runs = pa.search(
        WIDER,
        task,
        method,
        out=tmp_path / "run",
        repeats=2,
        start=pa.Start(belief_from=source.folder),
        compute=pa.Compute("cpu"),
    )
    for run in runs:
        assert same_belief(run, source)
        assert run.config.belief_from == str(source.folder)
    fresh = pa.search(WIDER, task, method, out=tmp_path / "fresh", compute=pa.Compute("cpu"))
    assert not same_belief(fresh, source)


def test_of_every_kind_of_belief(tmp_path, task):
    for method in (pa.methods.Darts, pa.methods.Drnas, pa.methods.Gdas):
        first = pa.search(
            SMALL, task, method(epochs=1, batch_size=8), out=tmp_path / method.name, compute=pa.Compute("cpu")
        )
        still = method(**STILL)
        again = pa.search(
            WIDER,
            task,
            still,
            out=tmp_path / f"{method.name}-again",
            start=pa.Start(belief_from=first.folder),
            compute=pa.Compute("cpu"),
        )
        assert same_belief(first, again)


def test_killed_before_the_first_checkpoint_it_starts_there_again(tmp_path, task, source):
    method = pa.methods.Parsec(samples=2, **STILL)

    with pytest.raises(KeyboardInterrupt):
        pa.search(
            WIDER,
            task,
            method,
            out=tmp_path / "run",
            start=pa.Start(belief_from=source.folder),
            compute=pa.Compute("cpu"),
            callbacks=[InterruptAfter(0)],
        )
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
        pa.search(
            space,
            task,
            method,
            out=tmp_path / "run",
            start=pa.Start(belief_from=source.folder),
            compute=pa.Compute("cpu"),
        )
    assert not (tmp_path / "run").exists()


def test_depths_are_trained_at_first_by_what_the_source_ended_with(tmp_path):
    """Belief itself is the posterior of the new weights; an update that has no such weighting is another."""
    task, space = pa.data.load("spirals", points=80, select=0.4), pa.spaces.ResidualDepth(max_depth=3, width=4)
    compute, quick = pa.Compute("cpu"), {"epochs": 2, "batch_size": 16}

    def searched(name, start=None, **settings):
        method = pa.methods.VariationalDepth(**quick, **settings)
        return pa.search(space, task, method, out=tmp_path / name, compute=compute, start=start or pa.Start())

    source = searched("source")
    after = pa.Start(belief_from=source.folder)
    waits = {"arch": {"warmup": 0.5}}  # while the first epoch lasts
    plain, started = searched("plain", **waits), searched("started", after, **waits)
    assert plain.history()[0]["step"] != started.history()[0]["step"]
    with pytest.raises(PolyarchError, match="its belief moved in another way"):
        searched("other", after, update="sgd")
