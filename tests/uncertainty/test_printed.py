"""What is said of inputs prints as one line, not as tensors."""

import torch

from polyarch.data import Counts, Gaussian
from polyarch.uncertainty import Gaussians, Mixtures, Predictive


def test_predictions_print_as_one_line():
    weights = torch.tensor([0.5, 0.5])
    predictive = Predictive.from_members(torch.zeros(2, 200, 4).log_softmax(-1), weights)
    assert repr(predictive) == "<Predictive of 200 inputs: 4 classes, mean entropy 1.39>"
    numbers = Gaussians.of(torch.zeros(2, 200, 1), weights, Gaussian(2.0))
    assert repr(numbers) == "<Gaussians of 200 inputs: 2 members, mean standard deviation 2>"
    assert repr(Mixtures.of(torch.zeros(2, 200, 1), weights, Counts())).startswith("<Mixtures of 200 inputs: 2 members")
