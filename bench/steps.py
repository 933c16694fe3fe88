"""What a step costs on a CUDA device: fused, plain, plain without a CUDA graph, and beside them the convolutions alone.

    python -m bench.steps [--cases darts,parsec-16] [--precision bfloat16] [--repeats 3] [--forms fast,plain]

Every case is a method on NAS-Bench-201 at its full size (C=16, N=5, batch 64, images of 32 pixels a side; random ones,
for what is in them does not change the time). Prints one JSON line a case: milliseconds of a step (for SoTL of a weight
update) and the most memory that it held, in every form, all in one process; and how far two forms are apart after the
same steps. The floor is one pass forward and backward of the convolutions alone, one per node, in a CUDA graph.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

import polyarch as pa
from polyarch.core import Info, Method, Problem
from polyarch.data.task import Classification, Split, TaskShape
from polyarch.distributions import uniform
from polyarch.streams import Streams
from polyarch.training.loop import Loop, Progress

EXAMPLES, BATCH = 2048, 64
ROLL_OUT = 10
AUGMENTED: Any = {"crop": 4, "flip": True}
METHODS: dict[str, Method] = {
    "darts": pa.methods.Darts(augment=AUGMENTED),
    "darts-second": pa.methods.Darts(augment=AUGMENTED, objective={"order": "second"}),
    "drnas": pa.methods.Drnas(augment=AUGMENTED),
    "gdas": pa.methods.Gdas(augment=AUGMENTED),
    "balenas": pa.methods.Balenas(augment=AUGMENTED),
    "sotl-darts": pa.methods.Darts(
        augment=AUGMENTED, objective={"loss": "sotl", "steps": ROLL_OUT}, weights={"grad_clip": 0.0}
    ),
    "parsec-16": pa.methods.Parsec(augment=AUGMENTED, samples=16, form="dense"),
    "single-path": pa.methods.OneShot(augment=AUGMENTED, batch_size=BATCH, form="dense"),
}
FORMS = {"fast": (True, True), "plain": (False, True), "eager": (False, False)}
"""Whether it is fused, and whether it is captured."""


def problem_of(space: pa.spaces.Space, repeats: int, precision: str, fast: bool, device: str = "cuda") -> Problem:
    """Random images on the device."""
    chance = torch.Generator().manual_seed(0)

    def split() -> Split:
        images = torch.randn(EXAMPLES, 3, 32, 32, generator=chance)
        return Split(images.to(device), torch.randint(10, (EXAMPLES,), generator=chance).to(device))

    with torch.device(device):
        supernet = space.supernet(TaskShape((3, 32, 32), 10), repeats)
    prior, search = uniform(space.decisions), split()
    return Problem(
        space=space,
        supernet=supernet,
        likelihood=Classification(10),
        prior=replace(prior, logits=prior.logits.to(device)),
        data={"train": split(), "search": search, "select": search},
        black=torch.zeros(3, 1, 1).to(device),
        precision=precision,
        fast=fast,
    )


def steps_of(loop: Loop) -> Iterator[Info]:
    """Steps without end."""
    while True:
        yield from loop.steps()


def measured(method: Method, space: pa.spaces.Space, form: str, given: argparse.Namespace) -> dict[str, Any]:
    """Time and memory of a step, and where belief is after all of them."""
    fast, captured = FORMS[form]
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    problem = problem_of(space, given.repeats, given.precision, fast)
    streams = [Streams(seed) for seed in range(given.repeats)]
    begun = time.perf_counter()
    loop = Loop(method, problem, method.init(problem, streams, None), streams, Progress(), method.epochs)
    loop._captures &= captured
    taken, steps = [], steps_of(loop)
    next(steps)
    torch.cuda.synchronize()
    first = time.perf_counter() - begun
    for _ in range(given.rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(given.each):
            next(steps)
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - start) / given.each)
    if given.profile and form == "fast":
        profile(steps)
    length = ROLL_OUT if isinstance(method, pa.methods.Darts) and method.objective.loss == "sotl" else 1
    belief = {name: value.detach().double().cpu() for name, value in loop.state.belief.items()}
    return {
        "ms": round(1000 * statistics.median(taken) / length, 2),
        "first_s": round(first, 1),
        "gib": round(torch.cuda.max_memory_reserved() / 2**30, 3),
        "belief": belief,
    }


def profile(steps: Iterator[Info]) -> None:
    """Prints where the time of a step goes, by kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        next(steps)
        torch.cuda.synchronize()
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=45, max_name_column_width=70))


def floor(precision: str) -> float:
    """Milliseconds of the convolutions of all cells, forward and backward, one per node, channels last, captured."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    last = torch.channels_last
    pairs = []
    for stage in range(3):
        channels, side = 16 * 2**stage, 32 // 2**stage
        for source in range(3):
            x = torch.randn(BATCH, channels, side, side, device="cuda", dtype=dtype).to(memory_format=last)
            outputs = 2 * (3 - source) * channels
            weight = torch.randn(outputs, channels, 3, 3, device="cuda", dtype=dtype).to(memory_format=last)
            pairs += [(x, weight)] * 5

    def run() -> None:
        for x, weight in pairs:
            out = torch.conv2d(x, weight, padding=1)
            torch.ops.aten.convolution_backward(
                out, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
            )

    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    return round(1000 * (time.perf_counter() - start) / 20, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(METHODS))
    parser.add_argument("--forms", default="fast,plain")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--each", type=int, default=5, help="steps of a round")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--exact", action="store_true", help="convolutions in single precision, not in TF32")
    given = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = not given.exact
    space = pa.spaces.NasBench201()
    print(json.dumps({"floor_ms_a_pass": floor(given.precision), "precision": given.precision}), flush=True)
    for name in given.cases.split(","):
        row: dict[str, Any] = {"case": name, "precision": given.precision, "repeats": given.repeats}
        found = {form: measured(METHODS[name], space, form, given) for form in given.forms.split(",")}
        beliefs = [own.pop("belief") for own in found.values()]
        if len(beliefs) > 1:
            # Logits of DARTS, and so probabilities; of others their own parameters.
            one, other = (next(iter(own.values())).softmax(-1) for own in beliefs[:2])
            row["probabilities_apart"] = (one - other).abs().max().item()
        print(json.dumps(row | found), flush=True)


if __name__ == "__main__":
    main()
