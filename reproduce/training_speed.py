"""Training speed as a judge of models: the toys of the SoTL thesis, whose answers are known.

    python -m reproduce.training_speed --quick                     # two minutes: fewer seeds and steps
    python -m reproduce.training_speed --full --images FOLDER      # an hour on two cores; FOLDER holds mnist/
    python -m reproduce.training_speed --full --only evidence      # parts by name

    python -m reproduce.training_speed --table                     # what was found, as Markdown
    python -m reproduce.training_speed --figures                   # figures as SVG

Every part writes docs/results/training-speed/PART.json (rows, the command, seeds, machine); tables and figures come
from these.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

import polyarch as pa
from polyarch.spaces.fourier import features, gates
from polyarch.training.hypergradients import sotl_first_order, sotl_forward, sotl_reverse, unrolled_exact
from reproduce import training_speed_fourier as fourier
from reproduce import training_speed_shown as shown
from reproduce.showing import Row, about, chosen, draw, keep, page, sized_parser
from reproduce.training_speed_evidence import judged

Rows = Iterator[Row]
RATE = 0.01
"""Of weights and of the degree, as in the released code."""
TRUE_DEGREES = (3, 5)


def evidence(given: Namespace) -> Rows:
    """Eq. 3.3 to 3.6: 100 noisy points of a series of degree 3; feature sets are degrees; one data draw per seed."""
    for seed in range(given.seeds):
        generator = torch.Generator().manual_seed(seed)
        task = pa.data.load("fourier", definition="code", degree=3, points=114, data_seed=seed)
        order = torch.randperm(len(task.train.y), generator=generator)[:100]
        x, y = task.train.x[order].double(), task.train.y[order].double()
        for degree in (1, 3, 5) if given.quick else (0, 1, 2, 3, 4, 5, 7, 9):
            found = judged(features(x, degree, "separate"), y, (1, 5, 50), generator)
            yield {"seed": seed, "degree": degree, **found}


# ---------------------------------------------------------------------------------------------------------------------
# The Fourier degree (section 4.1.2). Many models are trained at once, one per row: their losses are summed and none
# touches another's weights, so that every row has its own gradient.


def fixed_degrees(given: Namespace) -> Rows:
    """Fig. 4.2: SoTL of models of a fixed degree, both data definitions; batch 64, rate 0.01, weight L2 0.001.

    Weights start as a linear layer's on all features (the thesis), or at zero (ours).
    """
    grid = (0, 1, 2, 3, 5, 21) if given.quick else (*range(10), *range(11, 22, 2))
    models = list(product(range(given.seeds), TRUE_DEGREES, grid))
    sets = torch.arange(len(models)) // len(grid)
    counts = torch.tensor([[float(j <= fixed) for j in range(22)] for *_, fixed in models], dtype=torch.float64)
    for definition in fourier.COLUMNS:
        train, _ = fourier.load_series(definition, TRUE_DEGREES, given.seeds, highest=21)
        width, epoch = train.x.shape[-1], train.y.shape[1] // fourier.BATCH
        used = fourier.widened(counts, width)
        drawn = fourier.first_weights(given.seeds, width)[sets // len(TRUE_DEGREES)]
        for start, weights in (("drawn", drawn), ("zero", torch.zeros_like(drawn))):
            losses = training_losses(weights * used, used, train, sets, min(given.steps, 3 * epoch))
            for (seed, true, fixed), curve in zip(models, losses, strict=True):
                yield {
                    "seed": seed, "data": definition, "start": start, "true": true, "degree": fixed,
                    "steps": len(curve), "epoch": epoch,
                    "sotl": curve.sum().item(), "first_epoch": curve[:epoch].sum().item(),
                    "last_epoch": curve[-epoch:].sum().item(),
                    "curve": [round(part.mean().item(), 4) for part in curve.tensor_split(40)],
                }  # fmt: skip


def training_losses(weights: Tensor, used: Tensor, train: fourier.Series, sets: Tensor, steps: int) -> Tensor:
    """Every loss on the way, [models, steps]; weights and the columns in use are [models, width]."""
    losses, places = [], fourier.shuffled(train.y.shape[1], torch.Generator().manual_seed(0))
    for _ in range(steps):
        weights = weights.detach().requires_grad_()
        fit = fourier.squared_errors(weights * used, train.batch(next(places), sets))
        loss = fit + fourier.WEIGHT_L2 * weights.square().sum(1)
        [gradient] = torch.autograd.grad(loss.sum(), weights)
        weights = weights - RATE * gradient
        losses.append(loss.detach())
    return torch.stack(losses, 1)


# ---------------------------------------------------------------------------------------------------------------------
# The degree by gradient: MaxDeg is alpha.

STARTS = (-1.0, 0.0, 8.0)
DEGREE_L2 = (0.01, 0.003)
"""The released code's, and the one under which every run is to end near the truth."""


