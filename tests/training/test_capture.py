from itertools import islice

import pytest
import torch
from bench.measuring import loop_of, problem_on

import polyarch as pa
from polyarch.methods import FixedDepth, VariationalDepth
from polyarch.training.capture import CapturedStep


@pytest.mark.cuda
@pytest.mark.parametrize("method", [VariationalDepth, FixedDepth])
@pytest.mark.parametrize("data", ["spirals", "digits"])
def test_captured_search_equals_the_same_search_on_the_cpu(tmp_path, monkeypatch, method, data):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    task = pa.data.load(data)
    space = pa.spaces.ResidualDepth(max_depth=4, width=16)
    settings = {"epochs": 4, "batch_size": 64, "weights": {"lr": 0.02}}
    runs = {
        d: pa.search(space, task, method(**settings), out=tmp_path / d, compute=pa.Compute(d)) for d in ("cpu", "cuda")
    }
    log = {d: [line["step"] for line in run.history()] for d, run in runs.items()}
    for cpu, cuda in zip(log["cpu"][:2], log["cuda"][:2], strict=True):  # later, rounding has grown
        for name in cpu:
            assert cuda[name] == pytest.approx(cpu[name], rel=2e-2)
    assert torch.allclose(
        runs["cpu"].distribution.probs()["depth"], runs["cuda"].distribution.probs()["depth"], atol=1e-2
    )


CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
GENOTYPE = str(pa.spaces.Darts().architecture([3, 8, 5, 1] * 4))
CELLS = pa.spaces.NasBench201(channels=4, cells=1)
DARTS = pa.spaces.Darts(channels=2, layers=3)
ONE_SHOT = pa.spaces.NasBench1Shot1(channels=2, cells=3)
WIRES = {"stages": 2, "nodes": 3, "channels": 4}
OWN_WIRES = pa.spaces.Wiring(**WIRES, listed=3, own_aggregation=True, own_affine=True)
TRAIN = {"epochs": 2, "augment": {"crop": 1, "flip": True, "cutout": 3}}
SEARCHES = {
    "one cell": (CELLS, pa.methods.Standalone(architecture=CELL, **TRAIN), 1),
    "one cell, three seeds": (CELLS, pa.methods.Standalone(architecture=CELL, **TRAIN), 3),
    "one genotype": (DARTS, pa.methods.Standalone(architecture=GENOTYPE, auxiliary=0.4, drop_path=0.2, **TRAIN), 1),
    "cells": (CELLS, pa.methods.Parsec(epochs=2, samples=2, form="dense"), 2),
    "cells, sparse": (CELLS, pa.methods.Parsec(epochs=2, samples=2), 2),
    "genotypes": (DARTS, pa.methods.Parsec(epochs=1, samples=2, form="dense"), 1),
    "one-shot": (
        pa.spaces.NasBench1Shot1(channels=2, cells=3),
        pa.methods.Parsec(epochs=1, samples=2, form="dense"),
        1,
    ),
    "darts": (CELLS, pa.methods.Darts(epochs=1, augment={"crop": 1, "flip": True}), 2),
    "darts, second order": (CELLS, pa.methods.Darts(epochs=1, objective={"order": "second"}), 1),
    "sotl": (CELLS, pa.methods.Darts(epochs=1, objective={"loss": "sotl", "steps": 4}), 1),
    "sovl": (CELLS, pa.methods.Darts(epochs=1, objective={"loss": "sovl", "steps": 3}), 1),
    "sotl, exact": (
        CELLS,
        pa.methods.Darts(
            epochs=1, objective={"loss": "sotl", "order": "exact", "steps": 3}, weights={"grad_clip": 0.0}
        ),
        1,
    ),
    "pdarts": (
        DARTS,
        pa.methods.Darts(epochs=2, warmup_epochs=1, plan={"stages": ((2, 8, 0.1), (3, 4, 0.4))}),
        1,
    ),
    "single-path": (CELLS, pa.methods.OneShot(epochs=1, form="dense"), 2),
    "fairnas": (CELLS, pa.methods.OneShot(epochs=1, form="dense", sampling="fair"), 2),
    "multipath-metaprox": (CELLS, pa.methods.OneShot(epochs=1, form="dense", paths=2, inner_steps=2, proximal=1.0), 1),
    "balenas": (CELLS, pa.methods.Balenas(epochs=1, samples=2), 2),
    "balenas, second order": (CELLS, pa.methods.Balenas(epochs=1, objective={"order": "second"}), 1),
    "gdas": (DARTS, pa.methods.Gdas(epochs=1), 1),
    "drnas": (CELLS, pa.methods.Drnas(epochs=1), 1),
    "wirings": (pa.spaces.Wiring(**WIRES), pa.methods.StochasticArchitectures(epochs=1, augment={"crop": 1}), 2),
    "wirings, one per batch": (pa.spaces.Wiring(**WIRES), pa.methods.StochasticArchitectures(epochs=1, per="batch"), 1),
    "wirings, own": (OWN_WIRES, pa.methods.StochasticArchitectures(epochs=1), 1),
    "one wiring": (pa.spaces.Wiring(**WIRES, wirings="residual"), pa.methods.StochasticArchitectures(epochs=1), 1),
    "own module": (pa.ModuleSpace("torch_choices:Network"), pa.methods.Parsec(epochs=2, samples=2), 1),
}
OWN = """
import polyarch as pa
from torch import nn

def Network():
    options = {"linear": nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)), "none": nn.Identity()}
    return nn.Sequential(nn.Flatten(), pa.Choice("layer", options), nn.Dropout(0.0), nn.ReLU(), nn.Linear(64, 10))
"""


