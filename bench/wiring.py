"""What it costs that every example has its own wiring: a step of NSA-i over a step of a plain residual network.

    python -m bench.wiring --device cuda --width 10 --batch 128      # the paper's size
    python -m bench.wiring --width 1 --batch 32                      # on a CPU

A step is a forward and a backward pass. The residual network is written out below, channels last, and has no code for
reading rows. On a CUDA device both are in bfloat16, and captured in CUDA graphs unless `--eager`. They take turns;
printed are the median of the turns' ratios and its quartiles, for wirings that share all weights (`instance`) and, with
`--own`, for NSA-id.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyarch.data.task import TaskShape
from polyarch.spaces import PerExample, Supernet, Wiring

SHAPE = TaskShape((3, 32, 32), 10)


def node(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))


class Block(nn.Module):
    """x + f(x), f of two modules."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.f = nn.Sequential(node(channels), node(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Adds them."""
        return x + self.f(x)


def residual(width: int) -> nn.Sequential:
    """The paper's network with residual wiring."""
    channels = 16 * width
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)]
    for stage in range(3):
        if stage:
            shrink = nn.Conv2d(channels, 2 * channels, 1, bias=False)
            channels *= 2
            layers += [nn.ReLU(), nn.AvgPool2d(2), shrink, nn.BatchNorm2d(channels)]
        layers += [Block(channels) for _ in range(4)]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def step_of(network: nn.Module, run: Callable[[], Tensor], y: Tensor, captures: bool) -> Callable[[], None]:
    """A forward and a backward pass."""
    cuda, parameters = y.device.type == "cuda", list(network.parameters())
    kept: list[Tensor] = []

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=cuda, cache_enabled=False):
            loss = F.cross_entropy(run(), y)
        kept[:] = torch.autograd.grad(loss, parameters)

    if not captures:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    held = graph, step  # a graph does not hold the weights and inputs that it reads
    return lambda: held[0].replay()


def seconds(step: Callable[[], None], device: torch.device, times: int) -> float:
    """What one step takes, over a few."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(times):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--own", action="store_true", help="also measure NSA-id")
    parser.add_argument("--eager", action="store_true", help="launch kernels one by one, also on a CUDA device")
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    x, y = torch.randn(given.batch, *SHAPE.input, device=device), torch.randint(10, (given.batch,), device=device)
    plain = residual(given.width).to(device, memory_format=torch.channels_last)
    laid_out = x.contiguous(memory_format=torch.channels_last)
    captures = device.type == "cuda" and not given.eager
    steps = {"residual": step_of(plain, lambda: plain(laid_out), y, captures)}

    def run(supernet: Supernet, view: PerExample) -> Tensor:
        output: Tensor = supernet(x.unsqueeze(0), view)
        return output.squeeze(0)

    spaces = {"instance": Wiring(width=given.width)}
    if given.own:
        spaces["own"] = Wiring(width=given.width, listed=5, own_aggregation=True, own_affine=True)
    for name, space in spaces.items():
        with device:
            supernet = space.supernet(SHAPE)
        supernet.reset_parameters([torch.Generator().manual_seed(0)])
        choices = space.random().sample(given.batch, torch.Generator().manual_seed(0))
        view = PerExample(choices.to(device).unsqueeze(0))
        steps[name] = step_of(supernet, partial(run, supernet, view), y, captures)
    times = 5 if device.type == "cuda" else 1
    turns = {name: [seconds(step, device, times) for _ in range(2)][1:] for name, step in steps.items()}
    for _ in range(given.turns):
        for name, step in steps.items():
            turns[name].append(seconds(step, device, times))
    ratios = {name: torch.tensor(turns[name]) / torch.tensor(turns["residual"]) for name in spaces}
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()} CPU"
    found = {
        "machine": f"{machine}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "width": given.width,
        "batch": given.batch,
        "captured": captures,
        "ms": {name: round(1e3 * torch.tensor(own).median().item(), 3) for name, own in turns.items()},
        "ratio": {
            name: [round(ratio.quantile(q).item(), 4) for q in (0.5, 0.25, 0.75)] for name, ratio in ratios.items()
        },
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
