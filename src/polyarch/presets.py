"""Published searches by name: what each searches, how and on what, every value with its source.

A name says whose search it is and on which data: `balenas-nasbench201-cifar10`. `polyarch search --preset NAME` runs
one; what is said beside it, on the command line, has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyarch.errors import unknown

Sourced = dict[str, tuple[Any, str]]
"""Settings by dotted name with their group before it, such as `method.weights.lr`: a value, and where it stands."""


@dataclass(frozen=True)
class Preset:
    """A published search."""

    paper: str
    about: str
    space: str
    method: str
    data: str
    settings: Sourced = field(default_factory=dict)
    repeats: int = 1
    """How many seeds the paper searched with."""
    then: str = ""
    """How the paper goes on with what was found, as a command."""

    def group(self, name: str) -> dict[str, Any]:
        """The settings of one group: `data`, `space` or `method`."""
        prefix = f"{name}."
        found = self.settings.items()
        return {key.removeprefix(prefix): value for key, (value, _) in found if key.startswith(prefix)}


def find(name: str) -> Preset:
    """The published search of a name."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def _by(source: str, **groups: Mapping[str, Any]) -> Sourced:
    """Settings of groups that stand in one source."""
    return {f"{group}.{name}": (value, source) for group, own in groups.items() for name, value in own.items()}


# ---------------------------------------------------------------------------------------------------------------------
# DARTS, and how NAS-Bench-201 searches with it and its relatives.

_CODE = "DARTS's code"
_HALVES = {"select": 0.5}
_IMAGES = {"augment.crop": 4, "augment.flip": True}
_WEIGHTS = {
    "batch_size": 64,
    "weights.lr": 0.025,
    "weights.schedule.kind": "cosine",
    "weights.schedule.last_lr": 0.001,
    "weights.momentum": 0.9,
    "weights.weight_decay": 3e-4,
    "weights.grad_clip": 5.0,
}
_ARCH = {"arch.lr": 3e-4, "arch.betas": (0.5, 0.999), "arch.weight_decay": 1e-3}
_DARTS = _by(
    _CODE,
    data=_HALVES,
    space={"channels": 16, "layers": 8},
    method={"epochs": 50, **_WEIGHTS, **_ARCH, **_IMAGES, "objective.order": "first"},
)
_BENCH = "NAS-Bench-201's code: algos/DARTS.config and the search script"
_NB201_DATA = _by("NAS-Bench-201's code: cifar-split.txt", data=_HALVES)
_NB201_SPACE = _by("NAS-Bench-201's code", space={"channels": 16, "cells": 5})
_NB201_WEIGHTS = {**_WEIGHTS, "weights.weight_decay": 5e-4, "weights.nesterov": True}
_NB201 = {
    **_NB201_DATA,
    **_NB201_SPACE,
    **_by(_BENCH, method={"epochs": 50, **_NB201_WEIGHTS, **_ARCH, **_IMAGES, "objective.order": "first"}),
}
_LIU, _DONG = "Liu et al. 2019", "Dong and Yang 2020"
PRESETS = {
    "darts-cifar10": Preset(_LIU, "first-order DARTS in its own space", "darts", "darts", "cifar10", _DARTS),
    "darts-second-cifar10": Preset(
        _LIU,
        "second-order DARTS, with the published central difference",
        "darts",
        "darts",
        "cifar10",
        {**_DARTS, **_by(_CODE, method={"objective.order": "second"})},
    ),
    "darts-nasbench201-cifar10": Preset(
        _DONG, "first-order DARTS as NAS-Bench-201 runs it", "nasbench201", "darts", "cifar10", _NB201
    ),
    "darts-second-nasbench201-cifar10": Preset(
        _DONG,
        "second-order DARTS as NAS-Bench-201 runs it",
        "nasbench201",
        "darts",
        "cifar10",
        {**_NB201, **_by(_BENCH, method={"objective.order": "second"})},
    ),
    "gdas-nasbench201-cifar10": Preset(
        _DONG,
        "GDAS as NAS-Bench-201 runs it",
        "nasbench201",
        "gdas",
        "cifar10",
        {
            **_NB201,
            **_by(
                "NAS-Bench-201's code: algos/GDAS.config and the search script",
                method={"epochs": 250, "temperature": 10.0, "last_temperature": 0.1},
            ),
        },
    ),
    "drnas-nasbench201-cifar10": Preset(
        "Chen et al. 2021",
        "DrNAS as its authors run it on NAS-Bench-201",
        "nasbench201",
        "drnas",
        "cifar10",
        {**_NB201, **_by("DrNAS's code", method={"epochs": 100})},
    ),
}