@pytest.mark.cuda
@pytest.mark.parametrize("name", SEARCHES)
def test_captured_cells_equal_those_on_the_cpu(tmp_path, monkeypatch, name):
    (tmp_path / "torch_choices.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    task = pa.data.load("digits")
    space, method, repeats = SEARCHES[name]
    runs = {
        d: pa.search(space, task, method, out=tmp_path / d, compute=pa.Compute(d), repeats=repeats)
        for d in ("cpu", "cuda")
    }
    for cpu, cuda in zip(*(found if repeats > 1 else [found] for found in runs.values()), strict=True):
        first, second = (run.history()[0]["step"] for run in (cpu, cuda))
        for key in first:
            assert second[key] == pytest.approx(first[key], rel=5e-2, abs=5e-3), key


def losses_of(task, method, seeds):
    """Of the first captured steps, [steps, what is measured, repeats]."""
    problem = problem_on(task, CELLS, fast=True, repeats=len(seeds))
    steps = islice(loop_of(method, problem, first_seed=seeds[0]).steps(), 4)
    return torch.stack([torch.stack([value.clone() for value in info.metrics.values()]) for info in steps]).cpu()


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["Darts", "Drnas", "Gdas", "Balenas", "Parsec", "OneShot"])
def test_branches_of_a_graph_are_single_runs(monkeypatch, name):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    settings = {"samples": 2} if name in ("Balenas", "Parsec") else {}
    settings |= {"form": "dense"} if name in ("Parsec", "OneShot") else {}
    method, task = getattr(pa.methods, name)(epochs=1, **settings), pa.data.load("digits")
    together = losses_of(task, method, [0, 1, 2])
    for k in range(3):
        torch.testing.assert_close(together[..., k], losses_of(task, method, [k])[..., 0], rtol=1e-3, atol=1e-3)


@pytest.mark.cuda
def test_capturing_leaves_no_trace_in_the_state():
    from polyarch.core import Info

    state = {"count": torch.zeros(1, device="cuda")}

    def step() -> Info:
        state["count"] += 1
        return Info({"count": state["count"].clone()}, 1, 0)

    captured = CapturedStep(step, state, captures=True)
    assert state["count"].item() == 0
    assert [captured().metrics["count"].item() for _ in range(3)] == [1, 2, 3]


@pytest.mark.cuda
def test_steps_that_share_a_pool_may_run_in_any_order():
    from polyarch.core import Info

    state = {name: torch.ones(1000, 1000, device="cuda") for name in ("first", "second")}
    on_cpu = {name: value.double().cpu() for name, value in state.items()}

    def step(name, number, values):
        """Temporaries of several sizes, in which the steps of a pool lie over each other."""
        made = (values[name] * number).sin()
        part = made[: 500 // number].cumsum(1)
        values[name].add_(made.cos() + part.sum(0) / 1e6)
        return Info({"told": values[name].mean()})

    pool = torch.cuda.graph_pool_handle()
    captured = {}
    for name, number in (("first", 1), ("second", 2), ("first", 3), ("second", 5)):
        captured[name, number] = CapturedStep(lambda n=name, k=number: step(n, k, state), state, True, pool)
    order = [3, 0, 0, 2, 1, 3, 3, 1, 2, 0]
    for key in [list(captured)[k] for k in order]:
        told = captured[key]().metrics["told"].item()
        assert told == pytest.approx(step(*key, on_cpu).metrics["told"].item(), rel=1e-4), key


def test_on_the_cpu_a_step_is_simply_called():
    calls = []
    captured = CapturedStep(lambda: calls.append(1), {}, captures=False)
    captured()
    captured()
    assert len(calls) == 2
