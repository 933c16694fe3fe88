"""What a finished run is worth: the numbers that `search --json` and `show --json` print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from polyarch.architecture import Architecture
from polyarch.data.task import Classification, Likelihood, Split, Task
from polyarch.runs.run import Run
from polyarch.spaces.cost import forward_seconds
from polyarch.uncertainty.calibration import regression_summary, summary
from polyarch.uncertainty.detection import detection
from polyarch.uncertainty.ensemble import Ensemble
from polyarch.uncertainty.predictive import Predictive

BATCH = 1024


@torch.no_grad()
def judge_model(model: nn.Module, split: Split, likelihood: Likelihood, device: torch.device) -> dict[str, float]:
    """Accuracy, log-likelihood and calibration of one network on raw inputs."""
    output = _over(model.to(device), split.x, device)
    if isinstance(likelihood, Classification):
        return summary(output.log_softmax(-1), split.y)
    return regression_summary(output, split.y, likelihood)


@torch.no_grad()
def judge_ensemble(ensemble: Ensemble, split: Split, device: torch.device) -> dict[str, float]:
    """The same of a mixture, whose log-likelihood is log sum_m w_m p_m; for classes, its mean uncertainty too."""
    if isinstance(ensemble.likelihood, Classification):
        return predictive_summary(predictive(ensemble, split.x, device), split.y)
    ensemble = ensemble.to(device)
    output = _over(ensemble.output, split.x, device)
    parts = zip(split.x.to(device).split(BATCH), split.y.to(device).split(BATCH), strict=True)
    fit = torch.cat([ensemble.log_likelihood(x, y) for x, y in parts])
    return regression_summary(output, split.y, ensemble.likelihood) | {"log_likelihood": fit.double().mean().item()}


def predictive(ensemble: Ensemble, x: Tensor, device: torch.device) -> Predictive:
    """What a mixture of classifiers says about raw inputs [n, ...], batch by batch in double precision, on the CPU."""
    ensemble = ensemble.to(device)
    return Predictive.joined([ensemble.precisely(part.to(device)).cpu() for part in x.split(BATCH)])


def predictive_summary(said: Predictive, target: Tensor) -> dict[str, float]:
    """What `summary` measures, and the means of `entropy`, `expected_entropy` and `mutual_information`."""
    names = ("entropy", "expected_entropy", "mutual_information")
    return summary(said.log_probs, target) | {name: getattr(said, name).mean().item() for name in names}


def judge_outside(ensemble: Ensemble, inside: Predictive, outside: Tensor, device: torch.device) -> dict[str, Any]:
    """How well raw inputs of another kind, [m, ...], are told from those that `inside` is about; see `detection`."""
    return dict(detection(inside, predictive(ensemble, outside, device)))


def judge_attack(
    ensemble: Ensemble, split: Split, clean: Predictive, attack: Callable[..., Tensor], device: torch.device
) -> dict[str, Any]:
    """What `summary` measures under an attack on the averaged prediction, and whether attacked inputs are noticed.

    Args:
        ensemble: the mixture of classifiers.
        split: what is attacked.
        clean: what the mixture says about the split as it is.
        attack: `(log_probs_of, x, y)` to attacked inputs, such as `pgd` with its settings.
        device: where to compute.
    """
    ensemble = ensemble.to(device)
    moved = attack(ensemble.output, split.x.to(device), split.y.to(device))
    said = predictive(ensemble, moved, device)
    return {**summary(said.log_probs, split.y), **detection(clean, said)}


def _over(model: Callable[[Tensor], Tensor], x: Tensor, device: torch.device) -> Tensor:
    """A model's output for all inputs, batch by batch."""
    return torch.cat([model(part.to(device)).cpu() for part in x.split(BATCH)])


def judge(
    run: Run, architecture: Architecture, split: Split, ensemble: Ensemble | None = None
) -> dict[str, dict[str, float]]:
    """The network of an architecture and the mixture (where nested, cut there and whole), on a split.

    Args:
        run: whose they are.
        architecture: of the network.
        split: what they are judged on.
        ensemble: the mixture, where it is not `run.ensemble(architecture)`.
    """
    found = {"selected": judge_model(run.model(architecture), split, run.config.likelihood(), run.device)}
    if run.space.nested or run.space.count() > 1:
        found["ensemble"] = judge_ensemble(ensemble or run.ensemble(architecture), split, run.device)
    if run.space.nested:
        found["unpruned"] = judge_ensemble(run.ensemble(largest(run)), split, run.device)
    return found


def largest(run: Run) -> Architecture:
    """Of a nested space, the architecture that contains all others: the deepest network of the depth space."""
    return run.space.architecture([len(d) - 1 for d in run.space.decisions])


def results(run: Run, task: Task) -> dict[str, Any]:
    """Everything there is to say in numbers about a finished run; test data is looked at here for the first time."""
    metrics: dict[str, dict[str, float]] = {}
    for name, split in (("valid", task.valid), ("test", task.test)):
        if split is not None:
            judged = judge(run, run.architecture, split)
            metrics |= {name if key == "selected" else f"{name}_{key}": found for key, found in judged.items()}
    shown = {"selected": run.architecture} | ({"largest": largest(run)} if run.space.nested else {})
    models = {name: run.model(architecture) for name, architecture in shown.items()}
    seconds = forward_seconds(models, task.train.x[:512], run.device)
    if run.space.nested:
        seconds["saving"] = 1 - seconds["selected"] / seconds["largest"]
    history = run.history()
    result: dict[str, Any] = {
        "run": str(run.folder),
        "space": run.config.space["name"],
        "method": run.config.method["name"],
        "data": run.config.data["name"],
        "seed": run.seed,
        "architecture": str(run.architecture),
        "distribution": {
            "probs": {name: p.tolist() for name, p in run.distribution.probs().items()},
            "entropy": run.distribution.entropy().item(),
        },
        "metrics": metrics,
        "cost": {name: vars(run.space.cost(architecture, task.shape)) for name, architecture in shown.items()},
        "budget": {"forward": history[-1]["forward"], "backward": history[-1]["backward"]},
        "forward_seconds": seconds,
    }
    if run.space.name == "depth":
        result["selected_depth"] = run.architecture.choices[0]
    return result
