"""Whether the fast form of a search network agrees with the plain one: in a step, over 200 steps, and in what is found.

    python -m bench.agreement states --images FOLDER [--spaces nasbench201,darts] [--full] [--out FOLDER]
    python -m bench.agreement steps  --images FOLDER [--steps 200] [--tf32] [--out FOLDER]
    python -m bench.agreement search --images FOLDER [--table nasbench201.npz] [--epochs 5] [--cells 1] [--out FOLDER]

All are DARTS on CIFAR-10, halves of the data; networks are captured as in a search.

    states   50 states along a plain search. At each, both passes of a step by both forms, in single precision without
             TF32, and by the plain one in double precision: the losses, the gradients of belief and weights, what the
             batches add to statistics. An error is that of a tensor, over its norm; worst and median are over states,
             of the worst tensor. `times` is the fast form's median distance from double precision over the plain
             form's: a few, where it only rounds differently. It agrees where that is no more than 4, or the distance no
             more than 1e-5. (Worst ones are jumps, where rounding takes one value to the other side of a ReLU; every
             form has some.) NAS-Bench-201 has its full size; the others have it by --full.
    steps    Plain and fast from one seed, by deterministic algorithms: how far probabilities are apart after so many
             steps. Beside it a control, plain after the last bit of every weight was moved at random: what rounding
             alone becomes. `moved` is how far probabilities have come at all.
    search   Short searches by each, three seeds: the means and the deviations over seeds of what they are worth, what
             they selected, and whether the means are no further apart than the larger deviation. One cell a stage, so
             that the plain form takes a minute.

Prints one JSON line a row and at the end a table; with --out these lines are also in a file there, after the command.
Without a CUDA device (`--device cpu --small --data digits`) both forms are the plain one: to try this out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import polyarch as pa
from bench.measuring import Kept, loop_of, over, problem_on, steps_of, table, why_plain
from bench.steps import DARTS, space_of
from polyarch.core import Batch, Evaluating, Problem, State, gradients
from polyarch.runs.options import Compute
from polyarch.runs.table_truth import TableTruth
from polyarch.training.augment import Augment
from polyarch.training.capture import record

BATCH = 64
NOTHING_BUT_ROUNDING = 1e-6
"""A gradient whose norm is a smaller share of that of all is 0, such as a bias's before batch norm: its error is
measured by the norm of all."""
ALLOWED_TIMES, ALLOWED_ERROR = 4.0, 1e-5
"""How much further than the plain form the fast one may be from double precision, in the median state; and how far it
may be in any case, which is some 80 times the rounding of one number."""
ALLOWED_APART = 1e-3
"""How far probabilities may be apart after 200 steps."""
SHOWN_STEPS = (1, 2, 5, 10, 20, 50, 100, 200)

Tensors = dict[str, Tensor]
Group = dict[str, Tensors]


@contextmanager
def precise(tf32: bool = False, deterministic: bool = False) -> Iterator[None]:
    """Single precision as it is written, unless TF32 is asked for; the same sums in the same order, where that is."""
    places: tuple[tuple[Any, str, bool], ...] = (
        (torch.backends.cudnn, "allow_tf32", tf32),
        (torch.backends.cuda.matmul, "allow_tf32", tf32),
        (torch.utils.deterministic, "fill_uninitialized_memory", False),  # hundreds of kernels that change nothing
    )
    before = [getattr(where, name) for where, name, _ in places]
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    for where, name, value in places:
        setattr(where, name, value)
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    try:
        yield
    finally:
        for (where, name, _), value in zip(places, before, strict=True):
            setattr(where, name, value)
        torch.use_deterministic_algorithms(was_deterministic)


# ---------------------------------------------------------------------------------------------------------------------
# One step, at many states.


class Passes:
    """The two passes of a step, belief's and that of the weights, by one form of a network; nothing is moved."""

    def __init__(self, problem: Problem, belief: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        """Recorded when they first run; `belief` is as a state has it."""
        self.problem, self.dtype = problem, dtype
        problem.supernet.to(dtype).allow_fast(problem.fast)
        own = {name: value.detach().to(dtype).clone().requires_grad_() for name, value in belief.items()}
        self.state = State.of(problem.supernet, own)
        self._batches: dict[str, Batch] = {}
        self._replayed: tuple[torch.cuda.CUDAGraph, Group] | None = None

    def __call__(self, tensors: Mapping[str, Tensor], rows: Mapping[str, Tensor]) -> Group:
        """What they say at a state, on these rows of `search` and `train`; lasts until the next call."""
        if not self._batches:
            self._batches = {name: self._taken(name, own) for name, own in rows.items()}
            if self.problem.device.type == "cuda":
                self._replayed = record(self._run, None)
        for name, own in rows.items():
            new = self._taken(name, own)
            self._batches[name].x.copy_(new.x)
            self._batches[name].y.copy_(new.y)
        places = {name: place for name, place in self.state.tensors().items() if not name.startswith("optimiser/")}
        with torch.no_grad():
            torch._foreach_copy_(list(places.values()), [tensors[name].to(self.dtype) for name in places])
        if self._replayed is None:
            return self._run()
        self._replayed[0].replay()
        return self._replayed[1]

    def _taken(self, name: str, rows: Tensor) -> Batch:
        data = self.problem.data[name]
        return Batch(data.x[rows].to(self.dtype).unsqueeze(0), data.y[rows].unsqueeze(0))

    def _run(self) -> Group:
        state, supernet = self.state, self.problem.supernet.train()
        # What is there would hide an error in the little that is added.
        with torch.no_grad():
            torch._foreach_zero_(list(state.buffers.values()))

        def loss(name: str, belief: Mapping[str, Tensor]) -> Tensor:
            view = DARTS.mixture(self.problem.space, belief, {}, {})
            return -self.problem.log_likelihood(supernet(self._batches[name].x, view), self._batches[name])

        search = loss("search", state.belief)
        by_belief = gradients(search, list(state.belief.values()))
        train = loss("train", {name: value.detach() for name, value in state.belief.items()})
        by_weights = gradients(train, list(state.weights.values()))
        return {
            "loss": {"search": search.detach(), "train": train.detach()},
            "belief": dict(zip(state.belief, by_belief, strict=True)),
            "weights": dict(zip(state.weights, by_weights, strict=True)),
            "statistics": state.buffers,
        }


def apart(one: Tensors, other: Tensors, truth: Tensors) -> Tensor:
    """Of every tensor, how far it is from another, over the norm of the true one."""
    first, second, true = ([value.double() for value in own.values()] for own in (one, other, truth))
    distance, size = (torch.stack(torch._foreach_norm(own)) for own in (torch._foreach_sub(first, second), true))
    return distance / torch.where(size < NOTHING_BUT_ROUNDING * size.norm(), size.norm(), size)


def searched_states(problem: Problem, count: int, every: int) -> Iterator[tuple[Tensors, dict[str, Tensor]]]:
    """States of a search as it goes on, each with rows of data to look at it with."""
    loop, chance = loop_of(DARTS, problem), torch.Generator().manual_seed(0)
    steps = steps_of(loop)
    for _ in range(count):
        rows = {
            name: torch.randperm(len(problem.data[name]), generator=chance)[:BATCH].to(problem.device)
            for name in ("search", "train")
        }
        yield loop.state.tensors(), rows
        for _ in range(every):
            next(steps)


def agreement_of_states(name: str, given: argparse.Namespace, task: pa.data.Task) -> list[dict[str, Any]]:
    """A row for the losses, for the gradients of belief and of weights, and for statistics."""
    space = _space(name, given)
    searching = problem_on(task, space, fast=False, device=given.device)
    forms: dict[str, Passes] = {}
    why, errors = "", dict[str, list[dict[str, Tensor]]]()
    for tensors, rows in searched_states(searching, given.states, given.every):
        if not forms:
            belief = {key.removeprefix("belief/"): value for key, value in tensors.items() if key.startswith("belief/")}
            for form, dtype in (("plain", torch.float32), ("fast", torch.float32), ("double", torch.float64)):
                problem = problem_on(task, space, fast=form == "fast", device=given.device)
                why = why_plain(problem)
                forms[form] = Passes(problem, belief, dtype)
        said = {form: passes(tensors, rows) for form, passes in forms.items()}
        for group in said["double"]:
            plain, fast, true = (said[form][group] for form in ("plain", "fast", "double"))
            found = {"fast_plain": (fast, plain), "fast_double": (fast, true), "plain_double": (plain, true)}
            errors.setdefault(group, []).append({key: apart(*pair, true) for key, pair in found.items()})
    made = []
    for group, states in errors.items():
        row: dict[str, Any] = {"space": name, "of": group, "states": len(states), "tensors": len(said["double"][group])}
        row["why_plain"] = why
        for key in states[0]:
            every = torch.stack([state[key] for state in states])
            worst = every.amax(1)
            row[key] = {"worst": worst.max().item(), "median": worst.median().item()}
            row[key]["tensor"] = list(said["double"][group])[int(every.amax(0).argmax())]
        row["times"] = over(row["fast_double"]["median"], row["plain_double"]["median"])
        allowed = max(ALLOWED_ERROR, ALLOWED_TIMES * row["plain_double"]["median"])
        row["agrees"] = row["fast_double"]["median"] <= allowed
        made.append(row)
    return made


def states(given: argparse.Namespace, task: pa.data.Task, kept: Kept) -> str:
    """All spaces."""
    with precise():
        for name in given.spaces.split(","):
            for row in agreement_of_states(name, given, task):
                kept.add(row)
    titles = ["space", "of", "fast-plain worst", "median", "fast-double worst", "median", "plain-double worst"]
    titles += ["median", "times", "agrees"]
    lines = []
    for row in kept.rows:
        pairs = (row[key] for key in ("fast_plain", "fast_double", "plain_double"))
        errors = [pair[kind] for pair in pairs for kind in ("worst", "median")]
        marked = row["space"] + ("*" if row["why_plain"] else "")
        lines.append([marked, row["of"], *(f"{error:.1e}" for error in errors), row["times"], row["agrees"]])
    return table(titles, lines)


def _space(name: str, given: argparse.Namespace) -> pa.spaces.Space:
    if given.small or given.full or name == "nasbench201":
        return space_of(name, given.small)
    return pa.spaces.Darts(channels=16, layers=3) if name == "darts" else pa.spaces.NasBench1Shot1(sub_space=3, cells=3)


# ---------------------------------------------------------------------------------------------------------------------
# Many steps.


@torch.no_grad()
def nudged(weights: Mapping[str, Tensor], seed: int = 0) -> None:
    """Moves the last bit of every weight, up or down at random."""
    chance = torch.Generator().manual_seed(seed)
    for value in weights.values():
        up = torch.rand(value.shape, generator=chance).to(value.device) < 0.5
        value.copy_(torch.nextafter(value, torch.where(up, torch.inf, -torch.inf).to(value)))


def walked(problem: Problem, given: argparse.Namespace, nudges: bool) -> tuple[Tensor, Tensor]:
    """Probabilities before the first step and after each, [steps + 1, options]; losses of training, [steps]."""
    loop = loop_of(DARTS, problem, first_seed=given.seed)
    if nudges:
        nudged(loop.state.weights)

    @torch.no_grad()
    def probabilities() -> Tensor:
        belief = DARTS.distribution(problem.space, loop.state.belief)
        return torch.cat([p.flatten() for p in belief.probs().values()])

    path, losses = [probabilities()], []
    for info in islice(steps_of(loop), given.steps):
        path.append(probabilities())
        losses.append(-info.metrics["log_likelihood"][0].clone())
    return torch.stack(path).cpu(), torch.stack(losses).cpu()


def steps(given: argparse.Namespace, task: pa.data.Task, kept: Kept) -> str:
    """Plain, the control and fast."""
    space = space_of("nasbench201", given.small)
    why = ""
    with precise(given.tf32, deterministic=True):
        found = {}
        for name, fast, nudges in (("plain", False, False), ("control", False, True), ("fast", True, False)):
            problem = problem_on(task, space, fast=fast, device=given.device)
            why = why_plain(problem)
            found[name] = walked(problem, given, nudges)
    plain, losses = found["plain"]
    for step in sorted({*(own for own in SHOWN_STEPS if own < given.steps), given.steps}):
        row: dict[str, Any] = {"step": step, "moved": (plain[step] - plain[0]).abs().max().item()}
        for name in ("fast", "control"):
            path, own = found[name]
            row[name] = (path[step] - plain[step]).abs().max().item()
            row[f"{name}_loss"] = (own[step - 1] - losses[step - 1]).abs().item()
        kept.add(row | {"loss": losses[step - 1].item()})
    off = kept.rows[-1]["fast"]
    kept.add({"apart": off, "allowed": ALLOWED_APART, "agrees": off <= ALLOWED_APART, "why_plain": why})
    titles = ["after steps", "fast", "control", "moved", "loss", "fast loss off", "control loss off"]
    keys = ("fast", "control", "moved", "loss", "fast_loss", "control_loss")
    lines = [[row["step"], *(f"{row[key]:.2e}" for key in keys)] for row in kept.rows[:-1]]
    verdict = "no further" if off <= ALLOWED_APART else "FURTHER"
    return f"{table(titles, lines)}\n\nprobabilities are {off:.2e} apart: {verdict} than {ALLOWED_APART}"


# ---------------------------------------------------------------------------------------------------------------------
# Searches.


def outcome(run: pa.Run) -> dict[str, Any]:
    """What a search came to."""
    last, result = run.history()[-1], run.result
    return {
        "architecture": str(run.architecture),
        "supernet_accuracy": last["select"]["supernet_accuracy"],
        "supernet_loss": -last["select"]["supernet_log_likelihood"],
        "training_loss": -last["step"]["log_likelihood"],
        "entropy": last["entropy"],
        "selected_test_accuracy": result["metrics"]["test"]["accuracy"],
        "mixture_test_accuracy": result["metrics"]["test_ensemble"]["accuracy"],
        **({"truth": result["truth"]["selected"]} if "truth" in result else {}),
    }


def search(given: argparse.Namespace, task: pa.data.Task, kept: Kept) -> str:
    """Both forms, all seeds of each at once."""
    channels = 4 if given.small else 16
    space = pa.spaces.NasBench201(channels=channels, cells=given.cells)
    augment = Augment() if given.small else DARTS.augment
    method = pa.methods.Darts(augment=augment, epochs=given.epochs, evaluation=Evaluating(every=given.epochs))
    found: dict[str, list[dict[str, Any]]] = {}
    for form in ("plain", "fast"):
        truth = [TableTruth(given.table, given.column)] if given.table else []
        with tempfile.TemporaryDirectory() as folder:
            compute = Compute(given.device, given.precision, fast=form == "fast")
            runs = pa.search(
                space, task, method, out=Path(folder) / "run", repeats=given.seeds, compute=compute, callbacks=truth
            )
            every = runs if isinstance(runs, list) else [runs]
            found[form] = [outcome(run) for run in every]
            seconds = every[0].history()[-1]["seconds"]
        for seed, own in enumerate(found[form]):
            kept.add({"form": form, "seed": seed, **own, "seconds_of_all": seconds})
    lines = []
    for name in (key for key in found["plain"][0] if key != "architecture"):
        values = {form: [own[name] for own in rows] for form, rows in found.items()}
        mean = {form: statistics.fmean(own) for form, own in values.items()}
        deviation = {form: statistics.stdev(own) if len(own) > 1 else 0.0 for form, own in values.items()}
        off = mean["fast"] - mean["plain"]
        agrees = abs(off) <= max(deviation.values())
        kept.add({"of": name, "mean": mean, "deviation": deviation, "off": off, "agrees": agrees})
        lines.append([name, *(f"{mean[form]:.4f} ± {deviation[form]:.4f}" for form in found), f"{off:+.4f}", agrees])
    same = sum(p["architecture"] == f["architecture"] for p, f in zip(found["plain"], found["fast"], strict=True))
    kept.add({"of": "architecture", "same": same, "seeds": given.seeds})
    shown = table(["", "plain", "fast", "off", "agrees"], lines)
    return f"{shown}\n\n{same} of {given.seeds} seeds selected the same architecture by both forms"


# ---------------------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = made.add_subparsers(dest="part", required=True)
    part = {run.__name__: parts.add_parser(run.__name__, help=run.__doc__) for run in (states, steps, search)}
    for own in part.values():
        own.add_argument("--data", default="cifar10")
        own.add_argument("--images", default="", help="the folder of the data; by default where searches look for it")
        own.add_argument("--limit", type=int, default=0, help="read so many images alone")
        own.add_argument("--device", default="cuda")
        own.add_argument("--small", action="store_true", help="small networks, to try this out")
        own.add_argument("--out", type=Path, help="a folder for PART.jsonl")
    part["states"].add_argument("--spaces", default="nasbench201,darts,nasbench1shot1-3")
    part["states"].add_argument("--states", type=int, default=50)
    part["states"].add_argument("--every", type=int, default=2, help="steps between two states")
    part["states"].add_argument("--full", action="store_true", help="the other spaces at their full size, too")
    part["steps"].add_argument("--steps", type=int, default=200)
    part["steps"].add_argument("--seed", type=int, default=0)
    part["steps"].add_argument("--tf32", action="store_true", help="convolutions in TF32, as in a search")
    part["search"].add_argument("--epochs", type=int, default=5)
    part["search"].add_argument("--seeds", type=int, default=3)
    part["search"].add_argument("--cells", type=int, default=1, help="N, of each stage; the benchmark has 5")
    part["search"].add_argument("--precision", default="float32")
    part["search"].add_argument("--table", help="ground truth of what is selected")
    part["search"].add_argument("--column", default="cifar10_valid_acc_200")
    return made


def main(words: Sequence[str] | None = None) -> None:
    given = parser().parse_args(words)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic algorithms ask for it
    settings = {"folder": given.images} if given.images else {}
    settings |= {"limit": given.limit} if given.limit else {}
    task = pa.data.load(given.data, select=0.5, **settings)
    kept = Kept(given.out / f"{given.part}.jsonl" if given.out else None, given.device)
    run = {"states": states, "steps": steps, "search": search}[given.part]
    print(f"\n{run(given, task, kept)}")


if __name__ == "__main__":
    main()
