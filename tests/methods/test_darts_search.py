"""Whole searches by DARTS and its relatives on every kind of space, and what they leave."""

import html

import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch.methods import Darts, Drnas, Gdas
from polyarch.report import write_report
from polyarch.spaces import ModuleSpace


class Images(nn.Module):
    """A module of one's own, with a choice inside an option of another."""

    def __init__(self):
        super().__init__()
        inner = pa.Choice("inner", {"relu": nn.ReLU(), "tanh": nn.Tanh()})
        deep = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), inner)
        self.block = pa.Choice("block", {"1x1": nn.Conv2d(1, 4, 1), "3x3": nn.Conv2d(1, 4, 3, padding=1), "deep": deep})
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.block(x).mean((-1, -2)))


SPACES = {
    "darts": pa.spaces.Darts(channels=2, layers=1, operations=("none", "skip_connect", "dil_conv_3x3")),
    "nasbench1shot1-1": pa.spaces.NasBench1Shot1(sub_space=1, channels=2, cells=1),
    "module": ModuleSpace(Images),
}


@pytest.mark.parametrize("kind", [Darts, Gdas, Drnas])
@pytest.mark.parametrize("name", SPACES)
def test_a_search_on_every_space(tmp_path, few_images, kind, name):
    space = SPACES[name]
    run = pa.search(space, few_images, kind(epochs=1, batch_size=12), out=tmp_path / "run")
    assert run.distribution.exact == (space.relaxation.simplices == space.decisions)
    assert run.distribution.mode().tolist() == list(run.architecture.choices)
    assert space.parse(run.architecture.text) == run.architecture
    assert run.model()(few_images.select.x).shape == (8, 3)
    drawn = run.distribution.sample(5, torch.Generator().manual_seed(0))
    assert len(space.decode(drawn)) == 5
    line = run.history()[0]
    # Where architectures are read out, what is learnt is about the simplices.
    shown = {simplex.name: len(simplex) for simplex in space.relaxation.simplices}
    assert {simplex: len(probs) for simplex, probs in line["probs"].items()} == shown
    assert {"log_likelihood", "accuracy", "supernet_log_likelihood", "supernet_accuracy"} <= line["select"].keys()
    if kind is Darts:  # a report looks at belief alone, and takes longer than the search
        page = html.unescape(write_report(run, few_images).read_text())
        assert run.architecture.text in page
        assert all(option in page for option in space.relaxation.simplices[0].options)