# ---------------------------------------------------------------------------------------------------------------------
# PARSEC.

_CASALE = "Casale et al. 2019"
_AS_DARTS = "section 4.1: as Liu et al., whose code has it"
PRESETS |= {
    "parsec-cifar10": Preset(
        _CASALE,
        "PARSEC on small networks, K = 16, the better of two seeds",
        "darts-parsec",
        "parsec",
        "cifar10",
        {
            **_by("section 4.1", data=_HALVES),
            **_by("section 4.1", method={"samples": 16, "epochs": 100, "arch.lr": 0.02, "arch.betas": (0.5, 0.999)}),
            **_by(_AS_DARTS, space={"channels": 16, "layers": 8}, method={**_WEIGHTS, **_IMAGES}),
        },
        repeats=2,
        then="polyarch search --preset parsec-tuning-cifar10 --belief-from RUN --out TUNED",
    ),
    "parsec-tuning-cifar10": Preset(
        _CASALE,
        "PARSEC's belief tuned on networks of full size; give what it starts from with --belief-from RUN",
        "darts-parsec",
        "parsec",
        "cifar10",
        {
            **_by("section 4.1", data=_HALVES, method={"samples": 16, "arch.betas": (0.5, 0.999)}),
            **_by(_AS_DARTS, method=_WEIGHTS),
            **_by("section 4.2", method={"epochs": 10, "arch.lr": 0.01, "batch_size": 96}),
            **_by(
                "section 4.2: the network that is trained in the end; sizes of Liu et al.",
                space={"network": "evaluation", "layers": 20, "channels": 36},
                method={"auxiliary": 0.4, **_IMAGES, "augment.cutout": 16, "weights.schedule.last_lr": 0.0},
            ),
        },
        then="polyarch train RUN --recipe darts --out TRAINED",
    ),
}

# ---------------------------------------------------------------------------------------------------------------------
# BaLeNAS.

_ZHANG = "Zhang et al. 2022"
_FOUND_CODE = "code of the first author that seems to be the paper's"
_NATURAL = {
    "arch.update": "vadam",
    "arch.lr": 3e-4,
    "arch.beta1": 0.5,
    "arch.beta2": 0.999,
    "samples": 1,
    "prior_precision": 1.0,
    "initial_precision": 1.0,
}
_GAUSSIAN = {
    **_by(_FOUND_CODE, method=_NATURAL),
    **_by("the same, N being the size of the half that belief learns on", method={"data_size": 0}),
}


def _balenas(like: Sourced, source: str, **method: Any) -> Sourced:
    """BaLeNAS with the settings of a DARTS search but for its own of belief."""
    own = {name: value for name, value in like.items() if not name.startswith("method.arch.")}
    return {**own, **_GAUSSIAN, **_by(source, method=method)}


_SYNFLOW = "polyarch select RUN --by synflow --sample 100"
PRESETS |= {
    "balenas-cifar10": Preset(
        _ZHANG,
        "second-order BaLeNAS in the space of DARTS",
        "darts",
        "balenas",
        "cifar10",
        _balenas(_DARTS, "section 4.2 and Table 3", **{"objective.order": "second"}),
        then=_SYNFLOW,
    ),
    "balenas-nasbench201-cifar10": Preset(
        _ZHANG,
        "first-order BaLeNAS on NAS-Bench-201, four seeds",
        "nasbench201",
        "balenas",
        "cifar10",
        _balenas(_NB201, "Table 1", **{"objective.order": "first"}),
        repeats=4,
        then=_SYNFLOW,
    ),
    "balenas-second-nasbench201-cifar10": Preset(
        _ZHANG,
        "second-order BaLeNAS on NAS-Bench-201, four seeds",
        "nasbench201",
        "balenas",
        "cifar10",
        _balenas(_NB201, "Table 1", **{"objective.order": "second"}),
        repeats=4,
        then=_SYNFLOW,
    ),
    "balenas-nasbench1shot1-cifar10": Preset(
        _ZHANG,
        "BaLeNAS in the third space of NAS-Bench-1Shot1",
        "nasbench1shot1-3",
        "balenas",
        "cifar10",
        {
            **_balenas({name: v for name, v in _DARTS.items() if not name.startswith("space.")}, "Fig. 1"),
            **_by("its run line and NAS-Bench-1Shot1's code", method={"epochs": 50, "batch_size": 96}),
            **_by("NAS-Bench-1Shot1's code", space={"channels": 16, "cells": 9}),
        },
    ),
}

