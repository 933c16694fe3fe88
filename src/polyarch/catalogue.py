"""Names of what there is: one line a thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from importlib import import_module
from inspect import isabstract
from types import MappingProxyType
from typing import Any

from polyarch.errors import PolyarchError, unknown
from polyarch.settings import dotted, make


@dataclass(frozen=True)
class Entry:
    """Where a class is, in a few words what it does, and, for a preset, the settings that make it one.

    Settings of a part have dotted names: {"weights.lr": 0.1}. `settings.make` makes the class with them.
    """

    path: str
    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    repeats: int = 1
    """How many seeds `polyarch search` trains of a method where it is not told."""


_LDN = {
    "stopping.split": "train",
    "epochs": 8000,
    "stopping.patience": 500,
    "evaluation.every": 10,
}  # appendix B; 8000 from the released code
_LDN_IMAGES = {
    "stopping.split": "select",
    "epochs": 500,
    "stopping.patience": 30,
    "weights.schedule.kind": "multistep",
    "weights.schedule.milestones": (30,),
}  # appendix B; validation data is ours
_BY_SGD = {"update": "sgd"}  # section 2: belief is moved with the weights

_ONE_SHOT = "polyarch.spaces.nasbench1shot1:NasBench1Shot1"
_S2 = ("skip_connect", "sep_conv_3x3")
_PARSEC = (
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)

OWN_MODULE = "module"
"""The space of a model of one's own, which is called by what makes it."""
SPACES = {
    "depth": Entry("polyarch.spaces.depth:ResidualDepth", "how deep a residual network should be"),
    "nasbench201": Entry("polyarch.spaces.nasbench201:NasBench201", "one operation per edge of a cell of four nodes"),
    "darts": Entry("polyarch.spaces.darts:Darts", "two cells whose nodes add two operations on earlier values"),
    "darts-parsec": Entry(
        "polyarch.spaces.darts:Darts", "darts as PARSEC has it, without the zero operation", {"operations": _PARSEC}
    ),
    "darts-20": Entry("polyarch.spaces.darts:Darts", "darts in a network of 20 cells", {"layers": 20}),
    "darts-s2": Entry(
        "polyarch.spaces.darts:Darts", "darts with two operations, skip and 3x3 separable", {"operations": _S2}
    ),
    "nasbench1shot1-1": Entry(_ONE_SHOT, "operations and parents of four nodes, 14,580 cells", {"sub_space": 1}),
    "nasbench1shot1-2": Entry(_ONE_SHOT, "four nodes with other numbers of parents, 29,160 cells", {"sub_space": 2}),
    "nasbench1shot1-3": Entry(_ONE_SHOT, "operations and parents of five nodes, 1,312,200 cells", {"sub_space": 3}),
    "wiring": Entry("polyarch.spaces.wiring:Wiring", "which earlier modules each module of a network reads"),
    "wiring-own": Entry(
        "polyarch.spaces.wiring:Wiring",
        "five wirings with weights of their own (NSA-id)",
        {"listed": 5, "own_aggregation": True, "own_affine": True},
    ),
    "fourier": Entry("polyarch.spaces.fourier:Fourier", "how many terms a Fourier series should have; regression"),
    OWN_MODULE: Entry("polyarch.spaces.module:ModuleSpace", "choices in a model of your own: --space my_model:Network"),
}
METHODS = {
    "variational-depth": Entry(
        "polyarch.methods.variational_depth:VariationalDepth",
        "weights and a distribution over depth, together",
    ),
    "variational-depth-spirals": Entry(
        "polyarch.methods.variational_depth:VariationalDepth",
        "variational-depth as the paper trains it on spirals",
        _LDN | _BY_SGD,
    ),
    "variational-depth-images": Entry(
        "polyarch.methods.variational_depth:VariationalDepth",
        "variational-depth as the paper trains it on images",
        _LDN_IMAGES | _BY_SGD,
    ),
    "fixed-depth": Entry("polyarch.methods.fixed_depth:FixedDepth", "baseline: one network of a given depth"),
    "fixed-depth-spirals": Entry(
        "polyarch.methods.fixed_depth:FixedDepth", "fixed-depth as the paper trains it on spirals", _LDN
    ),
    "fixed-depth-images": Entry(
        "polyarch.methods.fixed_depth:FixedDepth", "fixed-depth as the paper trains it on images", _LDN_IMAGES
    ),
}
_SOTL = {"objective.loss": "sotl", "weights.grad_clip": 0.0}  # the thesis's code does not clip there
_SHORT = {"objective.steps": 10, "batch_size": 32}  # section 4.3.1
_PDARTS = {
    "plan.stages": ((5, 8, 0.1), (11, 5, 0.4), (17, 3, 0.7)),
    "warmup_epochs": 10,
    "epochs": 25,
    "batch_size": 96,
    "weights.schedule.last_lr": 0.0,
    "arch.lr": 6e-4,
}  # the authors' code, as documented
METHODS |= {
    "darts": Entry("polyarch.methods.darts:Darts", "one mixture of operations per edge, by gradient"),
    "gdas": Entry("polyarch.methods.gdas:Gdas", "one drawn operation per edge, by straight-through gradients"),
    "drnas": Entry("polyarch.methods.drnas:Drnas", "one Dirichlet over operations per edge, by pathwise gradients"),
    "balenas": Entry(
        "polyarch.methods.balenas:Balenas", "a Gaussian over architecture parameters, by natural gradients"
    ),
    "sotl-darts": Entry("polyarch.methods.darts:Darts", "DARTS guided by the sum of training losses", _SOTL),
    "sovl-darts": Entry(
        "polyarch.methods.darts:Darts",
        "DARTS guided by the sum of validation losses",
        {**_SOTL, "objective.loss": "sovl"},
    ),
    "sotl-darts-150": Entry(
        "polyarch.methods.darts:Darts", "sotl-darts for 150 epochs (Table 4.6)", {**_SOTL, "epochs": 150}
    ),
    "sotl-darts-10": Entry(
        "polyarch.methods.darts:Darts",
        "sotl-darts with roll-outs of T = 10 batches of 32 (Table 4.7)",
        {**_SOTL, **_SHORT},
    ),
    "sotl-darts-exact": Entry(
        "polyarch.methods.darts:Darts",
        "sotl-darts by the exact gradient through T = 7 steps",
        {**_SOTL, "objective.order": "exact", "objective.steps": 7},
    ),
    "pdarts": Entry("polyarch.methods.darts:Darts", "DARTS in stages: deeper networks, fewer operations", _PDARTS),
    "sotl-pdarts": Entry(
        "polyarch.methods.darts:Darts", "P-DARTS guided by the sum of training losses", {**_PDARTS, **_SOTL}
    ),
    "balenas-pdarts": Entry(
        "polyarch.methods.balenas:Balenas", "BaLeNAS in the stages of P-DARTS", {**_PDARTS, "arch.lr": 3e-4}
    ),
    "sotl-drnas": Entry("polyarch.methods.drnas:Drnas", "DrNAS guided by the sum of training losses", _SOTL),
    "parsec": Entry("polyarch.methods.parsec:Parsec", "a distribution over architectures by importance weights"),
    "parsec-8": Entry("polyarch.methods.parsec:Parsec", "parsec with K = 8 samples per step", {"samples": 8}),
    "parsec-best-of-2": Entry(
        "polyarch.methods.parsec:Parsec", "parsec with K = 16, the better of two seeds", {"samples": 16}, 2
    ),
}
_STOCHASTIC = "polyarch.methods.stochastic:StochasticArchitectures"
METHODS |= {
    "stochastic-architectures": Entry(_STOCHASTIC, "shared weights, every example under its own architecture (NSA-i)"),
    "stochastic-architectures-batch": Entry(
        _STOCHASTIC, "shared weights, one architecture per batch (NSA)", {"per": "batch"}
    ),
}
METHODS |= {
    "semi-supervised": Entry(
        "polyarch.methods.semi_supervised:SemiSupervised",
        "few labels (--set labels=N), and two architectures that agree on the rest",
    ),
}
_ONE_SHOT_METHOD = "polyarch.methods.one_shot:OneShot"
_METAPROX = {"inner_steps": 4, "proximal": 10.0}  # section 4.2
METHODS |= {
    "single-path": Entry(_ONE_SHOT_METHOD, "shared weights, one drawn architecture per step (SPOS)"),
    "fairnas": Entry(_ONE_SHOT_METHOD, "shared weights, every option once per step", {"sampling": "fair"}),
    "multipath": Entry(_ONE_SHOT_METHOD, "shared weights, the mean of four architectures per step", {"paths": 4}),
    "reptile": Entry(_ONE_SHOT_METHOD, "shared weights, four steps of one architecture per batch", {"inner_steps": 4}),
    "metaprox": Entry(_ONE_SHOT_METHOD, "reptile, with weights held near where they began", _METAPROX),
    "multipath-metaprox": Entry(_ONE_SHOT_METHOD, "metaprox with four architectures", {**_METAPROX, "paths": 4}),
}
_NASBENCH201 = {
    "stopping.split": "never",
    "epochs": 200,
    "batch_size": 256,
    "weights.lr": 0.1,
    "weights.nesterov": True,
    "weights.weight_decay": 5e-4,
    "augment.crop": 4,
    "augment.flip": True,
}  # the benchmark's recipe
_DARTS = {
    "stopping.split": "never",
    "epochs": 600,
    "batch_size": 96,
    "weights.lr": 0.025,
    "weights.weight_decay": 3e-4,
    "weights.grad_clip": 5.0,
    "augment.crop": 4,
    "augment.flip": True,
    "augment.cutout": 16,
    "auxiliary": 0.4,
    "drop_path": 0.2,
}  # the evaluation protocol of the DARTS code
_STANDALONE = "polyarch.methods.standalone:Standalone"
METHODS |= {
    "standalone": Entry(_STANDALONE, "one network, trained alone (`polyarch train`)"),
    "standalone-darts": Entry(_STANDALONE, "standalone by the evaluation protocol of DARTS", _DARTS),
    "standalone-nasbench201": Entry(_STANDALONE, "standalone as NAS-Bench-201 trained its cells", _NASBENCH201),
    "standalone-nasbench201-12": Entry(
        _STANDALONE, "standalone by the short recipe of NAS-Bench-201, 12 epochs", {**_NASBENCH201, "epochs": 12}
    ),
}
SCORES = {
    "parameters": Entry("polyarch.scores.parameters:Parameters", "how many parameters a candidate has"),
    "macs": Entry("polyarch.scores.macs:Macs", "how many multiply-accumulates it takes"),
    "synflow": Entry("polyarch.scores.synflow:SynFlow", "what flows through its first weights; needs no data"),
    "snip": Entry("polyarch.scores.snip:Snip", "how strongly the loss depends on its first weights"),
    "grasp": Entry("polyarch.scores.grasp:Grasp", "what its first weights do for the flow of gradients"),
    "grad-norm": Entry("polyarch.scores.grad_norm:GradNorm", "how steep the loss is at its first weights"),
    "jacob-cov": Entry("polyarch.scores.jacob_cov:JacobCov", "how well its first weights tell inputs apart"),
    "sotl": Entry("polyarch.scores.sotl:Sotl", "sum of training losses, fine-tuned from a run's weights"),
    "train-loss": Entry("polyarch.scores.sotl:TrainLoss", "the last training loss, fine-tuned from a run's weights"),
    "sog": Entry("polyarch.scores.sog:Sog", "size of the sum of gradients, fine-tuned from a run's weights"),
    "sogn": Entry("polyarch.scores.sog:Sogn", "sum of the sizes of gradients, fine-tuned from a run's weights"),
    "valid-accuracy": Entry("polyarch.scores.validation:ValidAccuracy", "validation accuracy with a run's weights"),
    "valid-loss": Entry("polyarch.scores.validation:ValidLoss", "validation loss with a run's weights"),
    "valid-accuracy-minibatch": Entry(
        "polyarch.scores.validation:ValidAccuracy", "validation accuracy on 64 examples", {"examples": 64}
    ),
    "valid-loss-minibatch": Entry(
        "polyarch.scores.validation:ValidLoss", "validation loss on 64 examples", {"examples": 64}
    ),
    "valid-accuracy-shared": Entry(
        "polyarch.scores.validation:ValidAccuracy",
        "validation accuracy with the supernet's batch-norm statistics",
        {"recalibrate": False},
    ),
    "table": Entry("polyarch.scores.table:Tabulated", "what a benchmark's table says"),
}
BASELINES = {
    "random-search": Entry("polyarch.blackbox.random_search:RandomSearch", "the best of random architectures"),
    "regularised-evolution": Entry(
        "polyarch.blackbox.evolution:RegularisedEvolution", "children of the best of a few; the oldest dies"
    ),
    "local-search": Entry("polyarch.blackbox.local_search:LocalSearch", "uphill among neighbours; again when stuck"),
}
LIKELIHOODS = {
    "multi-label": Entry(
        "polyarch.data.multi_label:MultiLabel", "labels of which any number may hold: y is [n, labels]"
    ),
    "counts": Entry("polyarch.data.counts:Counts", "whole numbers from 0 up, by a Poisson distribution"),
}
KINDS = {"space": SPACES, "method": METHODS, "score": SCORES, "baseline": BASELINES, "likelihood": LIKELIHOODS}


