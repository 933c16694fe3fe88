"""Inputs that are trees of tensors, draws that travel with their batches, and steps that are made of several parts."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from polyarch.core import LAST, EarlyStopping, Feed, FeedSpec, Info, Method, Part, Problem, State, gradients
from polyarch.data.likelihood import Gaussian
from polyarch.data.task import Split, TaskShape
from polyarch.distributions import Categorical, uniform
from polyarch.spaces.base import Supernet
from polyarch.spaces.views import Sparse
from polyarch.streams import Streams
from polyarch.testing.toy import Lines
from polyarch.training.evaluation import evaluate_view
from polyarch.training.loop import Batches, Loop, Progress
from polyarch.training.optimisers import Sgd, momentum_buffers
from polyarch.trees import leaves, tree_map

VIEW = Sparse((0, 0))
EXAMPLES = {"train": 22, "select": 7}
SPECS = {"train": FeedSpec("train", 4, count=2, shorter=True), "search": FeedSpec("select", 3)}


class Sum(Supernet):
    """A linear function of three inputs, two of which come as a pair."""

    views: ClassVar[frozenset[type]] = frozenset({Sparse})

    def __init__(self, repeats):
        super().__init__()
        self.space, self.shape, self.repeats = Lines(), TaskShape((2,), 1), repeats
        self.left, self.first, self.second = (nn.Parameter(torch.zeros(repeats, n)) for n in (2, 3, 1))

    def reset(self, generators):
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.stack([torch.randn(weight.shape[1:], generator=g) for g in generators]))

    def forward(self, x, view):
        parts = ((x["left"], self.left), (x["pair"][0], self.first), (x["pair"][1], self.second))
        return sum(torch.einsum("rbi,ri->rb", given, weight) for given, weight in parts).unsqueeze(-1)

    def member_state(self, architecture, repeat):
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Parts(Method):
    """Trains on one batch after another, each in a part of its own; a last part sees all batches of the step."""

    name: ClassVar[str] = "parts"

    stopping: EarlyStopping = LAST
    weights: Sgd = Sgd(lr=0.1, momentum=0.5)

    def feeds(self, problem):
        return SPECS

    def draw(self, problem, streams):
        noise = streams["noise"]
        scale, shift, own = (
            torch.rand(2, 4, generator=noise),
            torch.rand(1, generator=noise),
            torch.rand(5, generator=noise),
        )
        return {"train": {"scale": {"left": scale}}, "search": {"shift": shift}, "own": own}

    def schedule(self, epoch):
        return {"lr": self.weights.lr_at(epoch, self.epochs)}

    def parts(self, problem, state, epoch, batches):
        return [*(Part("one", self.step, k) for k in range(batches)), Part("all", self._all)]

    def init(self, problem, streams, previous):
        problem.supernet.reset([s["init"] for s in streams])
        state = State.of(problem.supernet, {"logits": torch.zeros(problem.repeats, 2, 3)})
        state.optimiser = momentum_buffers(weights=state.weights)
        state.scratch = {"summed": torch.zeros(problem.repeats)}
        return state

    def distribution(self, space, belief):
        return Categorical(space.decisions, belief["logits"])

    def step(self, problem, state, feed):
        [batch], [search] = feed.batches["train"], feed.batches["search"]
        x = {**batch.x, "left": batch.x["left"] * batch.draws["scale"]["left"].unsqueeze(-1)}
        fit = problem.log_likelihood(problem.supernet(x, VIEW), batch)
        self.weights.step(state, gradients(-fit, list(state.weights.values())), feed.schedule["lr"])
        state.scratch["summed"].add_(search.draws["shift"])
        return Info({"fit": fit.detach()}, forward=batch.size, backward=batch.size)

    def _all(self, problem, state, feed):
        summed = state.scratch["summed"].clone()
        state.scratch["summed"].zero_()
        [search] = feed.batches["search"]
        fit = problem.log_likelihood(problem.supernet(search.x, VIEW), search)
        scales = sum(batch.draws["scale"]["left"].sum(-1) for batch in feed.batches["train"])
        metrics = {"summed": summed, "search": fit.detach(), "scales": scales, "own": feed.draws["own"].sum(-1)}
        return Info(metrics, forward=search.size)

    def evaluate(self, problem, state, split):
        return evaluate_view(problem, VIEW, split)


def problem_of(repeats=2):
    generator = torch.Generator().manual_seed(0)

    def split(n):
        left, first, second = (torch.randn(n, size, generator=generator) for size in (2, 3, 1))
        return Split({"left": left, "pair": (first, second)}, left[:, 0] - 2 * second[:, 0])

    data = {name: split(n) for name, n in EXAMPLES.items()}
    return Problem(Lines(), Sum(repeats), Gaussian(), uniform(Lines().decisions), data)


def draws_of(repeats=2):
    """Of one step, with the leading axis of repeats."""
    return tree_map(lambda *v: torch.stack(v), *(Parts().draw(None, Streams(k)) for k in range(repeats)))


# ---------------------------------------------------------------------------------------------------------------------
# Batches.


def test_the_inputs_of_an_example_stay_together():
    """And an epoch visits each once, whatever the step takes at a time."""
    problem = problem_of()
    batches = Batches(problem, SPECS)
    assert batches.counts == [2, 2, 1]
    batches.shuffle([Streams(0), Streams(1)])
    examples, seen = problem.data["train"], [[], []]
    for step, count in enumerate(batches.counts):
        found = batches.every(step)["train"]
        assert [batch.y.shape for batch in found] == [(2, 4)] * count
        for batch in found:
            for repeat in range(2):
                rows = [(examples.y == y).nonzero().item() for y in batch.y[repeat]]
                seen[repeat] += rows
                for given, whole in zip(leaves(batch.x), leaves(examples.x), strict=True):
                    assert torch.equal(given[repeat], whole[rows])
    assert all(len(set(rows)) == 20 for rows in seen)
    assert seen[0] != seen[1]


def test_a_whole_split_in_one_fixed_order():
    problem = problem_of()
    found = list(problem.passes("select", size=3))
    assert [batch.y.shape for batch in found] == [(2, 3), (2, 2), (2, 2)]
    rows = [(problem.data["select"].y == y).nonzero().item() for batch in found for y in batch.y[0]]
    assert sorted(rows) == list(range(EXAMPLES["select"]))
    for k, whole in enumerate(leaves(problem.data["select"].x)):
        together = torch.cat([list(leaves(batch.x))[k] for batch in found], 1)
        assert torch.equal(together, whole[rows].expand(2, *whole.shape))


def test_a_full_batch_of_a_tree_is_never_copied():
    problem = problem_of()
    batches = Batches(problem, {"train": FeedSpec("train", EXAMPLES["train"])})
    batches.shuffle([Streams(0), Streams(1)])
    [batch] = batches.every(0)["train"]
    for given, whole in zip(leaves(batch.x), leaves(problem.data["train"].x), strict=True):
        assert given.data_ptr() == whole.data_ptr()


def test_draws_of_a_feed_reach_its_batches():
    batches, drawn = Batches(problem_of(), SPECS), draws_of()
    batches.shuffle([Streams(0), Streams(1)])
    batches.draws({name: drawn[name] for name in SPECS})
    every = batches.every(0)
    for k, batch in enumerate(every["train"]):
        assert torch.equal(batch.draws["scale"]["left"], drawn["train"]["scale"]["left"][:, k])
    assert torch.equal(every["search"][0].draws["shift"], drawn["search"]["shift"][:, 0])
    for k, batch in enumerate(every["train"]):
        only = batches.only(0, k)
        [one], [search] = only["train"], only["search"]
        assert torch.equal(one.y, batch.y)
        assert torch.equal(one.draws["scale"]["left"], batch.draws["scale"]["left"])
        assert torch.equal(search.draws["shift"], drawn["search"]["shift"][:, 0]), "a feed of one begins again"
    nothing = Batches(problem_of(), SPECS)
    nothing.shuffle([Streams(0), Streams(1)])
    assert nothing.every(0)["train"][0].draws == {}


def test_what_a_part_reads_is_always_in_the_same_places():
    """Else a recording would see the first step's batches and draws for ever."""
    batches = Batches(problem_of(), SPECS)
    batches.shuffle([Streams(0), Streams(1)])
    drawn = draws_of()
    own = {name: drawn[name] for name in SPECS}  # the loop refills these
    placed = set()
    for step, k in ((0, 0), (0, 1), (1, 0), (2, 0)):
        tree_map(lambda place, step=step: place.fill_(step), own)
        batches.draws(own)
        found = batches.only(step, k)
        tensors = [t for [b] in found.values() for t in (*leaves(b.x), b.y, *leaves(b.draws))]
        placed.add(tuple(tensor.data_ptr() for tensor in tensors))
        assert all((tensor == step).all() for [batch] in found.values() for tensor in leaves(batch.draws))
    assert len(placed) == 1


