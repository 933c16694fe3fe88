"""What a training step on one sampled architecture holds in memory, beside the network of that architecture alone.

    python -m bench.memory [--batch 64] [--architectures 5]

Prints one JSON line a space, in bytes, mean over architectures: activations (tensors that the backward pass needs) of
the supernet run sparse and dense and of the network alone, and, apart, parameters, gradients and optimiser state
(momentum) of both. The goal: sparse activations at most 1.1 times the network's own, and, in the DARTS space,
independent of how many operations there are to choose from. Counted on tensors that have shapes but no memory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from polyarch.architecture import Architecture
from polyarch.data.task import TaskShape
from polyarch.distributions import uniform
from polyarch.spaces import Darts, Hard, NasBench1Shot1, NasBench201, Space
from polyarch.spaces.darts import S2_OPERATIONS

SHAPE = TaskShape((3, 32, 32), 10)
SPACES: dict[str, Space] = {
    "nasbench201": NasBench201(),
    "darts, 8 operations": Darts(),
    "darts, 2 operations": Darts(operations=S2_OPERATIONS),
    "nasbench1shot1-3": NasBench1Shot1(sub_space=3),
}


def activations(run: Callable[[], Tensor], owner: nn.Module, x: Tensor) -> int:
    """Bytes that the backward pass of `run` needs beside the owner's weights and statistics and the input."""
    saved: dict[int, int] = {}

    def note(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        saved[id(storage)] = storage.nbytes()
        keep.append(storage)
        return value

    keep: list[torch.UntypedStorage] = []
    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        run().sum()
    own = {id(value.untyped_storage()) for value in (*owner.parameters(), *owner.buffers(), x)}
    return sum(size for key, size in saved.items() if key not in own)


def weights(owner: nn.Module) -> int:
    """Bytes of the parameters; gradients and momentum take as much each."""
    return sum(p.nbytes for p in owner.parameters())


def measured(space: Space, architectures: list[Architecture], batch: int) -> dict[str, float]:
    """Means over architectures."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        supernet = space.supernet(SHAPE).train()
        x = torch.zeros(batch, *SHAPE.input)
        rows = []
        for architecture in architectures:
            network = space.build(architecture, SHAPE).train()
            dense = torch.zeros(1, len(architecture.choices), dtype=torch.int64)
            rows.append(
                {
                    "network": activations(lambda n=network: n(x), network, x),
                    "sparse": activations(lambda a=architecture: supernet(x[None], Hard(a.choices)), supernet, x),
                    "dense": activations(lambda d=dense: supernet(x[None], Hard(d)), supernet, x),
                    "network_parameters": weights(network),
                }
            )
    means = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    held = {"supernet": weights(supernet), "network": means.pop("network_parameters")}
    return {
        **{f"activations_{name}": round(value) for name, value in means.items()},
        "sparse_over_network": round(means["sparse"] / means["network"], 4),
        "dense_over_network": round(means["dense"] / means["network"], 2),
        **{f"{kind}_{owner}": round(held[owner]) for owner in held for kind in ("parameters", "gradients", "momentum")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--architectures", type=int, default=5)
    arguments = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    for name, space in SPACES.items():
        if isinstance(space, Darts):  # the same architectures in both, of the operations that both have
            small = Darts(operations=S2_OPERATIONS)
            texts = small.decode(uniform(small.decisions).sample(arguments.architectures, generator.manual_seed(0)))
            architectures = [space.parse(str(text)) for text in texts]
        else:
            architectures = space.decode(uniform(space.decisions).sample(arguments.architectures, generator))
        print(json.dumps({"space": name, **measured(space, architectures, arguments.batch)}), flush=True)


if __name__ == "__main__":
    main()
