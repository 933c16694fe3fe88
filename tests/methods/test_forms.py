"""Methods that run one architecture at a time learn the same, statistics of batch norm included, in both forms."""

import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch.methods import OneShot, Parsec
from polyarch.training.dry_run import prepare


class Wide(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 6))


class Nested(nn.Module):
    """A choice inside an option of another, and a norm in no option."""

    def __init__(self):
        super().__init__()
        inner = pa.Choice("inner", {"norm": nn.BatchNorm1d(6), "wide": Wide(), "none": nn.Identity()})
        deep = nn.Sequential(nn.Linear(6, 6), inner, nn.BatchNorm1d(6))
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(36, 6), nn.BatchNorm1d(6))
        self.outer = pa.Choice("outer", {"deep": deep, "wide": Wide(), "none": nn.Identity()})
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.outer(self.stem(x)))


SPACES = {
    "nasbench201": pa.spaces.NasBench201(channels=2, cells=1),
    "nasbench1shot1-1": pa.spaces.NasBench1Shot1(sub_space=1, channels=2, cells=3),
    "nasbench1shot1-3": pa.spaces.NasBench1Shot1(sub_space=3, channels=2, cells=3),
    "darts": pa.spaces.Darts(channels=2, layers=3, statistics="running"),
    "module": pa.ModuleSpace(Nested),
}
METHODS = {
    "parsec": Parsec(samples=2, batch_size=8, temperature=8.0),
    "single-path": OneShot(batch_size=8),
    "multipath": OneShot(batch_size=8, paths=2),
}


def after_two_steps(method, form, space, images, repeats):
    method = type(method)(**{**vars(method), "form": form})
    problem, state, feed = prepare(method, space, images, images.seen(images.train), repeats)
    for _ in range(2):
        method.step(problem, state, feed)
    return state.tensors()


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("space", SPACES)
def test_both_forms_learn_the_same(images, space, method, repeats):
    sparse, dense = (
        after_two_steps(METHODS[method], form, SPACES[space], images, repeats) for form in ("sparse", "dense")
    )
    moved = []
    for name, value in sparse.items():
        assert torch.allclose(value, dense[name], atol=2e-4, rtol=2e-4), name
        if name.endswith("running_var"):
            moved += (value != 1).any(-1).tolist()
    assert True in moved
    assert False in moved, "some options were never chosen, and their statistics are those of the start"


def test_each_repeat_keeps_the_statistics_of_its_single_run(images):
    """Also where repeats have several parents each, and an option runs for all because one has it."""
    space, method = SPACES["nasbench1shot1-1"], METHODS["single-path"]
    both = after_two_steps(method, "sparse", space, images, 2)
    alone = after_two_steps(method, "sparse", space, images, 1)
    for name, value in alone.items():
        assert torch.allclose(value[0], both[name][0], atol=2e-4, rtol=2e-4), name
