"""A small network of 64 architectures for images of 8 x 8, every one of which has been trained (`digits-network`).

It is what docs/spaces.md says of a module of one's own: `--space polyarch.testing.digits_network:DigitsNetwork`.
"""

from __future__ import annotations

from torch import Tensor, nn

from polyarch.spaces.choice import Choice

CHANNELS = 8


class DigitsNetwork(nn.Module):
    """Two chosen operations with a chosen activation after each; [batch, 1, 8, 8] -> [batch, 10].

    It has no batch norm, so that what shared weights are worth does not hang on whose statistics they run with.
    """

    def __init__(self) -> None:
        """The stem, both operations, and the head."""
        super().__init__()
        self.stem = nn.Conv2d(1, CHANNELS, 3, padding=1)
        self.first = _operation("first")
        self.halve = nn.AvgPool2d(2)
        self.second = _operation("second")
        self.activation = Choice(
            "activation", {"relu": nn.ReLU(), "tanh": nn.Tanh(), "elu": nn.ELU(), "none": nn.Identity()}
        )
        self.head = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * CHANNELS, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of ten classes."""
        x = self.activation(self.stem(x))
        x = self.halve(self.activation(self.first(x)))
        return self.head(self.activation(self.second(x)))


def _operation(name: str) -> Choice:
    """One of four operations that keep the shape."""
    return Choice(
        name,
        {
            "conv3x3": nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
            "conv1x1": nn.Conv2d(CHANNELS, CHANNELS, 1),
            "pool3x3": nn.AvgPool2d(3, stride=1, padding=1),
            "skip": nn.Identity(),
        },
    )
