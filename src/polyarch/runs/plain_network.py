"""A small residual network for images, trained by a usual recipe in a given time: what a search should surpass."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from polyarch.data.likelihood import Classification
from polyarch.data.task import Task
from polyarch.runs.plain_fitting import Fitted, averaged
from polyarch.streams import Streams

EPOCHS, STEPS = 30, 300
"""It is trained for so many epochs or, where that is more, steps; for fewer where there is no time."""
BATCH = 64
WIDTHS = (16, 32, 64)
"""Channels of its stages, each of one block; the resolution is halved between them."""
MARGIN = 0.9
"""The share of its time that it is meant to fill."""
TRIALS = 3
"""Training steps by which the time of others is foretold."""
FEWEST = 30
"""Steps below which it would have learnt next to nothing."""
SIDE = 64
"""Pixels a side that it reads at most; larger images are averaged down to them."""


class _Block(nn.Module):
    """x + f(x): batch norm, ReLU and convolution, twice; where the size changes, x is mapped to it."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        mapped: Tensor = self.shortcut(x) + self.layers(x)
        return mapped


def residual_network(channels: int, outputs: int, generator: torch.Generator) -> nn.Module:
    """Eight layers of convolutions (He et al. 2016, pre-activation), with initial weights that a generator draws."""
    with torch.device("meta"):  # else layers would draw weights from the global generator
        blocks = [
            _Block(before, width, 1 if place == 0 else 2)
            for place, (before, width) in enumerate(zip((WIDTHS[0], *WIDTHS), WIDTHS, strict=False))
        ]
        network = nn.Sequential(
            nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False), *blocks, nn.BatchNorm2d(WIDTHS[-1]), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], outputs),
        )  # fmt: skip
    network.to_empty(device="cpu")
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01, generator=generator)
            nn.init.zeros_(module.bias)
    return network


def fit_residual_network(task: Task, seed: int, device: torch.device, seconds: float) -> Fitted | float:
    """Trains one on the images of a task, by SGD with momentum and a cosine schedule.

    Args:
        task: the data.
        seed: of all draws.
        device: where to train.
        seconds: it may take.

    Returns:
        The model; or, where there is no time for a few steps, how many seconds these would take.
    """
    begun = time.monotonic()
    classifies, count = isinstance(task.likelihood, Classification), len(task.train)
    outputs = task.likelihood.outputs if classifies else 1
    y = task.train.y if classifies else task.train.y.float()
    centre, unit = (torch.tensor(0.0), torch.tensor(1.0)) if classifies else (y.mean(), y.std().clamp_min(1e-12))
    loss = nn.functional.cross_entropy if classifies else nn.functional.mse_loss

    def trained(steps: int, size: int) -> nn.Module:
        streams = Streams(seed)
        network = residual_network(task.input_shape[0], outputs, streams["init"]).to(device).train()
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        order = torch.empty(0, dtype=torch.int64)
        for _ in range(steps):
            if len(order) < size:  # a last partial batch is dropped
                order = torch.randperm(count, generator=streams["data"])
            rows, order = order[:size], order[size:]
            said = network(_seen(task, task.train.x[rows]).to(device))
            target = y[rows].to(device) if classifies else ((y[rows] - centre) / unit).to(device).unsqueeze(-1)
            optimiser.zero_grad()
            loss(said, target).backward()
            optimiser.step()
            schedule.step()
        return network

    def step_seconds(steps: int, size: int) -> float:
        since = time.monotonic()
        trained(steps, size)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.monotonic() - since) / steps

    size, small = min(BATCH, count), min(BATCH // 8, count)
    step_seconds(1, small)  # what is done for the first time takes longer
    step = step_seconds(1, small) * size / small
    if FEWEST * step > seconds:
        return FEWEST * step
    step = step_seconds(TRIALS, size)
    epoch = count // size
    wanted = max(EPOCHS * epoch, STEPS)
    steps = min(wanted, max(FEWEST, int((MARGIN * seconds - (time.monotonic() - begun)) / step)))
    network = trained(steps, size).eval()

    @torch.no_grad()
    def says(x: Tensor) -> Tensor:
        said = network(_seen(task, x).to(device)).cpu().double()
        return said.log_softmax(-1) if classifies else said * unit + centre

    short = epoch <= steps < wanted
    rounds = f"{steps / epoch:.1f} of {wanted / epoch:.0f} epochs" if short else ""
    return Fitted("plain residual network", says, min(count, steps * size), rounds)


def _seen(task: Task, x: Tensor) -> Tensor:
    """What it reads of raw images."""
    return averaged(task.preprocess(x), SIDE)