@dataclass(frozen=True)
class Objective:
    """What MaxDeg descends, every T steps of the weights; then the weights take the T steps again."""

    name: str
    T: int
    kind: Literal["exact", "first", "valid"] = "exact"
    rate: float = RATE
    """Of MaxDeg."""


OBJECTIVES = (
    Objective("SoTL, T=25", 25),
    Objective("SoTL, T=2", 2),
    Objective("validation, T=2", 2, "valid"),
    Objective("validation, T=2, twice the rate", 2, "valid", 2 * RATE),
    Objective("SoTL, T=100", 100),
    Objective("SoTL first order, T=25", 25, "first"),
)


def learnt_degrees(given: Namespace) -> Rows:
    """Fig. 4.3: MaxDeg by hypergradients, starts -1, 0 and 8, true degrees 3 and 5, both data definitions, D=9."""
    for definition in fourier.COLUMNS:
        for objective in OBJECTIVES[:3] if given.quick else OBJECTIVES:
            print(f"  {definition}, {objective.name}", flush=True)
            yield from learn_degrees(definition, objective, given)


def learn_degrees(definition: fourier.Definition, objective: Objective, given: Namespace) -> Rows:
    """All starts, true degrees, seeds and strengths of L2 at once."""
    train, valid = fourier.load_series(definition, TRUE_DEGREES, given.seeds, fourier.HIGHEST)
    models = list(product(range(given.seeds), TRUE_DEGREES, STARTS, DEGREE_L2))
    sets = torch.arange(len(models)) // (len(STARTS) * len(DEGREE_L2))
    strengths = torch.tensor([strength for *_, strength in models], dtype=torch.float64)
    width = train.x.shape[-1]

    def loss(weights: Sequence[Tensor], alpha: Sequence[Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
        gate = fourier.widened(gates(alpha[0], fourier.HIGHEST), width)
        penalty = fourier.WEIGHT_L2 * weights[0].square().sum() + (strengths * alpha[0].square()).sum()
        return fourier.squared_errors(weights[0] * gate, batch).sum() + penalty

    weights = [fourier.first_weights(given.seeds, width)[sets // len(TRUE_DEGREES)]]
    alpha = [torch.tensor([start for _, _, start, _ in models], dtype=torch.float64)]
    generator = torch.Generator().manual_seed(0)
    places, valid_places = fourier.shuffled(train.y.shape[1], generator), fourier.shuffled(valid.y.shape[1], generator)
    path = [alpha[0]]
    for _ in range(given.steps // objective.T):
        batches = [train.batch(next(places), sets) for _ in range(objective.T)]
        if objective.kind == "valid":
            held_out = valid.batch(next(valid_places), sets)
            [gradient] = unrolled_exact(
                lambda w, a, b=batches[0]: loss(w, a, b), lambda w, a, b=held_out: loss(w, a, b), weights, alpha, RATE
            )
        else:
            by = sotl_reverse if objective.kind == "exact" else sotl_first_order
            [gradient] = by(loss, weights, alpha, batches, RATE).gradient
        alpha = [alpha[0] - objective.rate * gradient]
        weights = sotl_first_order(loss, weights, alpha, batches, RATE).weights
        path.append(alpha[0])
    for (seed, true, start, strength), which, degrees in zip(models, sets, torch.stack(path, 1), strict=True):
        best = fourier.best_degree(definition, true, strength)
        if objective.kind == "valid":
            best = fourier.best_by_validation(train.one(which), valid.one(which), true, strength)
        yield {
            "seed": seed, "data": definition, "objective": objective.name, "true": true, "start": start,
            "degree_l2": strength, "steps": given.steps, "end": degrees[-1].item(),
            "arrived": arrival(degrees, true, objective.T),
            "best": best,
            "path": [round(v.item(), 3) for v in degrees[torch.linspace(0, len(degrees) - 1, 101).long()]],
        }  # fmt: skip


def arrival(degrees: Tensor, true: int, steps: int) -> int | None:
    """Steps of the weights until MaxDeg first is within 0.5 of the truth; None for never."""
    near = ((degrees - true).abs() <= 0.5).nonzero()
    return int(near[0]) * steps if len(near) else None


# ---------------------------------------------------------------------------------------------------------------------
# The learning rate by gradient (section 4.1.1): alpha is the rate itself.

FIRST_RATE, HYPER_RATE, MOST = 1e-3, 1e-2, 10.0
"""Rate of the weights at first, rate of that rate, and the size its gradient is clipped to."""
DECAY, IMAGE_BATCH, HIDDEN = 1e-4, 128, 1000


def network_loss(weights: Sequence[Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy of a network of one hidden layer, and weight decay."""
    x, y = batch
    penalty = torch.stack([weight.square().sum() for weight in weights]).sum()
    return F.cross_entropy(answers(weights, x), y) + 0.5 * DECAY * penalty


def answers(weights: Sequence[Tensor], x: Tensor) -> Tensor:
    """[batch, inputs] -> [batch, classes]."""
    first, bias, second, last = weights
    return F.linear(F.linear(x, first, bias).relu(), second, last)


def network_weights(seed: int) -> list[Tensor]:
    """Drawn as linear layers draw theirs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = (torch.nn.Linear(784, HIDDEN), torch.nn.Linear(HIDDEN, 10))
    return [weight.detach() for layer in layers for weight in layer.parameters()]


def next_rate(rate: float, gradient: float) -> float:
    """Down the clipped gradient; halved instead where that would make it negative."""
    moved = rate - HYPER_RATE * max(-MOST, min(MOST, gradient))
    return moved if moved > 0 else rate / 2


def learning_rate(given: Namespace) -> Rows:
    """Fig. 4.1a: test accuracy on MNIST while the rate follows the exact gradient of SoTL; T=0 keeps it at 0.001."""
    if not given.images:
        print("  left out: needs --images FOLDER, with mnist/ in it", flush=True)
        return
    task = pa.data.load("mnist", folder=given.images, limit=4000 if given.quick else 0)
    assert task.test is not None
    x, y = task.preprocess(task.train.x).flatten(1), task.train.y
    x_test, y_test = task.preprocess(task.test.x).flatten(1), task.test.y
    for seed in range(1 if given.quick else min(given.seeds, 2)):
        for steps in (0, 2, 25, 150):
            weights, rate = network_weights(seed), FIRST_RATE
            generator = torch.Generator().manual_seed(seed)
            rates, accuracies = [], []
            for _ in range(given.epochs):
                order = torch.randperm(len(y), generator=generator)[: len(y) // IMAGE_BATCH * IMAGE_BATCH]
                batches = [(x[places], y[places]) for places in order.view(-1, IMAGE_BATCH)]
                for first in range(0, len(batches), steps or len(batches)):
                    some = batches[first : first + (steps or len(batches))]
                    if steps:
                        rate = next_rate(rate, rate_slope(weights, rate, some))
                    weights = trained(weights, rate, some)
                    rates.append(rate)
                right = (answers(weights, x_test).argmax(1) == y_test).double().mean().item()
                accuracies.append(right)
            print(f"  T={steps}, seed {seed}: {accuracies[-1]:.4f}, rate {rate:.4f}", flush=True)
            shown = rates[:: max(1, len(rates) // 200)]
            yield {"seed": seed, "T": steps, "accuracy": accuracies, "rates": [round(r, 6) for r in shown], "end": rate}


def rate_slope(weights: Sequence[Tensor], rate: float, batches: Sequence[Any]) -> float:
    """How SoTL changes with the rate; forward, since there is one number to differentiate by and many steps."""

    def loss(w: Sequence[Tensor], _: Sequence[Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
        return network_loss(w, batch)

    return sotl_forward(loss, weights, [torch.tensor(rate)], batches, lambda alpha: alpha[0]).gradient[0].item()


def trained(weights: Sequence[Tensor], rate: float, batches: Sequence[Any]) -> list[Tensor]:
    """Plain SGD, one step per batch."""
    kept = [weight.clone().requires_grad_() for weight in weights]
    for batch in batches:
        gradients = torch.autograd.grad(network_loss(kept, batch), kept)
        with torch.no_grad():
            for weight, gradient in zip(kept, gradients, strict=True):
                weight -= rate * gradient
    return [weight.detach() for weight in kept]


# ---------------------------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Namespace], Rows]] = {
    part.__name__: part for part in (evidence, fixed_degrees, learnt_degrees, learning_rate)
}


def main() -> None:
    """Runs the parts asked for and writes their rows; or prints and draws what there is."""
    parser = sized_parser(__doc__, "training-speed", "table", "figures", steps=(2000, 40_000), epochs=(1, 5))
    parser.add_argument("--seeds", type=int, help="default: 20 for evidence, else 3; 2 for --quick")
    parser.add_argument("--only", default="all", help=f"parts, separated by commas, of {', '.join(PARTS)}")
    parser.add_argument("--images", default="", help="folder with mnist/")
    given = parser.parse_args()
    if given.table:
        print(page(given.out, shown.SECTIONS, seeds=True), end="")
    elif given.figures:
        names = chosen(parser, "figure", given.figures, list(shown.DRAWINGS))
        draw(given.out, {name: shown.DRAWINGS[name] for name in names}, "svg")
    else:
        for name in chosen(parser, "part", given.only, list(PARTS)):
            print(f"{name}: {about(PARTS[name])}", flush=True)
            own = Namespace(**vars(given))
            own.seeds = given.seeds or (2 if given.quick else 20 if name == "evidence" else 3)
            keep(given.out / f"{name}.json", PARTS[name](own), part=name, about=about(PARTS[name]))


if __name__ == "__main__":
    main()
