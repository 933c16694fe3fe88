"""What answers for a run: the mixture with all that it needs, in memory and apart from the run's folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from polyarch.data.checks import checked_inputs
from polyarch.data.frames import frame_of, is_frame
from polyarch.data.kinds import Inputs, say_left_over
from polyarch.errors import PolyarchError
from polyarch.uncertainty.ensemble import Ensemble, Said, asked
from polyarch.uncertainty.predictive import Predictive


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
            x: an array or a data frame, or a tensor of raw inputs as a task has them (`task.test.x`).
        """
        raw = self.raw(x)
        said = asked(self.ensemble, raw, self.device)
        return said.tempered(self.temperature) if isinstance(said, Predictive) else said

    def raw(self, x: Any) -> Tensor:
        """Inputs as the run's own were read; what cannot be meant is refused, what may be a mistake is said."""
        if not isinstance(x, Tensor):
            x = torch.from_numpy(np.ascontiguousarray(self._array(x)))
        if tuple(x.shape[1:]) != self.inputs.shape:
            wanted = ", ".join(map(str, self.inputs.shape))
            raise PolyarchError(f"x has the shape {list(x.shape)}; give inputs [n, {wanted}]")
        self.inputs.check("x", x, self.highest_byte)
        return x

    def _array(self, x: Any) -> Any:
        if is_frame(x) and self.inputs.columns:
            frame = frame_of(x, "x")
            found = self.inputs.fitted(frame, "x")
            say_left_over("x", list(frame.columns), self.inputs.columns.names)
            return found
        array = np.asarray(x.to_numpy() if is_frame(x) else x)
        array = self.inputs.fitted(array, "x")
        return array if self.inputs.columns else checked_inputs(array, "x")
