"""Plain models beside a search: what there is for next to nothing, and whether the search was worth it.

They are fitted on the training data of the run, see what networks see, and are measured as these are. They take a tenth
of the time of the search at most, or a few seconds. Of validation data, by which searches are stopped and architectures
selected, they see nothing before they are measured on it: where they are better there, it is in spite of that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal, final

import torch
from torch import Tensor

from polyarch.data.likelihood import Classification, Gaussian, Likelihood
from polyarch.data.task import Split, Task
from polyarch.files import read_json, write_json
from polyarch.runs.names import as_run
from polyarch.runs.plain_fitting import Fitted, fit_within, is_image, order_of, recipes
from polyarch.runs.plain_network import fit_residual_network
from polyarch.runs.results import Networks, answers_of, metrics_of
from polyarch.runs.run import PLAIN, Run, searched_seconds
from polyarch.streams import Streams
from polyarch.training.evaluation import MOST
from polyarch.uncertainty.calibration import summary
from polyarch.uncertainty.ensemble import BATCH, Said, said_by
from polyarch.uncertainty.gaussians import fitted
from polyarch.uncertainty.predictive import Predictive

SHARE = 0.1
"""Of the time of the search that all of them take at most."""
FLOOR = 3.0
"""Seconds that they may take however short the search was."""
ERRORS = 2.0
"""Standard errors from which on a difference counts: several models are compared, and one of three would be ahead by a
single one every other time by luck."""
METRICS = {"rmse": "RMSE", "hamming_accuracy": "Hamming accuracy"}
"""How a sentence writes a metric, where that is not its name."""
NATS = 0.01
"""The least difference of log-likelihoods that counts: with many examples less is sure, and of no use to anybody."""


@final
@dataclass(frozen=True)
class PlainModel:
    """One plain model, fitted and measured."""

    name: str
    examples: int
    """Training examples that it was fitted on."""
    of: int
    """How many there are."""
    rounds: str
    """Where there was no time for as many rounds as it should have: how many it had."""
    seconds: float
    metrics: dict[str, dict[str, float]]
    """By split: `select`, `test`."""
    difference: float | None
    """By how many nats its log-likelihood on validation data is above that of what the run hands over."""
    error: float | None
    """The standard error of that, by the differences of single examples."""

    @property
    def title(self) -> str:
        """Its name, with what it lacked."""
        return f"{self.name}, {self.note}" if self.note else self.name

    @property
    def note(self) -> str:
        """What it lacked, in a few words."""
        sample = f"on {self.examples:,} of {self.of:,} examples" if self.examples < self.of else ""
        return ", ".join(part for part in (sample, self.rounds) if part)


@final
@dataclass(frozen=True)
class PlainModels:
    """Plain models, and what they say of a search."""

    seconds: float
    """That all of them took."""
    limit: float
    """That they might."""
    models: tuple[PlainModel, ...]
    left_out: dict[str, str]
    """By the name of a model that was not fitted: why."""
    own: str
    """What they are compared with: of the `network` and the `mixture` that the run hands over, whichever has the higher
    log-likelihood on validation data; nothing where there is no such data."""
    own_metrics: dict[str, float]
    """Of that, on validation data."""
    trained: bool
    """Whether the selected network had been trained alone by then."""
    examples: int
    """Of validation data, that they are compared on."""
    advice: str
    """What to try where one of them does better."""

    @property
    def lacks(self) -> str:
        """Which models were left out, and why; nothing where none was."""
        reasons = "; ".join(f"{name}, since {reason}" for name, reason in self.left_out.items())
        return f"not fitted: {reasons}" if reasons else ""

    @property
    def best(self) -> PlainModel | None:
        """The one of the highest log-likelihood on validation data."""
        compared = [model for model in self.models if model.difference is not None]
        return max(compared, key=lambda model: model.difference or 0.0) if compared else None

    @property
    def verdict(self) -> Literal["better", "even", "worse", ""]:
        """What the best of them is beside what the run hands over, by validation data; nothing where there is none."""
        best = self.best
        if best is None or best.difference is None or best.error is None:
            return ""
        if abs(best.difference) <= max(NATS, ERRORS * best.error):
            return "even"
        return "better" if best.difference > 0 else "worse"

    def sentences(self) -> list[str]:
        """The verdict in words, and what to do where a plain model is better; nothing where there is no verdict."""
        best = self.best
        if best is None or best.difference is None or best.error is None:
            return []
        by = f"{abs(best.difference):.3f} ± {best.error:.3f} nats"
        metric = next(iter(self.own_metrics))  # the everyday one comes first
        theirs, mine = (f"{found[metric]:.3g}" for found in (best.metrics["select"], self.own_metrics))
        told = f"{METRICS.get(metric, metric.replace('_', ' '))} {theirs} against {mine}"
        if self.verdict == "better":
            return [
                f"A plain model does better: {best.name}, by {by} of log-likelihood on validation data ({told}).",
                f"Take that, or {self.advice}.",
            ]
        if self.verdict == "even":
            how_far = f"as far as {self.examples:,} validation examples tell"
            return [f"The best plain model, {best.name}, does as well {how_far} ({told})."]
        return [f"The best plain model, {best.name}, is {by} of log-likelihood behind on validation data ({told})."]


def fit_plain_models(
    runs: Run | str | os.PathLike[str] | Sequence[Run], *, tell: Callable[[str], None] = lambda doing: None
) -> PlainModels:
    """Fits plain models beside a finished search, and writes `plain.json` into its folder.

    Of a table, logistic, ridge or Poisson regression, boosted trees and a plain network; of images, a linear model of
    the pixels and a plain residual network; of tokens, a linear model of their counts; for a likelihood of one's own,
    nothing. All draws are made from the run's seed; how many examples a model is given depends on how fast it is here,
    where there is no time for all.

    Args:
        runs: a finished run, or its folder; or all repeats of one search, for which they are fitted once.
        tell: is told what is about to be fitted.

    Returns:
        The models as they compare with the run, or with the first of several.
    """
    runs = [as_run(runs)] if isinstance(runs, Run | str | os.PathLike) else list(runs)
    task, seed = runs[0].task(), runs[0].seed
    limit = max(FLOOR, SHARE * max(searched_seconds(run.history()) for run in runs))
    if runs[0].config.time_limit:
        limit = min(limit, SHARE * runs[0].config.time_limit)
    begun = time.monotonic()
    models, left_out = _fit_all(task, seed, limit, runs[0].device, tell)
    seconds = round(time.monotonic() - begun, 3)
    splits = {"select": task.select.some(MOST) if task.select else None, "test": task.test}
    likelihood = runs[0].likelihood("shared")
    measured = [_measured(model, took, task, splits, likelihood) for model, took in models]
    for run in runs:
        found = _compared(run, measured, splits["select"], (seconds, limit), left_out)
        write_json(run.folder / PLAIN, asdict(found))
    return read_plain(runs[0].folder) or found


def read_plain(folder: Path) -> PlainModels | None:
    """What plain models were found to be worth beside a run; None where none was fitted."""
    if not (folder / PLAIN).exists():
        return None
    values = read_json(folder / PLAIN)
    return PlainModels(**values | {"models": tuple(PlainModel(**model) for model in values["models"])})


def over_seeds(found: Sequence[PlainModels]) -> list[str]:
    """The sentences about one run, or about several repeats."""
    if len(found) == 1:
        return found[0].sentences()
    better = [plain for plain in found if plain.verdict == "better"]
    if better:
        names = " or ".join(dict.fromkeys(plain.best.name for plain in better if plain.best))
        which = "every seed hands" if len(better) == len(found) else f"{len(better)} of {len(found)} seeds hand"
        return [
            f"A plain model does better than what {which} over: {names}, by log-likelihood on validation data.",
            f"Take that, or {better[0].advice}.",
        ]
    count = [plain.verdict for plain in found].count("worse")
    which = "every seed" if count == len(found) else f"{count} of {len(found)} seeds"
    return [f"The best plain model is behind {which} by log-likelihood on validation data."] if count else []


def _fit_all(
    task: Task, seed: int, limit: float, device: torch.device, tell: Callable[[str], None]
) -> tuple[list[tuple[Fitted, float]], dict[str, str]]:
    """The models with the seconds that each took, and of others why they were left out."""
    classifies = isinstance(task.likelihood, Classification)
    if task.parts:
        return [], {"plain models": "they take one input, and every example has several"}
    if classifies and len(task.train.y.unique()) < 2:
        return [], {"plain models": "the training data has examples of one class alone"}
    suiting = recipes(task, seed)
    if not suiting:
        return [], {"plain models": "scikit-learn has none for this likelihood"}
    ways: dict[str, Callable[[float], Fitted | float]] = {}
    order = order_of(task.train, classifies, Streams(seed)["data"])
    for recipe in suiting:
        ways[recipe.name] = partial(fit_within, recipe, task, order)
    if is_image(task) and isinstance(task.likelihood, Classification | Gaussian):
        ways["plain residual network"] = partial(fit_residual_network, task, seed, device)
    models, left_out = [], {}
    tell(f"fitting {' and '.join(', '.join(ways).rsplit(', ', 1))}, in {limit:.0f} s at most")
    since = time.monotonic()
    for place, (name, fit) in enumerate(ways.items()):
        begun = time.monotonic()
        found = fit((limit - (begun - since)) / (len(ways) - place))
        if isinstance(found, Fitted):
            models.append((found, round(time.monotonic() - begun, 3)))
        else:
            left_out[name] = f"the smallest sample might have taken {found:.0f} s"
    return models, left_out


Told = dict[str, tuple[dict[str, float], Tensor]]
"""By split, metrics and the log-likelihood of every example."""


def _measured(
    model: Fitted, seconds: float, task: Task, splits: Mapping[str, Split | None], likelihood: Likelihood
) -> tuple[Fitted, float, int, Told]:
    """A model with what it says of every split."""
    told: Told = {}
    for name, split in splits.items():
        if split is None:
            continue
        said = torch.cat([model.says(part) for part in split.x.split(BATCH)])
        if isinstance(likelihood, Gaussian) and likelihood.fits and name == "select":  # as the run fits its own
            likelihood = fitted(said[None], torch.ones(1), split.y, Gaussian(noise="task"))
        told[name] = _told(said_by(said[None], torch.ones(1), likelihood), split.y)
    return model, seconds, len(task.train), told


def _told(said: Said, y: Tensor) -> tuple[dict[str, float], Tensor]:
    """Metrics, and the log-likelihood of every example."""
    if isinstance(said, Predictive):
        return summary(said.log_probs, y), said.log_probs.double().gather(-1, y[:, None])[:, 0]
    return metrics_of(said, y), said.log_prob(y.double())


def _compared(
    run: Run,
    measured: Sequence[tuple[Fitted, float, int, Told]],
    select: Split | None,
    times: tuple[float, float],
    left_out: dict[str, str],
) -> PlainModels:
    """The models beside one run, example by example."""
    own, own_metrics, own_values = "", dict[str, float](), torch.empty(0)
    if select is not None and len(select) > 1:
        ways = _own(run, select)
        own = max(ways, key=lambda name: ways[name][1].mean().item())
        own_metrics, own_values = ways[own]
    models = []
    for model, took, count, told in measured:
        difference = error = None
        if own:
            apart = told["select"][1] - own_values
            difference, error = apart.mean().item(), (apart.std() / len(apart) ** 0.5).item()
        metrics = {name: numbers for name, (numbers, _) in told.items()}
        models.append(PlainModel(model.name, model.examples, count, model.rounds, took, metrics, difference, error))
    return PlainModels(
        seconds=times[0],
        limit=times[1],
        models=tuple(models),
        left_out=left_out,
        own=own,
        own_metrics=own_metrics,
        trained=run.trained is not None,
        examples=len(own_values),
        advice=_advice(run),
    )


def _own(run: Run, split: Split) -> dict[str, tuple[dict[str, float], Tensor]]:
    """What the run hands over is worth on a split: the selected network and, as `predict` has it, the mixture."""
    alone = run.trained or run
    if not run.classifies:
        said = Networks.of(run, run.architecture).predict(split.x)
        if run.trained is not None:
            said["selected"] = Networks.of(alone, alone.architecture).predict(split.x)["selected"]
        network, mixture = said["selected"], said.get("ensemble", said["selected"])
        return {"network": _told(network, split.y), "mixture": _told(mixture, split.y)}
    alone_said = answers_of(alone, "select", split).selected
    together = answers_of(run, "select", split).mixture.tempered(run.temperature)
    return {"network": _told(alone_said, split.y), "mixture": _told(together, split.y)}


def _advice(run: Run) -> str:
    """What may make a search better that a plain model surpasses."""
    method = run.config.make_method()
    if run.shares_weights and run.trained is None:
        return "train what it selected alone"
    if run.result["kept"]["epoch"] >= 0.9 * method.epochs:
        how = "with a longer --time-limit" if run.config.time_limit else f"such as --set epochs={2 * method.epochs}"
        return f"search longer, {how}"
    if run.space.nested and run.space.count() > 1 and run.architecture.choices[0] == run.space.count() - 1:
        [decision] = run.space.decisions
        return f"search a space that goes beyond {decision.name} {decision.options[-1]}, the last of this one"
    return f"search with another weights.lr: the state that was kept is of epoch {run.result['kept']['epoch']}"
