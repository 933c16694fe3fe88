"""Batch statistics against running ones."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from lively import SHAPE, examples, lively
from scipy.stats import spearmanr
from unchanged import unchanged

from polyarch.diagnostics import compare_statistics
from polyarch.diagnostics.running import shuffled
from polyarch.errors import PolyarchError
from polyarch.ranking import standing
from polyarch.spaces import NasBench201, Wiring
from polyarch.testing.spaces import make_supernet
from polyarch.uncertainty import accuracy, log_likelihood

SPACES = [Wiring(stages=2, nodes=3, channels=3), NasBench201(channels=3, cells=1)]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_both_are_those_of_plain_networks(space):
    """NAS-Bench-201's own rule is to evaluate by the batch; its running statistics are asked all the same."""
    x, y = examples(90)
    supernet = lively(space)
    choices = space.random().sample(12, torch.Generator().manual_seed(2))
    found = compare_statistics(supernet, x, y, choices, batch_size=30)
    batches, targets = shuffled(x, y, 30, seed=0)
    for by, said in (("batch", found.batch), ("running", found.running)):
        for architecture, right, fit in zip(space.decode(choices), said.accuracy, said.log_likelihood, strict=True):
            plain = supernet.extract(architecture).train(by == "batch")
            with torch.no_grad():
                answer = torch.cat([plain(batch) for batch in batches]).log_softmax(-1)
            assert right == accuracy(answer, targets)
            assert fit == pytest.approx(log_likelihood(answer, targets), abs=1e-9)
    assert np.abs(np.array(found.batch.log_likelihood) - found.running.log_likelihood).max() > 1e-3


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_the_correlation_is_that_of_scipy(space):
    x, y = examples(90)
    supernet, choices = lively(space), space.random().sample(25, torch.Generator().manual_seed(2))
    found = compare_statistics(supernet, x, y, choices, batch_size=30, resamples=500)
    for name in ("accuracy", "log_likelihood"):
        pair = getattr(found.batch, name), getattr(found.running, name)
        figure = getattr(found, f"{name}_correlation")
        assert figure.value == pytest.approx(spearmanr(*pair).statistic, abs=1e-12)
        # Other resamples of the same architectures.
        other = standing(*pair, np.ones(25), resamples=500, seed=1).spearman
        assert figure.interval == pytest.approx(other.interval, abs=0.12)
        assert figure.low < figure.value < figure.high
    json.dumps(asdict(found), allow_nan=False)
    assert compare_statistics(supernet, x, y, choices, batch_size=30, resamples=500) == found


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_nothing_is_different_afterwards(space):
    x, y = examples(20)
    supernet, choices = lively(space), space.random().sample(3, torch.Generator().manual_seed(2))
    with unchanged(supernet):
        compare_statistics(supernet, x, y, choices, batch_size=10, resamples=10)
    with unchanged(supernet), pytest.raises(RuntimeError):
        compare_statistics(supernet, x.expand(-1, 2, -1, -1), y, choices, batch_size=10)


def test_equals_have_no_correlation():
    space = Wiring(stages=1, nodes=2, channels=2, listed=1)
    x, y = examples(20)
    choices = torch.tensor([space.members[0].choices] * 4)
    found = compare_statistics(make_supernet(space, SHAPE, (0,)), x, y, choices, batch_size=10, resamples=10)
    assert found.accuracy_correlation.value is None
    assert found.accuracy_correlation.interval is None


def test_batches_are_even_and_keep_inputs_with_their_targets():
    y = torch.arange(23)
    batches, targets = shuffled(y.double()[:, None], y, 5, seed=3)
    assert [len(batch) for batch in batches] == [5, 5, 5, 4, 4]
    assert torch.equal(torch.cat(batches)[:, 0].long(), targets)
    assert targets.sort().values.tolist() == y.tolist()
    assert targets.tolist() != y.tolist()


def test_refusals():
    space = SPACES[0]
    x, y = examples(8)
    supernet, choices = make_supernet(space, SHAPE, (0,)), space.random().sample(3, torch.Generator())
    for given, message in (
        ((x, y, choices[:, :5]), r"choices must be \[n, 12\] with n > 0"),
        ((x, y, choices[:0]), r"choices must be \[n, 12\] with n > 0"),
        ((x, y[:5], choices), "8 inputs and 5 classes; give as many"),
        ((x[:1], y[:1], choices), "two at least"),
        ((x, y.double(), choices), "class numbers in int64"),
    ):
        with pytest.raises(PolyarchError, match=message):
            compare_statistics(supernet, *given, batch_size=4)
    with pytest.raises(PolyarchError, match="batch_size is 1"):
        compare_statistics(supernet, x, y, choices, batch_size=1)
    with pytest.raises(PolyarchError, match="holds 2 repeats"):
        compare_statistics(make_supernet(space, SHAPE, (0, 1)), x, y, choices)
