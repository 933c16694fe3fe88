"""What a training step on one sampled architecture holds in memory, beside the network of that architecture alone.

    python -m bench.memory [--batch 64] [--architectures 5]

Prints one JSON line per space, in bytes, mean over architectures: activations (tensors that the backward pass needs) of
the supernet run sparse and dense and of the network alone, and, apart, parameters, gradients and optimiser state
(momentum) of both. The goal: sparse activations at most 1.1 times the network's own, and, in the DARTS space,
independent of how many operations there are to choose from. Counted on tensors that have shapes but no memory.

The last line is of whole steps of PARSEC with K = 16, of small networks and batches: the most activations it held at
once, over the most that training any of its sixteen samples alone would hold. The goal is 1.1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import polyarch as pa
from polyarch.architecture import Architecture
from polyarch.data.task import TaskShape
from polyarch.distributions import uniform
from polyarch.spaces import Darts, Dense, NasBench1Shot1, NasBench201, Space, Sparse
from polyarch.spaces.darts import S2_OPERATIONS
from polyarch.training.dry_run import prepare

Form = Literal["sparse", "dense"]
FORMS: tuple[Form, ...] = ("sparse", "dense")
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
                    "sparse": activations(lambda a=architecture: supernet(x[None], Sparse(a.choices)), supernet, x),
                    "dense": activations(lambda d=dense: supernet(x[None], Dense(d)), supernet, x),
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


class Held:
    """A tensor that a backward pass will need; knows how many bytes all of them hold, and the most so far."""

    now = most = 0
    counts: ClassVar[dict[int, int]] = {}

    def __init__(self, value: Tensor, own: Collection[int]) -> None:
        self.value, self.key = value, value.untyped_storage().data_ptr()
        self.counted = self.key not in own
        if self.counted:
            Held.counts[self.key] = Held.counts.get(self.key, 0) + 1
            Held.now += value.untyped_storage().nbytes() * (Held.counts[self.key] == 1)
            Held.most = max(Held.most, Held.now)

    def __del__(self) -> None:
        if self.counted:
            Held.counts[self.key] -= 1
            Held.now -= self.value.untyped_storage().nbytes() * (Held.counts[self.key] == 0)


def peak(run: Callable[[], object], own: Collection[Tensor]) -> int:
    """The most bytes held for backward passes at any time while `run` runs, beside tensors of its own."""
    keys = {value.untyped_storage().data_ptr() for value in own}
    Held.now = Held.most = 0
    Held.counts.clear()
    with torch.autograd.graph.saved_tensors_hooks(lambda value: Held(value, keys), lambda held: held.value):
        run()
    return Held.most


def parsec(form: Form, samples: int = 16) -> float:
    """Of one step, over training its largest sample alone."""
    task = pa.data.load("digits")
    space, method = NasBench201(channels=4, cells=1), pa.methods.Parsec(samples=samples, form=form, batch_size=16)
    problem, state, feed = prepare(method, space, task, task.seen(task.train), repeats=1)
    batch = method.batch(problem, feed, "train")
    belief = method.distribution(space, state.belief)
    choices = (belief.log_probs.detach().unsqueeze(1) + feed.draws["gumbel"]).argmax(-1)[0]

    def train_alone(network: nn.Module) -> None:
        fit = problem.likelihood.log_likelihood(network(batch.x[0]), batch.y[0]).mean()
        torch.autograd.grad(fit, list(network.parameters()))

    alone = []
    for architecture in space.decode(choices):
        network = space.build(architecture, task.shape).train()
        own = (*network.parameters(), *network.buffers(), batch.x, batch.y)
        alone.append(peak(lambda n=network: train_alone(n), own))
    held = (*state.tensors().values(), *feed.draws.values(), *(b.x for f in feed.batches.values() for b in f))
    return peak(lambda: method.step(problem, state, feed), held) / max(alone)


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
    ratios = {f"{form}_over_network": round(parsec(form), 3) for form in FORMS}
    print(json.dumps({"step": "parsec, K = 16", **ratios}))


if __name__ == "__main__":
    main()