def find(kind: str, name: str) -> tuple[type[Any], dict[str, Any]]:
    """The class and preset settings behind a name, or behind `package.module:name` for one of your own.

    A space's name may also lead to what makes a module with choices in it, and say its arguments.
    """
    entries = KINDS[kind]
    if name in entries:
        return load(entries[name].path, kind), dict(entries[name].settings)
    path, call, _ = name.partition("(")
    if ":" not in path:
        raise unknown(kind, path, entries)
    found = load(path, kind)
    if kind == "space" and _makes_a_module(found):
        return find("space", OWN_MODULE)[0], {"factory": name}
    if not isinstance(found, type):
        raise PolyarchError(f"{name!r} is not a class; write {kind}s as package.module:ClassName")
    if call:
        raise PolyarchError(f"{name!r}: arguments are for modules of one's own; set those of a {kind} by --set")
    return found, {}


def find_class(kind: str, name: str, wanted: type[Any]) -> tuple[type[Any], dict[str, Any]]:
    """What `find` gives, which is held to be what was `wanted`; what a class of one's own lacks is said in words."""
    found, preset = find(kind, name)
    if not issubclass(found, wanted) or not is_dataclass(found) or isabstract(found):
        raise PolyarchError(
            f"{name!r} is no {kind}: a {kind} is a dataclass that inherits from {wanted.__module__}.{wanted.__name__} "
            "and has all its methods"
        )
    return found, preset