# ---------------------------------------------------------------------------------------------------------------------
# The sum of training losses: DARTS and DrNAS guided by it, and supernets whose candidates it ranks.

_THESIS = "SoTL thesis, Oxford 2021"
_B1, _ADOPTED = "Table B.1", "NAS-Bench-201's code, whose defaults the thesis adopts"
_SOTL = {
    **_by("section 4.3", data=_HALVES, method={"objective.loss": "sotl", "objective.steps": 100}),
    **_by("the thesis's code: SoTL is not clipped", method={"weights.grad_clip": 0.0}),
    **_by("the thesis's code: momentum is not put back", method={"objective.restore": "weights"}),
}
_FINE_TUNED = "polyarch rank RUN --by sotl,train-loss,valid-accuracy --sample 200 --set lr={lr} --table TABLE"


def _table_b1(space: str, epochs: int) -> Sourced:
    """What Table B.1 has for a space, beside what is the same for all."""
    decay = 5e-4 if space == "nasbench201" else 3e-4
    rates = {name: value for name, value in _WEIGHTS.items() if name != "weights.grad_clip"}
    found = _by(_B1, method={**rates, "epochs": epochs, "weights.weight_decay": decay})
    found |= _by("section 4.3 and the benchmark's code", data=_HALVES, method=_IMAGES)
    if space == "nasbench201":
        return {**found, **_NB201_SPACE, **_by(_ADOPTED, method={"weights.nesterov": True, "weights.grad_clip": 5.0})}
    sizes = {"channels": 16, "layers": 8} if space == "darts" else {"channels": 16, "cells": 9}
    return {**found, **_by("the benchmark's code", space=sizes, method={"weights.grad_clip": 5.0})}


def _sotl(method: str, space: str, name: str, **changed: Any) -> Preset:
    """DARTS or a relative, guided by SoTL, in a space; three seeds."""
    settings = {**_table_b1(space, 50), **_by(_B1, method=_ARCH), **_SOTL, **_by("section 4.3.1", method=changed)}
    return Preset(_THESIS, f"{name} guided by the sum of training losses, three seeds", space, method, "cifar10",
                  settings, repeats=3)  # fmt: skip


def _supernet(method: str, space: str) -> Preset:
    """A one-shot supernet in a space, and how its candidates are fine-tuned; three seeds."""
    epochs = 50 if space.startswith("nasbench1shot1") else 100
    lr = 0.01 if method == "single-path" else 0.001  # section 4.2
    return Preset(_THESIS, f"{method} supernet, whose candidates are fine-tuned at the rate {lr}", space, method,
                  "cifar10", _table_b1(space, epochs), repeats=3, then=_FINE_TUNED.format(lr=lr))  # fmt: skip


_SHORT = {"objective.steps": 10, "batch_size": 32}
PRESETS |= {
    "sotl-darts-cifar10": _sotl("sotl-darts", "darts", "DARTS"),
    "sotl-darts-nasbench201-cifar10": _sotl("sotl-darts", "nasbench201", "DARTS"),
    "sotl-drnas-cifar10": _sotl("sotl-drnas", "darts", "DrNAS"),
    "sotl-drnas-nasbench201-cifar10": _sotl("sotl-drnas", "nasbench201", "DrNAS"),
    **{
        f"sotl-darts-nasbench1shot1-{k}-cifar10": _sotl("sotl-darts-10", f"nasbench1shot1-{k}", "DARTS", **_SHORT)
        for k in (1, 2, 3)
    },
    **{
        f"{method}-{space}-cifar10": _supernet(method, space)
        for space, methods in (
            ("nasbench201", ("single-path", "fairnas", "multipath", "reptile", "metaprox")),
            ("nasbench1shot1-1", ("single-path", "multipath-metaprox")),
            ("nasbench1shot1-2", ("single-path", "multipath-metaprox")),
            ("nasbench1shot1-3", ("single-path", "multipath-metaprox")),
        )
        for method in methods
    },
    **{f"{method}-cifar10": _supernet(method, "darts") for method in ("single-path", "fairnas")},
}