def test_what_a_part_of_one_batch_sees():
    batches, drawn = Batches(problem_of(), SPECS), draws_of()
    batches.shuffle([Streams(0), Streams(1)])
    batches.draws({name: drawn[name] for name in SPECS})
    feed = Feed(batches.every(0), {"own": drawn["own"]}, {})
    for k in range(2):
        only = feed.only(k)
        assert only.batches["train"] == [feed.batches["train"][k]]
        assert only.batches["search"] == feed.batches["search"]
        assert only.draws is feed.draws


# ---------------------------------------------------------------------------------------------------------------------
# Steps.


def test_metrics_of_parts():
    """One that several tell is their mean; examples are added up."""
    told = [{"fit": torch.tensor([1.0, 2.0])}, {"fit": torch.tensor([3.0, 6.0]), "own": torch.tensor([5.0, 5.0])}, {}]
    info = Info.of([Info(metrics, forward=k, backward=2 * k) for k, metrics in enumerate(told)])
    assert {name: value.tolist() for name, value in info.metrics.items()} == {"fit": [2.0, 4.0], "own": [5.0, 5.0]}
    assert (info.forward, info.backward) == (3, 6)


def trained_by_hand(problem, repeat, epochs):
    """Weights by torch's own SGD from the same streams, and what each epoch tells of its steps."""
    streams, told = Streams(repeat), []
    sizes = {"left": 2, "first": 3, "second": 1}
    weights = {name: torch.randn(n, generator=streams["init"]).requires_grad_() for name, n in sizes.items()}
    optimiser = torch.optim.SGD(weights.values(), lr=0.1, momentum=0.5)

    def fit(split, rows, scale=1.0):
        x, y = problem.data[split].x, problem.data[split].y
        inputs = (x["left"][rows] * scale, *(part[rows] for part in x["pair"]))
        output = sum(given @ weight for given, weight in zip(inputs, weights.values(), strict=True))
        return torch.distributions.Normal(output, 1.0).log_prob(y[rows]).mean()

    for _ in range(epochs):
        order, search = (torch.randperm(n, generator=streams["data"]) for n in EXAMPLES.values())
        rows, fits, others = iter(order[:20].split(4)), [], []
        for step, count in enumerate((2, 2, 1)):
            scales, shift, own = (torch.rand(*n, generator=streams["noise"]) for n in ((2, 4), (1,), (5,)))
            for k in range(count):
                optimiser.zero_grad()
                value = fit("train", next(rows), scales[k].unsqueeze(-1))
                (-value).backward()
                optimiser.step()
                fits.append(value.item())
            seen = fit("select", search[3 * (step % 2) : 3 * (step % 2) + 3]).item()
            others.append((count / 5, count * shift.item(), seen, scales[:count].sum().item(), own.sum().item()))
        shares, *columns = zip(*others, strict=True)
        means = [sum(s * v for s, v in zip(shares, column, strict=True)) for column in columns]
        told.append({"fit": sum(fits) / 5, **dict(zip(("summed", "search", "scales", "own"), means, strict=True))})
    return weights, told


def test_a_step_of_parts_on_trees_is_what_it_is_by_hand():
    """Through the whole loop, two repeats at once: parts in order, each with its own batch and its own draws."""
    problem, method, streams = problem_of(), Parts(epochs=3), [Streams(0), Streams(1)]
    loop = Loop(method, problem, method.init(problem, streams, None), streams, Progress(), 3)
    lines = [loop.epoch() for _ in range(3)]
    for repeat in range(2):
        weights, told = trained_by_hand(problem, repeat, 3)
        for name, value in weights.items():
            assert torch.allclose(loop.state.weights[name][repeat], value, atol=1e-5), name
        for line, expected in zip(lines, told, strict=True):
            assert {name: values[repeat] for name, values in line["step"].items()} == pytest.approx(expected, rel=1e-4)
    assert (lines[0]["forward"], lines[0]["backward"]) == (20 + 3 * 3, 20)
    assert lines[0]["select"].keys() == {"objective", "log_likelihood", "squared_error"}
    assert all("scratch" not in name for name in loop.state.tensors()), "no checkpoint holds what outlives no step"
