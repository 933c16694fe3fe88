"""A Fourier series whose degree is to be found (SoTL thesis, section 4.1.2).

    y = 1 + sum_{j=1..k} (cos(j a) + sin(j a))                                          (Eq. 4.4)

k is the true degree and a an angle: 2 pi x in the thesis, x itself in its released code. An input is the angle, brought
into [-pi, pi] in double precision: that changes no term, while in single precision cos(9 x) would be off by up to 0.02
near x = 10,000 pi.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from polyarch.data.checks import Array
from polyarch.data.source import Source
from polyarch.data.splitting import RawData
from polyarch.errors import PolyarchError
from polyarch.settings import Count

POINTS = {"thesis": 10_000, "code": 50_000}
RANGE = 10.0
"""The thesis draws x from -10 to 10."""
TURNS = 10_000
"""The code's x make as many full turns: from -10,000 pi to 10,000 pi."""
NOISE_VARIANCE = 0.25
FEWEST_ANGLES = 100


@dataclass(frozen=True, kw_only=True)
class FourierSeries(Source):
    """Angles in [-pi, pi], float32 [1], and the sum of all sines and cosines up to a degree; needs no files."""

    text: ClassVar[str] = "fourier"
    definition: Literal["thesis", "code"] = "code"
    """`thesis`: 10,000 random x in +-10, angles 2 pi x, no noise. `code`: 50,000 evenly spaced x in +-10,000 pi, angles
    x, Gaussian noise of variance 0.25 on the training targets."""
    degree: Count = 3
    """k, the true degree."""
    points: Count = 0
    """Training and validation points; 0: as many as the definition has."""
    test_points: Count = 7667
    """Test points, without noise (the code: 7667); 0 for none."""
    data_seed: Count = 0
    """Which points and noise are drawn."""
    select: float = 0.1

    @override
    def read(self) -> RawData:
        """Draws training and test points, each from its own stream; networks see the angle itself."""
        points = self.points or POINTS[self.definition]
        angles = self._angles("points", points, stream=0)
        y = series(angles, self.degree)
        if self.definition == "code":
            y += np.random.default_rng((self.data_seed, 2)).normal(0.0, math.sqrt(NOISE_VARIANCE), points)
        x = _inputs(angles)
        if not self.test_points:
            return RawData(x, y, where="fourier", kind="regression", standardise=False)
        angles = self._angles("test_points", self.test_points, stream=1)
        y_test = series(angles, self.degree)
        return RawData(
            x, y, where="fourier", x_test=_inputs(angles), y_test=y_test, kind="regression", standardise=False
        )

    def _angles(self, name: str, count: int, stream: int) -> Array:
        """[count], in radians, not yet brought into [-pi, pi]."""
        if self.definition == "thesis":
            return 2 * math.pi * np.random.default_rng((self.data_seed, stream)).uniform(-RANGE, RANGE, count)
        # Neighbours are TURNS / steps full turns apart: where that fraction is short, points fall on the same angles.
        steps = count - 1
        different = steps // math.gcd(steps, TURNS)
        if different < min(steps, FEWEST_ANGLES):
            raise PolyarchError(
                f"{name} is {count}; evenly spaced on +-10,000 pi they have only {different} different angles; "
                "take one more or one fewer"
            )
        return np.linspace(-TURNS * math.pi, TURNS * math.pi, count)


def series(angles: Array, degree: int) -> Array:
    """The Fourier series of a degree with all coefficients 1: [n] -> [n]."""
    terms = np.arange(1, degree + 1)[:, None] * angles
    return 1 + (np.cos(terms) + np.sin(terms)).sum(0)


def _inputs(angles: Array) -> Array:
    """[n] -> [n, 1] in [-pi, pi]."""
    wrapped = np.remainder(angles + math.pi, 2 * math.pi) - math.pi
    return wrapped.astype(np.float32)[:, None]
