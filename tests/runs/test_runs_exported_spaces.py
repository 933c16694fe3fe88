"""Networks and mixtures of every space as ONNX: what ONNX Runtime says of 100 inputs is what torch says."""

import logging

import numpy as np
import pytest
import torch
from exported import apart, of_onnx

from polyarch import catalogue
from polyarch.data.kinds import Inputs
from polyarch.data.likelihood import Classification, Gaussian
from polyarch.data.preprocess import InUnits, Standardise, Units
from polyarch.data.task import TaskShape
from polyarch.runs.answering import Answering
from polyarch.runs.exporting import exported
from polyarch.runs.onnx_format import onnx_file
from polyarch.spaces import nasbench101
from polyarch.spaces.nasbench101 import Graph101
from polyarch.uncertainty.ensemble import Apart, Ensemble, Nested, Within

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

IMAGES, VECTORS = TaskShape((3, 8, 8), 4), TaskShape((5,), 4)
SMALL = {
    "depth": {"max_depth": 3, "width": 6},
    "nasbench201": {"channels": 4, "cells": 1},
    "darts": {"channels": 2, "layers": 3},
    "nasbench1shot1": {"channels": 4, "cells": 3},
    "wiring": {"stages": 2, "nodes": 4},
    "fourier": {},
}
"""Settings by the name of a class; those of the catalogue, such as `layers` of darts-20, go before."""
SPACES = [name for name in catalogue.SPACES if name != catalogue.OWN_MODULE]
LIKE_OTHERS = {"darts-parsec", "darts-20", "darts-s2", "nasbench1shot1-1", "nasbench1shot1-2", "wiring"}
"""Whose mixtures are made as those of another name are."""
CHANCE = torch.Generator().manual_seed(0)


def made(name):
    cls, settings = catalogue.find("space", name)
    return cls(**{**SMALL[cls.name], **settings})


def supernet_of(space, shape):
    """With weights and statistics as training leaves them: not those that a layer begins with."""
    supernet = space.supernet(shape).eval()
    supernet.reset_parameters([torch.Generator().manual_seed(1)])
    with torch.no_grad():
        for name, value in supernet.named_buffers():
            if name.endswith("running_mean"):
                value.normal_(0, 0.3, generator=CHANCE)
            elif name.endswith("running_var"):
                value.uniform_(0.5, 2, generator=CHANCE)
    return supernet


def predictors(space, shape, likelihood, units):
    """A network of the space, and a mixture as a run makes it."""
    preprocess = Standardise(torch.full((1,), 2.0), torch.full((1,), 5.0))
    supernet = supernet_of(space, shape)
    choices = space.random().sample(2, CHANCE)
    architectures = space.decode(choices)
    network = torch.nn.Sequential(*filter(None, [preprocess, supernet.extract(architectures[0]).eval(), units]))
    if space.nested:
        members, weights = (
            Nested(supernet),
            torch.tensor([0.4, 0.0] + [0.6 / (space.count() - 2)] * (space.count() - 2)),
        )
    else:
        members, weights = Within(supernet, choices), torch.tensor([0.3, 0.7])
        if supernet.shares_statistics:
            members = Apart([supernet.extract(architecture) for architecture in architectures])
    return {"network": network, "ensemble": Ensemble(preprocess, members, weights, likelihood, units).eval()}


def differences(predictor, shape, likelihood):
    """Of what ONNX Runtime says of 100 inputs, one by one and together, from what torch says."""
    inputs = Inputs(shape.input, "numbers", (0.0,), (1.0,))
    if isinstance(predictor, Ensemble) and isinstance(predictor.networks, Within):
        predictor.networks.settle(torch.zeros(2, *shape.input))
    answering = Answering(predictor, inputs, likelihood, 1.5 if isinstance(likelihood, Classification) else 1.0).eval()
    program, names = exported(answering, inputs)
    content = onnx_file(program, names, {"polyarch": "0"})
    x = 2 + 5 * torch.randn(100, *shape.input, generator=CHANCE)
    with torch.no_grad():
        wanted = answering(x)
        one = answering(x[:1])
    assert all(value.isfinite().all() for value in wanted.values())
    all_of_them, alone = of_onnx(content, {"x": x.numpy()}, {"x": x[:1].numpy()})
    return max(apart(all_of_them, wanted), apart(alone, one))


@pytest.fixture(autouse=True)
def _untold(monkeypatch):
    """What torch traces of itself is much, and pytest would keep it all."""
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)


TWICE = ("darts-20", "darts-s2", "darts-parsec", "nasbench1shot1-1", "nasbench1shot1-2")
"""Names of other settings of what is exported under another name, too."""


def _marked(name):
    if name == "depth":
        return name
    return pytest.param(name, marks=pytest.mark.nightly if name in TWICE else pytest.mark.slow)


@pytest.mark.parametrize("name", list(map(_marked, SPACES)))
def test_a_network_and_a_mixture_of_every_space(name):
    space = made(name)
    shape, likelihood, units = (VECTORS if name == "depth" else IMAGES), Classification(4), None
    if name == "fourier":
        shape, likelihood, units = TaskShape((1,), 1), Gaussian(0.1, "task"), InUnits(Units(3.0, 2.0), 1)
    both = predictors(space, shape, likelihood, units)
    if name in LIKE_OTHERS:
        del both["ensemble"]
    for what, predictor in both.items():
        assert differences(predictor, shape, likelihood) < 1e-4, what


@pytest.mark.slow
def test_depth_of_images():
    space, likelihood = made("depth"), Classification(4)
    for predictor in predictors(space, IMAGES, likelihood, None).values():
        assert differences(predictor, IMAGES, likelihood) < 1e-4


@pytest.mark.slow
def test_a_cell_of_nasbench101():
    adjacency = np.triu(np.ones((5, 5), int), 1)
    adjacency[0, 3] = 0
    graph = Graph101(
        tuple(map(tuple, adjacency.tolist())), ("input", "conv3x3-bn-relu", "maxpool3x3", "conv1x1-bn-relu", "output")
    )
    network = nasbench101.network(graph, channels=8, stacks=2, cells=1, classes=4).eval()
    assert differences(network, IMAGES, Classification(4)) < 1e-4
