"""From arrays and data frames of one's own to what a source reads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from polyarch.data.checks import Array, check_pair
from polyarch.data.frames import Frame, frame_of_array, has_gaps
from polyarch.data.likelihood import ClassWeights
from polyarch.data.readers import MappedArrays, is_mapped
from polyarch.data.rows import Rows, scanned
from polyarch.data.splitting import RawData
from polyarch.data.targets import KindSetting, NoiseSetting
from polyarch.data.vocabulary import Reading, of_use

logger = logging.getLogger("polyarch")


class OfArrays(Protocol):
    """The settings that say what arrays are."""

    @property
    def kind(self) -> KindSetting:
        """What y is."""

    @property
    def noise(self) -> NoiseSetting:
        """Where the standard deviation of numbers to predict comes from."""

    @property
    def likelihood(self) -> str:
        """What outputs say of targets, by name."""

    @property
    def standardise(self) -> bool:
        """Whether inputs and numbers to predict are brought to mean 0 and deviation 1."""

    @property
    def class_weights(self) -> ClassWeights:
        """How much classes count in learning."""


def from_arrays(
    settings: OfArrays,
    x: Array | Frame | Rows | Mapping[str, Array],
    y: Array,
    where: str,
    x_test: Array | Frame | Rows | Mapping[str, Array] | None = None,
    y_test: Array | None = None,
) -> RawData:
    """What was read, under the settings of arrays; vectors with gaps are a table whose columns are named 0, 1, ...

    Inputs that lie in a file stay there.
    """
    if is_mapped(x):
        x, y = _where_it_lies(x, y, f"{where}: x", f"{where}: y")
        if y_test is not None:
            x_test, y_test = _where_it_lies(x_test, y_test, f"{where}: x_test", f"{where}: y_test")
    if isinstance(x, Rows):
        return _raw(settings, x, y, where, x_test, y_test)
    if isinstance(x, np.ndarray) and (has_gaps(x) or (isinstance(x_test, np.ndarray) and has_gaps(x_test))):
        logger.warning(
            "%s: x has gaps (NaN) in %d of %d examples; networks see the median there, and where there are gaps",
            *(where, np.isnan(x).any(1).sum(), len(x)),
        )
        x = frame_of_array(x, f"{where}: x")
        x_test = frame_of_array(x_test, f"{where}: x_test") if isinstance(x_test, np.ndarray) else x_test
    names = list(x.columns) if isinstance(x, Frame) else []
    holds: Any = of_use(x, names, None, (), where) if isinstance(x, Frame) else None
    return _raw(settings, x, y, where, x_test, y_test, Reading(holds) if holds is not None else None)


def _where_it_lies(x: Any, y: Array, what_x: str, what_y: str) -> tuple[Rows, Array]:
    """Inputs that stay in a file, and targets."""
    check_pair(x, y, (what_x, what_y))
    return scanned(MappedArrays(x, y, what_x), what_x)


def _raw(
    settings: OfArrays,
    x: Any,
    y: Array,
    where: str,
    x_test: Any,
    y_test: Array | None,
    reading: Reading | None = None,
) -> RawData:
    return RawData(
        x,
        y,
        where=where,
        x_test=x_test,
        y_test=y_test,
        kind=settings.kind,
        noise=settings.noise,
        likelihood=settings.likelihood,
        standardise=settings.standardise,
        class_weights=settings.class_weights,
        reading=reading,
    )
