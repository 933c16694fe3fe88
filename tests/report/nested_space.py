"""A nested space of a user's own: how wide a layer should be. Its options are not named by their numbers."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from polyarch.architecture import Decision
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.depth import prune
from polyarch.spaces.views import All, Sparse

WIDTHS = (2, 4, 8, 16)


@dataclass(frozen=True, kw_only=True)
class Widths(Space):
    """One hidden layer; the network of width w has the first w features of all."""

    name: ClassVar[str] = "widths"
    nested: ClassVar[bool] = True

    most: int = len(WIDTHS)

    @property
    def decisions(self):
        return (Decision("width", tuple(map(str, WIDTHS[: self.most]))),)

    def supernet(self, shape, repeats=1):
        return WidthsSupernet(self, shape, repeats)

    def build(self, architecture, shape):
        width = WIDTHS[architecture.choices[0]]
        return nn.Sequential(nn.Linear(shape.input[0], width), nn.ReLU(), nn.Linear(width, shape.outputs, bias=False))


class WidthsSupernet(Supernet):
    """Features of the widest layer."""

    views: ClassVar[frozenset[type]] = frozenset({Sparse, All})

    def __init__(self, space, shape, repeats):
        super().__init__()
        self.space, self.shape, self.repeats = space, shape, repeats
        widest = WIDTHS[space.most - 1]
        self.inner = nn.Parameter(torch.zeros(repeats, widest, shape.input[0]))
        self.bias = nn.Parameter(torch.zeros(repeats, 1, widest))
        self.outer = nn.Parameter(torch.zeros(repeats, shape.outputs, widest))

    def reset_parameters(self, generators):
        with torch.no_grad():
            for k, generator in enumerate(generators):
                for weight in self.parameters():
                    weight[k].normal_(generator=generator)

    def forward(self, x, view):
        if isinstance(view, All):
            return torch.stack([self._of_width(x, width) for width in WIDTHS[: self.space.most]], 1)
        return self._of_width(x, WIDTHS[view.choices[0]])

    def _of_width(self, x, width):
        features = (x @ self.inner[:, :width].mT + self.bias[..., :width]).relu()
        return features @ self.outer[..., :width].mT

    def member_state(self, architecture, repeat):
        width = WIDTHS[architecture.choices[0]]
        state = {"0.weight": self.inner[repeat, :width], "0.bias": self.bias[repeat, 0, :width]}
        return state | {"2.weight": self.outer[repeat, :, :width]}

    def nested_members(self, architecture, belief):
        [option] = architecture.choices
        small = Widths(most=option + 1).supernet(self.shape)
        width = WIDTHS[option]
        state = {"inner": self.inner[:, :width], "bias": self.bias[..., :width], "outer": self.outer[..., :width]}
        small.load_state_dict(state)
        return small.eval(), prune(belief.probs()["width"], option)
