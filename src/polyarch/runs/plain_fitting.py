"""Fitting plain models in a given time: linear ones, boosted trees and a small network by scikit-learn.

How long a fit takes is foretold from fits of a few rounds, on ever more examples. So all of them are taken where that
is quick, else a sample; and where there is no time for a small one either, the model is left out.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from polyarch.data.counts import Counts
from polyarch.data.likelihood import Classification, Gaussian
from polyarch.data.multi_label import MultiLabel
from polyarch.data.task import Split, Task
from polyarch.plotting import Array

FIRST = 200
"""Examples of the first fit, of a few rounds, by which others are foretold."""
TRIAL = 0.1
"""The share of the rounds of those fits that are there to foretell others."""
GROWTH = 4
"""So many times the examples of one fit the next one takes at most: times of much smaller fits foretell little."""
WORTH_IT = 1.5
"""A fit on fewer times the examples of the last one is left out: it would change next to nothing."""
MORE_ROUNDS = 2
"""So many times the rounds of a fit that ended early the next one, on more examples, may need."""
TREE = 5e-6
"""Seconds that boosted trees take at least for a round, a class and a column, on any machine: no need to try."""
SIDE = 32
"""Pixels a side that a linear model of an image reads at most; larger images are averaged down to them."""
LEAST = 1e-12
"""The least probability that is told: a class that a sample lacks must not make log-likelihoods infinite."""
HELD_OUT = 0.1
"""The share of what a model is given that it stops by, where it does."""
FEW = 1000
"""The network stops by none of fewer examples: it goes by their accuracy, and a tenth of them says little of it."""


@final
@dataclass(frozen=True)
class Recipe:
    """A model of scikit-learn, not yet fitted."""

    name: str
    make: Callable[[int, Array], Any]
    """From the most rounds of its fitting, and the targets that it will be given, to the model."""
    rounds: int
    power: float = 1.0
    """Of the number of examples, with which its time grows at most."""
    least: float = 0.0
    """Seconds that a round takes at least, wherever that is."""


@final
@dataclass(frozen=True, eq=False)
class Fitted:
    """A model that was fitted."""

    name: str
    says: Callable[[Tensor], Tensor]
    """Raw inputs [n, ...] to outputs [n, outputs] of the task's likelihood, of which those of numbers are the mean
    alone; float64."""
    examples: int
    """That it was fitted on."""
    rounds: str = ""
    """Where it went through fewer rounds than it should for lack of time: through how many."""


def recipes(task: Task, seed: int) -> list[Recipe]:
    """The models of scikit-learn that suit a task, the simplest first.

    For tables all three; for images and for tokens, whose counts it reads, a linear one. For a likelihood of one's own
    there is none.
    """
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    likelihood = task.likelihood
    classifies = isinstance(likelihood, Classification)
    # Counts are scaled and stay sparse; the pixels of an image have one scale already.
    scaler = MaxAbsScaler if task.tokens else "passthrough" if is_image(task) else StandardScaler

    def scaled(model: Any) -> Any:
        return make_pipeline(scaler if isinstance(scaler, str) else scaler(), model)

    if isinstance(likelihood, MultiLabel | Counts):
        return _of_labels(scaled, task, seed) if isinstance(likelihood, MultiLabel) else _of_counts(scaled, task, seed)
    if not isinstance(likelihood, Classification | Gaussian):
        return []
    if classifies:
        linear = Recipe("logistic regression", lambda rounds, y: scaled(LogisticRegression(max_iter=rounds)), 100)
    else:
        linear = Recipe("ridge regression", lambda rounds, y: scaled(RidgeCV(alphas=np.logspace(-3, 3, 13))), 1, 3.0)
    if task.tokens or is_image(task):
        return [linear]

    def trees(rounds: int, y: Array) -> Any:
        boosting = HistGradientBoostingClassifier if classifies else HistGradientBoostingRegressor
        stops = _can_hold_out(y, classifies)
        return boosting(max_iter=rounds, early_stopping=stops, validation_fraction=HELD_OUT, random_state=seed)

    def network(rounds: int, y: Array) -> Any:
        stops = len(y) >= FEW and _can_hold_out(y, classifies)
        fitting = {"early_stopping": stops, "validation_fraction": HELD_OUT, "max_iter": rounds, "random_state": seed}
        model = (MLPClassifier if classifies else MLPRegressor)(hidden_layer_sizes=(64, 64), **fitting)
        return scaled(model if classifies else TransformedTargetRegressor(model, transformer=StandardScaler()))

    least = TREE * task.input_shape[0] * (likelihood.outputs if classifies else 1)
    return [linear, Recipe("boosted trees", trees, 100, least=least), Recipe("plain network", network, 100)]


def _of_labels(scaled: Callable[[Any], Any], task: Task, seed: int) -> list[Recipe]:
    """Models of labels that hold or do not: one for each label, and a network for all."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.neural_network import MLPClassifier

    def linear(rounds: int, y: Array) -> Any:
        return scaled(OneVsRestClassifier(LogisticRegression(max_iter=rounds)))

    def network(rounds: int, y: Array) -> Any:
        return scaled(MLPClassifier(hidden_layer_sizes=(64, 64), max_iter=rounds, random_state=seed))

    found = [Recipe("logistic regression", linear, 100)]
    return found if task.tokens or is_image(task) else [*found, Recipe("plain network", network, 100)]


