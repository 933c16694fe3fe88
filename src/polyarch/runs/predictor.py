"""What answers for a run: the mixture with all that it needs, in memory and apart from the run's folder."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from polyarch.data.checks import checked_inputs
from polyarch.data.frames import frame_of, is_frame
from polyarch.data.kinds import Inputs, in_order, say_left_over, say_order
from polyarch.data.vocabulary import named
from polyarch.errors import PolyarchError
from polyarch.uncertainty.ensemble import Ensemble, Said, asked
from polyarch.uncertainty.predictive import Predictive

logger = logging.getLogger("polyarch")


@final
@dataclass(frozen=True, eq=False)
class Predictor:
    """A mixture, and what inputs it takes."""

    ensemble: Ensemble
    inputs: Inputs
    """What others are held to."""
    classes: tuple[str, ...]
    """Names of the classes; none where it predicts others."""
    temperature: float
    """What log-probabilities are divided by."""
    highest_byte: float
    """What white is, where inputs are images of bytes."""
    device: torch.device

    def __call__(self, x: Any) -> Said:
        """What it says of inputs: probabilities of classes, mean and deviation of numbers, or what its likelihood has.

        Args:
            x: an array or a data frame, or a tensor of raw inputs as a task has them (`task.test.x`); where networks
                take several inputs, a tuple or a mapping of arrays.
        """
        raw = self.raw(x)
        said = asked(self.ensemble, raw, self.device)
        return said.tempered(self.temperature) if isinstance(said, Predictive) else said

    def raw(self, x: Any) -> Tensor:
        """Inputs as the run's own were read; what cannot be meant is refused, what may be a mistake is said."""
        is_raw = isinstance(x, Tensor)
        if self.inputs.parts and not (is_raw and tuple(x.shape[1:]) == self.inputs.shape):
            return self.inputs.rows(x, "x", self.highest_byte)
        raw = x if is_raw else torch.from_numpy(np.ascontiguousarray(self._array(x)))
        if tuple(raw.shape[1:]) != self.inputs.shape:
            wanted = ", ".join(map(str, self.inputs.shape))
            raise PolyarchError(f"x has the shape {list(raw.shape)}; give inputs [n, {wanted}]")
        if is_raw:
            self._check_gaps(raw)
        self.inputs.check("x", raw, self.highest_byte)
        return raw

    def _check_gaps(self, x: Tensor) -> None:
        """Of tensors, which come as networks take them: what arrays are refused for, or what is said of them."""
        columns = self.inputs.columns
        if not x.isfinite().all() and not (columns and not x.isinf().any()):
            raise PolyarchError("x has values that are not finite; give finite ones, or leave those examples out")
        if columns:
            gaps = x.isnan().any(0).tolist()
            names = [own.name for own, gap in zip(columns.columns, gaps, strict=True) if gap and not own.gaps]
            if names:
                logger.warning("x: %s with gaps, where no training example had one", named(names))

    def _array(self, x: Any) -> Any:
        if is_frame(x) and self.inputs.columns:
            frame = frame_of(x, "x")
            found = self.inputs.fitted(frame, "x")
            say_left_over("x", list(frame.columns), self.inputs.columns.names)
            return found
        columns = {str(name): np.asarray(x[name]) for name in x.columns} if is_frame(x) else {}
        if columns:
            x = np.stack([columns[name] for name in in_order(list(columns))], 1)
        array = self.inputs.fitted(np.asarray(x), "x")
        array = array if self.inputs.columns else checked_inputs(array, "x")
        if columns and array.shape[1:] == self.inputs.shape:
            say_order("x", list(columns))
        return array
