"""Fourier data for many models at once, and the degrees at which learning must end (SoTL thesis, section 4.1.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

import polyarch as pa
from polyarch.spaces.fourier import Columns, features, gates

Definition = Literal["thesis", "code"]
Points = tuple[Tensor, Tensor]
"""Features [n, width] and targets [n]."""

COLUMNS: dict[Definition, Columns] = {"thesis": "joint", "code": "separate"}
"""The features that belong to each definition of the data."""
BATCH = 64
WEIGHT_L2 = 0.001
HIGHEST = 9
"""The highest degree that can be learnt, as in the released code."""


class Series(NamedTuple):
    """Fourier data of several draws and true degrees, as features: x [sets, n, width], y [sets, n]."""

    x: Tensor
    y: Tensor

    def batch(self, places: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The same places [batch] of the data set of every model, `sets` [models]."""
        return self.x[:, places][sets], self.y[:, places][sets]

    def one(self, which: Tensor) -> tuple[Tensor, Tensor]:
        """All of one data set: [n, width], [n]."""
        return self.x[which], self.y[which]


def load_series(definition: Definition, degrees: Sequence[int], seeds: int, highest: int) -> tuple[Series, Series]:
    """Training and validation data, seed by seed and within it degree by degree."""
    tasks = [
        pa.data.load("fourier", definition=definition, degree=degree, data_seed=seed)
        for seed in range(seeds)
        for degree in degrees
    ]
    found = []
    for part in ("train", "select"):
        splits = [getattr(task, part) for task in tasks]
        x = torch.stack([features(split.x.double(), highest, COLUMNS[definition]) for split in splits])
        found.append(Series(x, torch.stack([split.y.double() for split in splits])))
    return found[0], found[1]


def first_weights(seeds: int, width: int) -> Tensor:
    """A linear layer's on all features, one draw per seed: [seeds, width]."""
    draws = [
        torch.rand(width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) for seed in range(seeds)
    ]
    return (2 * torch.stack(draws) - 1) / math.sqrt(width)


def shuffled(count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Places of one batch after another, without end; every epoch in a new order, a last part batch dropped."""
    while True:
        yield from torch.randperm(count, generator=generator)[: count // BATCH * BATCH].view(-1, BATCH)


def widened(counts: Tensor, width: int) -> Tensor:
    """What counts for a degree, [..., degrees], for each of its columns, [..., width]."""
    step = (width - 1) // (counts.shape[-1] - 1)
    return torch.cat([counts[..., :1], counts[..., 1:].repeat_interleave(step, -1)], -1)


def squared_errors(weights: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean squared error of every model: [models, width], x [models, batch, width] -> [models]."""
    x, y = batch
    return (torch.einsum("mbw,mw->mb", x, weights) - y).square().mean(1)


def best_degree(definition: Definition, true: int, degree_l2: float) -> float:
    """Where MaxDeg ends on training losses if training goes on for ever: their minimum, the weights at their best.

    Features are orthogonal with mean square v (1; of a single sine or cosine 1/2) and all coefficients are 1, so a
    column under gate g costs min_w v (1 - g w)^2 + L2 w^2 = v L2 / (v g^2 + L2).
    """
    separate = COLUMNS[definition] == "separate"
    squares = torch.tensor([1.0] + [0.5 if separate else 1.0] * true, dtype=torch.float64)
    columns = torch.tensor([1.0] + [2.0 if separate else 1.0] * true, dtype=torch.float64)

    def cost(degree: float) -> float:
        gate = gates(torch.tensor(degree, dtype=torch.float64), true)
        own = columns * squares * WEIGHT_L2 / (squares * gate.square() + WEIGHT_L2)
        return own.sum().item() + degree_l2 * degree**2

    found: float = minimize_scalar(cost, bounds=(true - 2, true + 2), method="bounded").x
    return found


def best_by_validation(train: Points, valid: Points, true: int, degree_l2: float) -> float:
    """Where MaxDeg ends on validation losses if training goes on for ever.

    The weights are at their best for the training data, whatever MaxDeg is; the slope of the validation loss in MaxDeg
    at those weights is zero. Weights cannot make up for what the two samples differ in, so its noise moves the answer.
    """
    x, y = train
    x_valid, y_valid = valid
    products, targets = x.mT @ x / len(y), x.mT @ y / len(y)
    penalty = WEIGHT_L2 * torch.eye(x.shape[1], dtype=x.dtype)

    def slope(at: float) -> float:
        degree = torch.tensor(at, dtype=x.dtype, requires_grad=True)
        gate = widened(gates(degree, HIGHEST), x.shape[1])
        fixed = gate.detach()
        weights = torch.linalg.solve(fixed[:, None] * products * fixed + penalty, fixed * targets)
        cost = (x_valid @ (gate * weights) - y_valid).square().mean() + degree_l2 * degree.square()
        return torch.autograd.grad(cost, degree)[0].item()

    found: float = brentq(slope, true - 1, true + 1.4, xtol=1e-4)
    return found