def _of_counts(scaled: Callable[[Any], Any], task: Task, seed: int) -> list[Recipe]:
    """Models of counts, all by the likelihood of Poisson."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import PoissonRegressor

    def linear(rounds: int, y: Array) -> Any:
        return scaled(PoissonRegressor(alpha=1 / len(y), max_iter=rounds))

    def trees(rounds: int, y: Array) -> Any:
        stops = _can_hold_out(y, classifies=False)
        fitting = {"early_stopping": stops, "validation_fraction": HELD_OUT, "max_iter": rounds, "random_state": seed}
        return HistGradientBoostingRegressor(loss="poisson", **fitting)

    found = [Recipe("Poisson regression", linear, 100)]
    if task.tokens or is_image(task):
        return found
    return [*found, Recipe("boosted trees", trees, 100, least=TREE * task.input_shape[0])]


def is_image(task: Task) -> bool:
    """Whether inputs are images."""
    return len(task.input_shape) == 3


def fit_within(recipe: Recipe, task: Task, order: Tensor, seconds: float) -> Fitted | float:
    """Fits a model on as many training examples as there is time for.

    Args:
        recipe: the model.
        task: its data.
        order: of the training examples, of which the first are taken.
        seconds: it may take.

    Returns:
        The model; or, where there is no time even for the first examples, how many seconds these would take.
    """
    ends, count = time.monotonic() + seconds, len(order)

    def left() -> float:
        return max(0.0, ends - time.monotonic())

    rows, few = min(FIRST, count), math.ceil(TRIAL * recipe.rounds)
    if recipe.least * recipe.rounds > seconds:
        return recipe.least * recipe.rounds
    _, first = _timed(recipe, 1, task, order[:rows])  # what is done for the first time takes longer
    if first > seconds / 4:
        return first * recipe.rounds
    model, took = _timed(recipe, few, task, order[:rows])
    whole = _in_all_rounds(recipe, model, took)
    while rows < count and 2 * max(whole, took * GROWTH**recipe.power) < left():
        more = min(count, GROWTH * rows)
        model, took = _timed(recipe, few, task, order[:more])
        ahead = _in_all_rounds(recipe, model, took)
        if ahead > left():
            break
        rows, whole = more, ahead
    if whole > left():
        return whole
    more = rows
    while True:
        affordable = rows * (left() / whole) ** (1 / recipe.power)
        rows = max(more, int(min(count, affordable, GROWTH * rows)))
        model, took = _timed(recipe, recipe.rounds, task, order[:rows])
        whole = min(_in_all_rounds(recipe, model, took), MORE_ROUNDS * took)
        more = min(count, math.ceil(WORTH_IT * rows))
        if rows == count or whole * (more / rows) ** recipe.power > left():
            return _fitted(recipe, model, task, rows)


def features(task: Task, x: Tensor) -> Any:
    """What models read of raw inputs [n, ...]: what networks see, one row per example; of tokens, their counts."""
    if task.tokens:
        tokens = x.flatten(1).numpy()
        rows = np.arange(len(tokens)).repeat(tokens.shape[1])
        shape = (len(tokens), task.tokens)
        return scipy.sparse.csr_matrix((np.ones(tokens.size, np.float32), (rows, tokens.ravel())), shape=shape)
    seen = task.preprocess(x)
    return (averaged(seen, SIDE) if is_image(task) else seen).flatten(1).numpy()


def averaged(images: Tensor, side: int) -> Tensor:
    """Images [n, channels, height, width] with no more pixels a side than so many."""
    size = (min(side, images.shape[2]), min(side, images.shape[3]))
    return images if size == images.shape[2:] else adaptive_avg_pool2d(images, size)


def order_of(split: Split, classifies: bool, generator: torch.Generator) -> Tensor:
    """A random order of training examples that begins with one of every class, so that no sample lacks any."""
    order = torch.randperm(len(split), generator=generator)
    if not classifies:
        return order
    first = np.unique(split.y[order].numpy(), return_index=True)[1]
    rest = np.setdiff1d(np.arange(len(order)), first)
    return order[torch.from_numpy(np.concatenate([first, rest]))]


def _can_hold_out(y: Array, classifies: bool) -> bool:
    """Whether a share can be held out of these targets: scikit-learn wants some of every class on both sides."""
    counts = np.unique(y, return_counts=True)[1]
    return len(y) >= 100 and (not classifies or (counts.min() >= 2 and HELD_OUT * len(y) >= len(counts)))


def _timed(recipe: Recipe, rounds: int, task: Task, rows: Tensor) -> tuple[Any, float]:
    """A model fitted on some training examples, and how many seconds that took."""
    begun = time.monotonic()
    y = task.train.y[rows].numpy()
    model = recipe.make(rounds, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rounds may end before it has converged
        model.fit(features(task, task.train.x[rows]), y)
    return model, time.monotonic() - begun


def _in_all_rounds(recipe: Recipe, model: Any, took: float) -> float:
    """How many seconds a fit would have taken that went through all its rounds."""
    return took * recipe.rounds / _rounds_of(model)


def _rounds_of(model: Any) -> int:
    """How many rounds a fit went through; 1 where it has none."""
    last = model[-1] if hasattr(model, "steps") else model
    last = getattr(last, "regressor_", last)
    return max(1, *(int(np.max(getattr(own, "n_iter_", 1))) for own in getattr(last, "estimators_", [last])))


def _fitted(recipe: Recipe, model: Any, task: Task, rows: int) -> Fitted:
    likelihood = task.likelihood

    def numbers(x: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(model.predict(features(task, x)), np.float64))[:, None]

    if isinstance(likelihood, Counts):
        unit = likelihood.unit
        return Fitted(recipe.name, lambda x: (numbers(x).clamp_min(LEAST) / unit).log(), rows)
    if isinstance(likelihood, MultiLabel):
        return Fitted(recipe.name, lambda x: _logits(model.predict_proba(features(task, x))), rows)
    if not isinstance(likelihood, Classification):
        return Fitted(recipe.name, numbers, rows)
    classes = likelihood.classes

    def log_probs(x: Tensor) -> Tensor:
        said: Array = np.full((len(x), classes), LEAST)
        said[:, model.classes_] = np.maximum(model.predict_proba(features(task, x)), LEAST)
        return torch.from_numpy(said).log().log_softmax(-1)

    return Fitted(recipe.name, log_probs, rows)


def _logits(probs: Array) -> Tensor:
    return torch.from_numpy(np.asarray(probs, np.float64)).clamp(LEAST, 1 - LEAST).logit()
