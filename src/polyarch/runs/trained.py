"""The network that a search hands over: what it selected, trained alone.

Weights that many architectures share are a compromise between them: they say which network to take, and seldom how good
it is. So that network is trained by itself, in a run folder of its own beneath the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from polyarch import distributed
from polyarch.callbacks import Callback
from polyarch.errors import PolyarchError
from polyarch.methods.standalone import Standalone
from polyarch.runs import search as searching
from polyarch.runs.config import CONFIG
from polyarch.runs.options import Compute
from polyarch.runs.run import TRAINED, Run
from polyarch.training.augment import Augment
from polyarch.training.optimisers import Sgd


def train_selected(run: Run, *, callbacks: Sequence[Callback] = ()) -> Run:
    """Trains the selected network of a finished search alone, or goes on with that; `run.model()` is it from then on.

    It is trained on the data and with the seed of the search, as its shared weights were and for as many epochs.

    Args:
        run: a search whose networks share weights; of repeats, one.
        callbacks: are told how training goes.

    Returns:
        The run of the trained network: `run.trained`.
    """
    if not run.shares_weights:
        raise PolyarchError(
            f"the network that {run.folder} selected has its weights already; to train it otherwise, use "
            "`polyarch train`"
        )
    home, task = run.folder / TRAINED, run.task()
    begun = (home / CONFIG).exists()
    distributed.barrier()  # before the first rank writes it
    if begun:
        trained = searching.resume(home, task=task, callbacks=callbacks)
    else:
        trained = searching.search(
            run.config.make_space(),
            task,
            recipe_for(run),
            out=home,
            seed=run.seed,
            compute=Compute(run.config.device, run.config.precision, run.config.fast),
            callbacks=callbacks,
        )
    assert isinstance(trained, Run)
    return trained


def recipe_for(run: Run) -> Standalone:
    """How the network that a search selected is trained alone: as the search trained weights, and for as long.

    What a method of one's own does not have, or has in another form, is as `polyarch train` has it. So is early
    stopping: a search often keeps its last state, since belief goes on learning, and here nothing but weights does.
    """
    search = run.config.make_method()
    given = {name: getattr(search, name, None) for name in ("weights", "augment")}
    shared: dict[str, Any] = {name: value for name, value in given.items() if isinstance(value, Sgd | Augment)}
    epochs = sum(stage.epochs for stage in search.stages(run.config.make_space()))
    alone = Standalone(architecture=str(run.architecture), epochs=epochs, batch_size=search.batch_size)
    return replace(alone, **shared)