def named(kind: str, name: str, wanted: type[Any], settings: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """The thing of a name, with these settings beside or instead of those that the name stands for."""
    cls, preset = find_class(kind, name, wanted)
    return make(cls, {**dotted(cls, preset), **dotted(cls, settings)})


def _makes_a_module(found: Any) -> bool:
    """Whether a space's name leads to a function, or to a class of networks: a model with choices in it."""
    from torch import nn

    return issubclass(found, nn.Module) if isinstance(found, type) else callable(found)


def name_of(kind: str, cls: type[Any], settings: Mapping[str, Any] = MappingProxyType({})) -> str:
    """What `find` calls a class with these settings: the preset that says the most of them, or its path."""
    path = f"{cls.__module__}:{cls.__qualname__}"
    # Presets of several seeds are named alike in everything but how often they run.
    own = {
        name: dotted(cls, entry.settings)
        for name, entry in KINDS[kind].items()
        if entry.path == path and entry.repeats == 1
    }
    told = dotted(cls, settings)
    fitting = [name for name, preset in own.items() if preset.items() <= told.items()]
    return max(fitting, key=lambda name: len(own[name]), default=path)


def short(name: str) -> str:
    """What a title has room for of a name: one's own without the module that it is in."""
    return name.partition(":")[2] or name


def load(path: str, kind: str) -> Any:
    """What `package.module:name` names."""
    module_name, _, name = path.partition(":")
    try:
        module = import_module(module_name)
    except (ImportError, ValueError) as error:
        raise PolyarchError(
            f"cannot import {kind} {path!r}: {error}; is its package installed or on PYTHONPATH?"
        ) from None
    except Exception as error:  # whatever a module of the user's raises when it is imported
        raise PolyarchError(
            f"cannot import {kind} {path!r}: {type(error).__name__}: {error}; mend its module"
        ) from None
    if not hasattr(module, name):
        raise PolyarchError(f"module {module_name!r} has no {name!r}; write {kind}s as package.module:ClassName")
    return getattr(module, name)
