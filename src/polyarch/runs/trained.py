"""The network that a search hands over: what it selected, trained alone.

Weights that many architectures share are a compromise between them: they say which network to take, and seldom how good
it is. So that network is trained by itself, in a run folder of its own beneath the search.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.architecture import Architecture
from polyarch.callbacks import Callback
from polyarch.data.likelihood import Gaussian, Likelihood
from polyarch.errors import PolyarchError
from polyarch.methods.standalone import alone
from polyarch.runs import search as searching
from polyarch.runs.config import CONFIG
from polyarch.runs.names import as_run
from polyarch.runs.options import Compute
from polyarch.runs.run import TRAINED, Run
from polyarch.runs.timing import TRAINING
from polyarch.settings import at_least
from polyarch.streams import Streams
from polyarch.uncertainty.ensemble import BATCH, Apart, Ensemble
from polyarch.uncertainty.gaussians import fitted

MEMBERS = "members"
"""Of a run's folder: a run of each network that belief drew, trained alone."""
Progress = Callable[[str], AbstractContextManager[Callback | None]]
"""From the name of a training to what is told how it goes."""


def train_selected(run: Run | str | os.PathLike[str], *, callbacks: Sequence[Callback] = ()) -> Run:
    """Trains the selected network of a finished search alone, or goes on with that; `run.model()` is it from then on.

    It is trained on the data and with the seed of the search, as `polyarch train` does; what was set for the search's
    weights and epochs stays. Where the search had a time limit, it takes as many epochs as fit in half of it.

    Args:
        run: a search whose networks share weights, or its folder; of repeats, one.
        callbacks: are told how training goes.

    Returns:
        The run of the trained network: `run.trained`.
    """
    run = as_run(run)
    _check(run)
    return _train(run, run.folder / TRAINED, run.architecture, run.seed, callbacks)


def train_members(
    run: Run | str | os.PathLike[str], count: int, *, progress: Progress = lambda name: nullcontext()
) -> Ensemble:
    """Trains architectures that belief draws, each alone and from a seed of its own, and the selected one if need be.

    Every member is a run beneath the search. What was trained before is taken as it is, and what was interrupted goes
    on; a larger count goes on from a smaller one.

    Args:
        run: a search whose networks share weights, or its folder; of repeats, one.
        count: how many to draw.
        progress: is told of every training.

    Returns:
        The drawn networks as one mixture, on raw inputs.
    """
    run = as_run(run)
    at_least("members", count, 2)
    _check(run)
    if run.trained is None:
        with progress("training the selected network") as told:
            train_selected(run, callbacks=[told] if told else [])
    networks, generator = [], Streams(run.seed)["architecture"]
    for place in range(count):
        [choices] = run.distribution.sample(1, generator).tolist()
        home = run.folder / MEMBERS / str(place)
        with progress(f"member {place + 1} of {count}") as told:
            # The seed of the search is that of the selected network: one that is drawn again begins elsewhere.
            seed = run.seed + place + 1
            member = _train(run, home, run.space.architecture(choices), seed, [told] if told else [])
        networks += member.networks([member.architecture])
    weights = torch.full((count,), 1 / count)
    return Ensemble(
        run.preprocess(), Apart(networks), weights, _likelihood(run, Apart(networks), weights), run.units()
    ).eval()


@torch.no_grad()
def _likelihood(run: Run, members: Apart, weights: Tensor) -> Likelihood:
    """What a mixture says of targets: where noise is learnt, as validation data has it for these members."""
    own = run.likelihood("before")
    if not isinstance(own, Gaussian) or not own.fits:
        return own
    held_out = run.task().select
    assert held_out is not None
    ensemble = Ensemble(run.preprocess(), members, weights, own, run.units())
    outputs = torch.cat([ensemble.members(part) for part in held_out.x.split(BATCH)], -2)
    return fitted(outputs, weights, held_out.y, own)


def _check(run: Run) -> None:
    """Raises where training alone has no sense."""
    if not run.shares_weights:
        raise PolyarchError(
            f"the networks of {run.folder} do not share weights with others, so nothing is trained anew beneath it; to "
            "train one otherwise, use `polyarch train RUN --out FOLDER`"
        )


def _train(run: Run, home: Path, architecture: Architecture, seed: int, callbacks: Sequence[Callback]) -> Run:
    """Trains one architecture of a run in a folder of its own, or goes on with that."""
    task, begun = run.task(), (home / CONFIG).exists()
    distributed.barrier()  # before the first rank writes it
    if begun:
        trained = searching.resume(home, task=task, callbacks=callbacks, allow_changed=run.allow_changed)
    else:
        trained = searching.search(
            run.config.make_space(),
            task,
            alone(run.config.make_method(), run.config.make_space(), architecture),
            out=home,
            seed=seed,
            compute=Compute(run.config.device, run.config.precision, run.config.fast, _limit(run)),
            callbacks=callbacks,
        )
    assert isinstance(trained, Run)
    return trained


def _limit(run: Run) -> float | None:
    """Of a search with a time limit, a share of it."""
    return TRAINING * run.config.time_limit or None
