"""Seen and unseen architectures."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from lively import SHAPE, examples, lively
from sklearn.metrics import roc_auc_score
from unchanged import unchanged

from polyarch.diagnostics import compare_seen, unseen_wirings
from polyarch.errors import PolyarchError
from polyarch.spaces import Wiring
from polyarch.testing.spaces import make_supernet
from polyarch.uncertainty import accuracy

SPACE = Wiring(stages=2, nodes=3, channels=3, aggregation="sum", listed=12)


def listed(space):
    return torch.tensor([member.choices for member in space.members])


def test_the_auc_is_that_of_scikit_learn():
    x, y = examples()
    supernet, seen = lively(SPACE), listed(SPACE)
    unseen = unseen_wirings(SPACE, seen, 15)
    with unchanged(supernet):
        found = compare_seen(supernet, x, y, seen, unseen, batch_size=16, resamples=300)
    supernet.eval()
    for choices, said in ((seen, found.seen), (unseen, found.unseen)):
        with torch.no_grad():
            answers = [supernet.extract(a)(x).log_softmax(-1) for a in SPACE.decode(choices)]
        assert said.accuracy == [accuracy(answer, y) for answer in answers]
    assert found.seen_accuracy == pytest.approx(np.mean(found.seen.accuracy))
    assert found.unseen_accuracy == pytest.approx(np.mean(found.unseen.accuracy))
    both = found.seen.accuracy + found.unseen.accuracy
    assert len(set(both)) > 3, "accuracies must differ for this to say something"
    assert found.auc.value == pytest.approx(roc_auc_score([1] * 12 + [0] * 15, both))
    assert 0 <= found.auc.low < found.auc.value < found.auc.high <= 1
    json.dumps(asdict(found), allow_nan=False)
    assert compare_seen(supernet, x, y, seen, unseen, resamples=300) == found


def test_where_every_seen_one_is_better_the_auc_is_1():
    x, _ = examples()
    supernet, seen = lively(SPACE), listed(SPACE)[:1]
    with torch.no_grad():
        y = supernet.extract(SPACE.members[0])(x).argmax(-1)  # so that it is always right
    found = compare_seen(supernet, x, y, seen, unseen_wirings(SPACE, seen, 8), resamples=50)
    assert found.seen_accuracy == 1
    assert found.auc.value == 1
    assert found.auc.interval == (1, 1)


def test_unseen_wirings_are_not_in_the_list():
    """All but one of the wirings of one stage of two nodes are listed; the last is found."""
    space = Wiring(stages=1, nodes=2, channels=2)
    every = torch.cartesian_prod(*[torch.arange(2)] * 3)
    for left_out in range(8):
        rest = torch.cat([every[:left_out], every[left_out + 1 :]])
        assert torch.equal(unseen_wirings(space, rest, 1), every[left_out : left_out + 1])
    with pytest.raises(PolyarchError, match="not 2 wirings of 2 nodes beside the list; ask for fewer"):
        unseen_wirings(space, every[1:], 2)
    with pytest.raises(PolyarchError, match="count is 0"):
        unseen_wirings(space, every, 0)


def test_unseen_wirings_are_random_ones():
    space = Wiring(listed=50)
    found = unseen_wirings(space, listed(space), 60)
    assert len(found.unique(dim=0)) == 60
    assert found.double().mean().item() == pytest.approx(0.3, abs=4 * (0.21 / found.numel()) ** 0.5)
    assert torch.equal(unseen_wirings(space, listed(space), 20), found[:20])
    assert not torch.equal(unseen_wirings(space, listed(space), 60, seed=1), found)
    members = {member.choices for member in space.members}
    assert not members & {tuple(row) for row in found.tolist()}


def test_refusals():
    x, y = examples(8)
    seen = listed(SPACE)
    with pytest.raises(PolyarchError, match="2 of the unseen architectures are seen ones too"):
        compare_seen(make_supernet(SPACE, SHAPE, (0,)), x, y, seen, seen[4:6])
    with pytest.raises(PolyarchError, match="holds 2 repeats"):
        compare_seen(make_supernet(SPACE, SHAPE, (0, 1)), x, y, seen[:4], seen[4:])


@pytest.mark.parametrize("own", ["own_affine", "own_aggregation"])
def test_weights_of_their_own_were_not_learnt_for_unseen_ones(own):
    space = Wiring(stages=2, nodes=3, channels=3, listed=4, **{own: True})
    x, y = examples(8)
    supernet, seen = make_supernet(space, SHAPE, (0,)), listed(space)
    with unchanged(supernet), pytest.raises(PolyarchError, match="none of the 4 listed ones") as refusal:
        compare_seen(supernet, x, y, seen, unseen_wirings(space, seen, 3))
    assert "\n" not in str(refusal.value)