# ---------------------------------------------------------------------------------------------------------------------
# Networks with stochastic architectures.

_DENG = "Deng et al. 2020"
_ALL_DATA = _by("section 4: the whole training set; the last epoch is reported", data={"select": 0.0})
_WIDE = _by("section 2, network details", space={"stages": 3, "nodes": 8, "channels": 16, "width": 10})
_NSA = {
    **_ALL_DATA,
    **_WIDE,
    **_by("section 5", space={"auxiliary": True}, method={"auxiliary": 0.1, "augment.cutout": 16}),
    **_by(
        "the released code",
        method={
            "epochs": 300,
            "batch_size": 128,
            "weights.lr": 0.1,
            "weights.momentum": 0.9,
            "weights.nesterov": True,
            "weights.weight_decay": 5e-4,
            "weights.schedule.kind": "multistep",
            "weights.schedule.milestones": (90.0, 180.0, 240.0),
            "weights.schedule.gamma": 0.2,
            **_IMAGES,
        },
    ),
}
PRESETS |= {
    "nsa-cifar10": Preset(
        _DENG,
        "NSA-id: five wirings, each with links and batch norm of its own",
        "wiring-own",
        "stochastic-architectures",
        "cifar10",
        {**_NSA, **_by("section 5", space={"listed": 5})},
        then="polyarch evaluate RUN --attack pgd --budget 1/255",
    ),
    "nsa-i-cifar10": Preset(
        _DENG,
        "NSA-i: 500 wirings that share everything",
        "wiring",
        "stochastic-architectures",
        "cifar10",
        {**_NSA, **_by("section 4.1", space={"listed": 500})},
    ),
    "nsa-semi-supervised-cifar10": Preset(
        _DENG,
        "NSA-id with 4,000 labels, and agreement on all examples",
        "wiring-own",
        "semi-supervised",
        "cifar10",
        {
            **_ALL_DATA,
            **_WIDE,
            **_by("section 5.3", data={"labels": 4000}, space={"listed": 5}, method={"consistency": 20.0}),
            **_by(
                "the released code",
                method={
                    "epochs": 100,
                    "batch_size": 128,
                    "weights.lr": 0.1,
                    "weights.momentum": 0.9,
                    "weights.nesterov": True,
                    "weights.weight_decay": 5e-4,
                    "weights.schedule.kind": "multistep",
                    "weights.schedule.milestones": (40.0, 80.0),
                    "weights.schedule.gamma": 0.2,
                    **_IMAGES,
                    "augment.cutout": 16,
                },
            ),
        },
    ),
}

# ---------------------------------------------------------------------------------------------------------------------
# Variational depth search.

_ANTORAN, _APPENDIX = "Antorán et al. 2020", "appendix B"
_LDN = {"batch_size": 512, "weights.lr": 0.1, "weights.momentum": 0.5}
PRESETS |= {
    "ldn-spirals": Preset(
        _ANTORAN,
        "depth of a network for two spirals",
        "depth",
        "variational-depth-spirals",
        "spirals",
        {
            **_by("section 3.1 and Fig. 2", space={"max_depth": 50, "width": 20}),
            **_by(_APPENDIX, method={**_LDN, "stopping.split": "train", "stopping.patience": 500}),
            **_by("the released code", method={"epochs": 8000}),
        },
        repeats=6,
    ),
    **{
        f"ldn-{data}": Preset(
            _ANTORAN,
            f"depth of a convolutional network for {data}",
            "depth",
            "variational-depth-images",
            data,
            {
                **_by("Fig. 4", space={"max_depth": 50}),
                **_by(
                    _APPENDIX,
                    method={**_LDN, "stopping.patience": 30, "weights.schedule.milestones": (30.0,)},
                ),
                **_by("the released code", method={"epochs": 500}),
                **_by("ours: the released code stops on test data", method={"stopping.split": "select"}),
            },
            repeats=4,
        )
        for data in ("mnist", "fashion-mnist", "svhn")
    },
}
