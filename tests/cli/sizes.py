"""A nested space of one's own, whose options have names and which cannot be cut: a polynomial of some degree."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from polyarch.architecture import Decision
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.views import All, Sparse

NAMES = ("small", "middle", "large")


def powers(x, size):
    return torch.cat([x**k for k in range(size + 1)], -1)


class Polynomial(nn.Module):
    def __init__(self, size, outputs):
        super().__init__()
        self.size, self.linear = size, nn.Linear(size + 1, outputs, bias=False)

    def forward(self, x):
        return self.linear(powers(x, self.size))


@dataclass(frozen=True, kw_only=True)
class Sizes(Space):
    name: ClassVar[str] = "sizes"
    nested: ClassVar[bool] = True

    @property
    def decisions(self):
        return (Decision("size", NAMES),)

    def supernet(self, shape, repeats=1):
        return Polynomials(self, shape, repeats)

    def build(self, architecture, shape):
        return Polynomial(architecture.choices[0], shape.outputs)


class Polynomials(Supernet):
    views: ClassVar[frozenset[type]] = frozenset({Sparse, All})

    def __init__(self, space, shape, repeats, largest=2):
        super().__init__()
        self.space, self.shape, self.repeats, self.largest = space, shape, repeats, largest
        self.weight = nn.Parameter(torch.zeros(repeats, shape.outputs, largest + 1))

    def reset_parameters(self, generators):
        with torch.no_grad():
            self.weight.copy_(torch.stack([torch.randn(self.weight[0].shape, generator=g) for g in generators]))

    def forward(self, x, view):
        terms = powers(x, self.largest).unsqueeze(2) * self.weight.unsqueeze(1)  # [repeats, batch, outputs, options]
        every = terms.cumsum(-1).permute(0, 3, 1, 2)
        if isinstance(view, All):
            return every
        return every[:, view.choices[0]]

    def member_state(self, architecture, repeat):
        return {"linear.weight": self.weight[repeat, :, : architecture.choices[0] + 1]}

    def nested_members(self, architecture, belief):
        [size] = architecture.choices
        cut = Polynomials(self.space, self.shape, 1, size)
        cut.load_state_dict({"weight": self.weight[..., : size + 1].detach()})
        probs = belief.probs()["size"]
        return cut.eval(), torch.cat([probs[:size], probs[size:].sum(-1, keepdim=True)])
