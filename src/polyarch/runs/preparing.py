"""From what a run was asked to do to the loop of its first stage, or of a later one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from polyarch.core import Problem, State
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.runs.config import Config
from polyarch.runs.run import open_run
from polyarch.spaces.base import Space
from polyarch.spaces.sub_spaces import Restricted
from polyarch.streams import Streams
from polyarch.training.loop import Loop, Progress


def make_problem(config: Config, space: Space, task: Task, device: torch.device) -> Problem:
    """What a method is given for one stage: data as networks see it, on the device, and a supernet of all repeats."""
    given = task.learning_data()
    moved = {split: task.seen(split, device) for split in given.values()}
    with torch.device(device):
        supernet = space.supernet(task.shape, config.repeats)
    prior = config.make_prior(space)
    pricing = config.make_pricing(space)
    image = len(task.input_shape) == 3
    return Problem(
        space=space,
        supernet=supernet,
        likelihood=task.likelihood.on(device),
        prior=replace(prior, logits=prior.logits.to(device)),
        data={name: moved[split] for name, split in given.items()},
        bounds=config.make_bounds(space),
        price=pricing.on(device) if pricing else None,
        black=task.preprocess(torch.zeros(task.input_shape[0], 1, 1)).to(device) if image else None,
        precision=config.precision,
        fast=config.fast,
    )


def streams_of(config: Config) -> list[Streams]:
    """As every repeat begins."""
    return [Streams(config.seed + k) for k in range(config.repeats)]


def first_stage(config: Config, task: Task, allow_changed: bool) -> Loop:
    """The first stage, from fresh weights or from those that are inherited."""
    previous = _inherited(config, allow_changed) if config.weights_from else None
    belief = _learnt(config, allow_changed) if config.belief_from else None
    return prepare(config, task, Progress(), streams_of(config), previous, belief)


def _learnt(config: Config, allow_changed: bool) -> dict[str, Tensor]:
    """The belief of another run, as tensors of this one's."""
    run = open_run(config.belief_from, allow_changed=allow_changed)
    for what, own, other in (
        ("space", config.space["signature"], run.config.space["signature"]),
        ("method", type(config.make_method()), type(run.config.make_method())),
    ):
        if own != other:
            raise PolyarchError(
                f"{config.belief_from} is a run of another {what} ({getattr(run.config, what)['name']}); belief can "
                f"only come from one of {getattr(config, what)['name']}"
                f"{' with the same decisions and options' if what == 'space' else ''}"
            )
    return run.belief


def _inherited(config: Config, allow_changed: bool) -> State:
    """One network of another run, as the state that training it alone starts from."""
    run = open_run(config.weights_from, allow_changed=allow_changed)
    space = config.make_method().stages(config.make_space())[0].space
    if not isinstance(space, Restricted) or space.count() > 1:
        raise PolyarchError("only training one network starts from inherited weights; leave weights_from out")
    [network] = run.networks([run.space.parse(space.format([0] * len(space.decisions)))])
    tensors = {name: value.unsqueeze(0) for name, value in network.state_dict(prefix="network.").items()}
    return State(weights=tensors, buffers=tensors, belief={})


def prepare(
    config: Config,
    task: Task,
    progress: Progress,
    streams: list[Streams],
    previous: State | None,
    belief: Mapping[str, Tensor] | None = None,
) -> Loop:
    """The stage that `progress` is in, as it begins, with another run's belief if given; nothing is written yet."""
    method = config.make_method()
    stage = method.stages(config.make_space())[progress.stage]
    problem = make_problem(config, stage.space, task, torch.device(config.device))
    state = method.init(problem, streams, previous)
    if belief is not None:
        if belief.keys() != state.belief.keys():
            raise PolyarchError(
                f"{config.belief_from} was searched in other stages, or its belief moved in another way; set "
                "plan.stages and update as they were there"
            )
        listed = state.belief.get("choices")
        if listed is not None and not torch.equal(belief["choices"].to(listed)[:1], listed[:1]):
            raise PolyarchError(f"{config.belief_from} lists other architectures; set its list as it was there")
        with torch.no_grad():
            for name, value in state.belief.items():
                value.copy_(belief[name].expand_as(value))
    return Loop(method, problem, state, streams, progress, stage.epochs)
