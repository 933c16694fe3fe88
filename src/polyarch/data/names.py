"""Data known by name that needs no files: digits and spirals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from typing_extensions import override

from polyarch.data.checks import Array
from polyarch.data.source import Source, Unsplit
from polyarch.data.splitting import RawData
from polyarch.errors import PolyarchError
from polyarch.settings import AtLeast, Count, NonNegative, PositiveFloat

ARMS = 2


@dataclass(frozen=True, kw_only=True)
class Digits(Unsplit):
    """1797 grey 8x8 images of handwritten digits, from scikit-learn: uint8 [1, 8, 8], values 0 to 16."""

    text: ClassVar[str] = "digits"
    highest_byte: ClassVar[float] = 16.0
    flat: bool = False
    """Give vectors [64] in place of images [1, 8, 8]."""

    @override
    def read(self) -> RawData:
        """All 1797 images, in scikit-learn's order."""
        from sklearn.datasets import load_digits

        data = load_digits()
        x = (data.data if self.flat else data.images).astype(np.uint8)
        return RawData(x, data.target, where="digits", classes=tuple("0123456789"))


@dataclass(frozen=True, kw_only=True)
class Spirals(Source):
    """Two interleaved spiral arms in the plane, float32 [2]; the radius is the angle in radians."""

    text: ClassVar[str] = "spirals"
    points: Annotated[int, AtLeast(2 * ARMS)] = 200
    """Training (and validation) points, half of them on each arm."""
    test_points: Count = 1800
    """Test points, drawn independently of the training points; 0 for none."""
    noise: NonNegative = 0.15
    """Gaussian noise: its standard deviation. Uniform noise: its upper end."""
    noise_kind: Literal["gaussian", "uniform"] = "gaussian"
    """N(0, noise^2), or uniform on [0, noise) as in the released code of Antorán et al. 2020."""
    rotation: PositiveFloat = 720.0
    """How far an arm turns, in degrees."""
    data_seed: Count = 0
    """Which points are drawn."""
    select: float = 0.0

    @override
    def read(self) -> RawData:
        """Draws training and test points, each from its own random stream."""
        for name, count in (("points", self.points), ("test_points", self.test_points)):
            if count % ARMS:
                raise PolyarchError(f"{name} is {count}; it must be even, half for each arm")
        x, y = self._draw(self.points, stream=0)
        if not self.test_points:
            return RawData(x, y, where="spirals", classes=("0", "1"))
        x_test, y_test = self._draw(self.test_points, stream=1)
        return RawData(x, y, where="spirals", x_test=x_test, y_test=y_test, classes=("0", "1"))

    def _draw(self, count: int, stream: int) -> tuple[Array, Array]:
        """`count` shuffled points [count, 2] and their arms [count]."""
        generator = np.random.default_rng((self.data_seed, stream))
        y = np.repeat(np.arange(ARMS), count // ARMS)
        # The root spreads points about evenly along the arm, whose length grows with the square of the angle.
        theta = np.sqrt(generator.random(count)) * math.radians(self.rotation)
        x = theta[:, None] * np.stack([np.cos(theta), np.sin(theta)], 1)
        if self.noise_kind == "gaussian":
            x += generator.normal(0.0, self.noise, x.shape)
        else:
            x += generator.uniform(0.0, self.noise, x.shape)
        x[y == 1] *= -1  # the second arm is turned by 180 degrees, noise and all
        order = generator.permutation(count)
        return x[order].astype(np.float32), y[order]
