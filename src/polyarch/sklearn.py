"""Searches as scikit-learn's estimators: fit, predict, score, in pipelines and under `GridSearchCV`."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
from typing_extensions import override

from polyarch.core import Method
from polyarch.data.frames import is_frame
from polyarch.data.loading import load
from polyarch.data.targets import is_text
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.runs.defaults import split_sizes
from polyarch.runs.options import Compute
from polyarch.runs.run import Run
from polyarch.runs.search import search
from polyarch.runs.trained import train_selected
from polyarch.spaces.base import Space
from polyarch.uncertainty.gaussians import Gaussians
from polyarch.uncertainty.predictive import Predictive

__all__ = ["ArchitectureSearchClassifier", "ArchitectureSearchRegressor"]

FEWEST = 6
"""Examples: what trains, stops and selects needs some each."""


class _ArchitectureSearch(BaseEstimator, ABC):
    """What both have in common: learns a distribution over architectures and predicts with all of them."""

    def __init__(
        self,
        space: str | Space = "depth",
        method: str | Method = "variational-depth",
        *,
        validation: float | None = None,
        time_limit: float | str | None = None,
        random_state: Any = None,
        out: str | Path | None = None,
    ) -> None:
        """Settings of a search.

        Args:
            space: what may be chosen: a name, under which sizes follow from the data, or a space.
            method: how it is learnt: a name, under which batches and epochs follow from the data, or a method.
            validation: the share of examples, or their number, that stop the search and select; by default by how many
                there are, from 0.25 of a few to 0.05.
            time_limit: seconds, or a text such as `90s`, `5m`: as many epochs are made as fit in.
            random_state: the seed; of a generator, one is drawn.
            out: a folder for the run, which must not exist; by default nothing is kept on disk.
        """
        self.space = space
        self.method = method
        self.validation = validation
        self.time_limit = time_limit
        self.random_state = random_state
        self.out = out

    @abstractmethod
    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], str]:
        """What is learnt, and which kind it is."""

    def fit(self, X: Any, y: Any) -> Self:
        """Searches.

        Args:
            X: examples [n, features], an array in which NaN is a gap, or a data frame with words and gaps.
            y: targets [n].
        """
        if y is None:
            raise ValueError("y is missing: this estimator requires y to be passed, but the target y is None")
        x, y = self._checked(X, reset=True), column_or_1d(y, warn=True)
        check_consistent_length(x, y)
        targets, kind = self._targets(y)
        if len(y) < FEWEST:
            raise ValueError(f"n_samples={len(y)}, and a search needs {FEWEST} samples or more")
        try:
            held_out = split_sizes(len(y), own_test=True)["select"] if self.validation is None else self.validation
            task = load((x, targets), kind=kind, select=held_out, test=0)
            if self.out is not None:
                self._search(task, Path(self.out))
            else:
                with tempfile.TemporaryDirectory() as folder:
                    self._search(task, Path(folder) / "run")
        except PolyarchError as error:
            raise ValueError(str(error)) from error
        return self

    def _search(self, task: Task, out: Path) -> None:
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        compute = Compute(time_limit=self.time_limit)
        run = search(self.space, task, self.method, out=out, seed=int(seed), compute=compute)
        assert isinstance(run, Run)
        self.architecture_ = str(run.architecture)
        if run.shares_weights:
            train_selected(run)
        self.n_iter_ = max(1, int(run.result["kept"]["epoch"]))
        self.predictor_ = run.predictor()
        self.predictor_.ensemble.double()  # so that what is said of an input is the same in any company

    def _said(self, X: Any) -> Predictive | Gaussians:
        check_is_fitted(self)
        x = self._checked(X, reset=False)
        try:
            said = self.predictor_(x)
        except PolyarchError as error:
            raise ValueError(str(error)) from error
        assert isinstance(said, Predictive | Gaussians)
        return said

    def _checked(self, X: Any, reset: bool) -> Any:
        """Samples as they are searched: a data frame with its names, or an array of numbers."""
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            check_array(np.empty(X.shape), ensure_all_finite=False)  # of its shape alone
            return X
        return validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", allow_nd=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags


@final
class ArchitectureSearchClassifier(ClassifierMixin, _ArchitectureSearch):
    """A classifier that learns how deep, or of what, its network should be, and predicts with all that are likely."""

    @override
    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], str]:
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class alone, {self.classes_[0]}; classification needs at least two classes")
        return (y if is_text(y) else indices), "classification"  # the run knows words by their name

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities [n, classes], in the order of `classes_`, after the temperature fitted on validation data."""
        said = self._said(X)
        assert isinstance(said, Predictive)
        found: NDArray[np.float64] = said.probs.numpy()
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of every sample."""
        best = self.predict_proba(X).argmax(1)
        found: NDArray[Any] = self.classes_[best]
        return found


@final
class ArchitectureSearchRegressor(RegressorMixin, _ArchitectureSearch):
    """The same for a number to predict, with its standard deviation."""

    @override
    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], str]:
        return check_array(y, ensure_2d=False, dtype=np.float64), "regression"

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of every sample; with `return_std` its standard deviation as well."""
        said = self._said(X)
        assert isinstance(said, Gaussians)
        mean = said.mean.numpy()
        return (mean, said.std.numpy()) if return_std else mean
