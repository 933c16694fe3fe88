"""What scores by saliency share: the weights that count, and one number per candidate from its untrained network.

A saliency is a number per weight that says how much the weight matters; a score is the sum over all weights of
convolutions and linear layers, biases and batch norm left out (Abdelfattah et al., 2021: zero-cost proxies).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from polyarch.errors import PolyarchError
from polyarch.scores.base import Candidate, chance

LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


def counted_weights(network: nn.Module) -> list[Tensor]:
    """The weights, without biases, of every convolution and linear layer; one that several layers share counts once."""
    layers = {path: layer for path, layer in network.named_modules() if isinstance(layer, LAYERS)}
    if not layers:
        raise PolyarchError(
            "a network has no convolution and no linear layer of torch.nn, over whose weights this score sums; "
            "use another score, such as parameters"
        )
    for path, layer in layers.items():
        if "weight" not in dict(layer.named_parameters(recurse=False)):
            raise PolyarchError(
                f"the layer {path or type(layer).__name__} makes its weight of other parameters (weight norm or the "
                "like), so it has no saliency; use another score, such as parameters"
            )
    return list(dict.fromkeys(layer.weight for layer in layers.values()))


def total(saliencies: Iterable[Tensor]) -> Tensor:
    """The sum of all entries of all tensors, float64."""
    return torch.stack([saliency.double().sum() for saliency in saliencies]).sum()


def evaluated(
    candidates: Sequence[Candidate],
    generator: torch.Generator,
    evaluate: Callable[[Candidate, nn.Module], Tensor],
) -> Tensor:
    """What `evaluate` says of every candidate and its network at fresh initialisation, [n], float64.

    All start from one seed: they are compared on equal terms, and neither their order nor the others change a number.
    """
    seed = int(torch.randint(2**62, (), generator=generator))

    def one(candidate: Candidate) -> Tensor:
        own = torch.Generator().manual_seed(seed)
        network = candidate.fresh(own)
        with chance(own):  # dropout draws in training mode
            return evaluate(candidate, network)

    return torch.tensor([one(candidate).item() for candidate in candidates], dtype=torch.float64)
