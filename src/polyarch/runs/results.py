"""What a finished run is worth: the numbers that `search --json` and `show --json` print."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn

from polyarch.architecture import Architecture
from polyarch.data.likelihood import Classification, Gaussian
from polyarch.data.task import Split, Task
from polyarch.distributions.distances import kl
from polyarch.distributions.evidence import posterior, ruled_out
from polyarch.distributions.selection import HELD_OUT_RULES
from polyarch.files import read_json, write_json
from polyarch.runs.run import NOISE, Run
from polyarch.settings import plain
from polyarch.spaces.cost import forward_seconds
from polyarch.training.evaluation import MOST
from polyarch.uncertainty.calibration import regression_summary, summary
from polyarch.uncertainty.classes import Confusion
from polyarch.uncertainty.coverage import risk_coverage_of
from polyarch.uncertainty.ensemble import BATCH, Ensemble, Said, asked, predictive, said_by
from polyarch.uncertainty.gaussians import Gaussians, fitted
from polyarch.uncertainty.mixtures import Mixtures
from polyarch.uncertainty.predictive import Predictive
from polyarch.uncertainty.temperature import fit_temperature

T = TypeVar("T")


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """What the classifiers of a run say about inputs, over which each of them has passed once."""

    selected: Predictive
    """The network of one architecture, as a mixture of one."""
    mixtures: dict[str, Predictive]
    """`ensemble` and, where the space is nested, `unpruned`; nothing where there is one network alone."""
    members: int
    """How many the mixture has."""

    @property
    def mixture(self) -> Predictive:
        """The mixture; where there is one network alone, that."""
        return self.mixtures.get("ensemble", self.selected)

    def metrics(self, target: Tensor, temperature: float | None = None) -> dict[str, dict[str, float]]:
        """What each is worth where the true classes are `target`, [n] int64; of mixtures, mean uncertainty too.

        With a temperature, also what the mixture is worth after it: `tempered`.
        """
        mixtures = {name: metrics_of(said, target) | _mean_uncertainty(said) for name, said in self.mixtures.items()}
        found = {"selected": metrics_of(self.selected, target)} | mixtures
        if temperature is not None:
            found["tempered"] = metrics_of(self.mixture.tempered(temperature), target)
        return found

    def confusions(self, target: Tensor) -> dict[str, Confusion]:
        """Which classes are taken for which, by the network (`selected`) and, where there is one, the `ensemble`."""
        named = {"selected": self.selected} | {n: said for n, said in self.mixtures.items() if n == "ensemble"}
        return {name: Confusion.of(said.log_probs, target) for name, said in named.items()}


@final
@dataclass(frozen=True, eq=False)
class Networks:
    """The network of an architecture and the mixtures of a run, made once for all that they are asked."""

    run: Run
    selected: nn.Module
    mixtures: dict[str, Ensemble]
    """`ensemble` and, where the space is nested, `unpruned`; nothing where there is one network alone."""

    @classmethod
    def of(cls, run: Run, architecture: Architecture, ensemble: Ensemble | None = None) -> Networks:
        """Those of an architecture; with `ensemble` in the place of `run.ensemble(architecture)`, where that is given.

        Nested mixtures are cut at the architecture, or whole.
        """
        mixtures = {}
        if run.space.nested or run.space.has_dropout or run.space.random().architectures > 1:
            mixtures["ensemble"] = ensemble or run.ensemble(architecture)
        if run.space.nested:
            mixtures["unpruned"] = run.ensemble(largest(run))
        return cls(run, run.model(architecture), mixtures)

    def ask(self, x: Tensor) -> Answers:
        """Lets them classify raw inputs [n, ...]."""
        device = self.run.device
        with torch.no_grad():
            output = _over(self.selected.to(device), x, device)
        alone = Predictive.from_members(output.log_softmax(-1).double().unsqueeze(0), torch.ones(1))
        mixtures = {name: predictive(mixture, x, device) for name, mixture in self.mixtures.items()}
        members = int((self.mixtures["ensemble"].weights > 0).sum()) if "ensemble" in self.mixtures else 1
        return Answers(alone, mixtures, members)

    def evaluate(self, split: Split, name: str = "", temperature: float | None = None) -> dict[str, dict[str, float]]:
        """What each is worth on a split; under a `name`, the run remembers what they say of it (`answers_of`).

        Classifiers also after a temperature, where one is given.
        """
        if isinstance(self.run.config.likelihood(), Classification):
            answers = self.ask(split.x)
            if name:
                self.run.answers[name] = answers
            return answers.metrics(split.y, temperature)
        said = self.predict(split.x)
        mixtures = {name: metrics_of(said[name], split.y) | _mean_uncertainty(said[name]) for name in self.mixtures}
        return {"selected": metrics_of(said["selected"], split.y)} | mixtures

    def predict(self, x: Tensor) -> dict[str, Said]:
        """What each says of raw inputs [n, ...]: `selected`, and the mixtures by name."""
        device, likelihood = self.run.device, self.run.likelihood("shared")
        alone = said_by(_members(self.selected.to(device), x, device), torch.ones(1), likelihood)
        return {"selected": alone} | {name: asked(own, x, device) for name, own in self.mixtures.items()}

    def fit_noise(self, split: Split) -> None:
        """Fits the scale of noise on validation data, for the network alone and for the mixture; the run keeps both."""
        device, likelihood = self.run.device, self.run.likelihood("before")
        assert isinstance(likelihood, Gaussian)
        alone = _members(self.selected.to(device), split.x, device)
        scales = {"network": fitted(alone, torch.ones(1), split.y, likelihood).scale}
        scales["mixture"] = scales["network"]
        if "ensemble" in self.mixtures:
            mixture = self.mixtures["ensemble"].to(device)
            members = _members(mixture.members, split.x, device)
            scales["mixture"] = fitted(members, mixture.weights, split.y, likelihood).scale
        write_json(self.run.folder / NOISE, scales)


def answers_of(run: Run, name: str, split: Split) -> Answers:
    """What the selected network and the mixtures of a run say of a split: as it remembers, or asked anew."""
    found = run.answers.get(name)
    if found is None or len(found.selected.log_probs) != len(split):
        found = run.answers[name] = Networks.of(run, run.architecture).ask(split.x)
    return found


def predictive_under(
    attack: Callable[..., Tensor], ensemble: Ensemble, split: Split, device: torch.device
) -> Predictive:
    """What a mixture of classifiers says about a split after an attack on its averaged prediction.

    Args:
        attack: `(log_probs_of, x, y)` to attacked inputs, such as `pgd` with its settings.
        ensemble: the mixture.
        split: what is attacked.
        device: where to compute.
    """
    ensemble = ensemble.to(device)
    return predictive(ensemble, attack(ensemble.output, split.x.to(device), split.y.to(device)), device)


def metrics_of(said: Said, target: Tensor) -> dict[str, float]:
    """What is measured: of classes what `summary` has, and `aurc`, the area under risk against coverage."""
    if isinstance(said, Gaussians):
        return regression_summary(said, target)
    if isinstance(said, Mixtures):
        return said.metrics(target)
    return summary(said.log_probs, target) | {"aurc": risk_coverage_of(said.log_probs, target).area}


def _mean_uncertainty(said: Said) -> dict[str, float]:
    """Of a mixture, where its likelihood tells any."""
    names = ("entropy", "expected_entropy", "mutual_information")
    found = {name: getattr(said, name, None) for name in names}
    return {name: values.mean().item() for name, values in found.items() if values is not None}


def _over(model: Callable[[Tensor], Tensor], x: Tensor, device: torch.device) -> Tensor:
    """A model's output for all inputs, batch by batch."""
    return torch.cat([model(part.to(device)).cpu() for part in x.split(BATCH)])


@torch.no_grad()
def _members(members: Callable[[Tensor], Tensor], x: Tensor, device: torch.device) -> Tensor:
    """Outputs of members, or of one network as the only member, for all inputs: [members, n, outputs]."""
    outputs = torch.cat([members(part.to(device)).cpu() for part in x.split(BATCH)], -2)
    return outputs if outputs.dim() == 3 else outputs.unsqueeze(0)


def largest(run: Run) -> Architecture:
    """Of a nested space, the architecture that contains all others: the deepest network of the depth space."""
    return run.space.architecture([len(d) - 1 for d in run.space.decisions])


def forward_times(run: Run, architecture: Architecture, x: Tensor) -> dict[str, dict[str, float]]:
    """Seconds of a forward pass over raw inputs `x` [n, ...] and, where nested, the share of them that pruning saves.

    The network of `architecture` saves what it is faster than the largest network, and the mixture cut there what it is
    faster than the whole mixture. A mixture evaluates the output block for every member as well, so each saving
    belongs to its own predictor's accuracy.
    """
    timed: dict[str, Callable[[Tensor], Tensor]] = {"selected": run.model(architecture).to(run.device)}
    if run.space.nested:
        whole = largest(run)
        timed["largest"] = run.model(whole).to(run.device)
        timed["ensemble"] = run.ensemble(architecture).to(run.device).output
        timed["unpruned"] = run.ensemble(whole).to(run.device).output
    seconds = forward_seconds(timed, x.to(run.device))
    if not run.space.nested:
        return {"forward_seconds": seconds}
    pairs = {"selected": "largest", "ensemble": "unpruned"}
    saving = {name: 1 - seconds[name] / seconds[full] for name, full in pairs.items()}
    return {"forward_seconds": seconds, "forward_saving": saving}


def _evidence(run: Run) -> dict[str, Any]:
    """Where belief over a nested decision stands, beside what data says with the kept weights."""
    known, belief, prior = run.evidence, run.distribution, run.config.make_prior(run.space)
    assert known is not None
    [decision], [prior_probs] = run.space.decisions, prior.probs().values()
    out = ruled_out(belief)
    exact = {split: posterior(fit, prior) for split, fit in known.by_split().items()}
    rules = HELD_OUT_RULES if known.held_out.shape[-1] else ()
    return {
        "options": len(decision),
        "ruled_out": int(out.sum()),
        "ruled_out_prior_mass": prior_probs[out].sum().item(),
        "lag": {split: belief.kl(own).item() for split, own in exact.items()},
        "posterior_mode": {split: decision.options[int(own.mode())] for split, own in exact.items()},
        "sufficient": {rule: decision.options[run.selected(rule).choices[0]] for rule in rules},
    }


def _belief(run: Run) -> dict[str, Any]:
    """What is believed, what that means, and, where it is learnt, how far it moved from the prior."""
    probs = run.distribution.probs()
    found = {
        "meaning": run.meaning.text,
        "probs": {name: p.tolist() for name, p in probs.items()},
        "entropy": run.distribution.entropy().item(),
    }
    return found if run.meaning.kind == "fixed" else found | {"kl": kl(probs, run.prior).item()}


def results(run: Run, task: Task, tell: Callable[[str], None]) -> dict[str, Any]:
    """Everything there is to say in numbers about a finished run; test data is looked at here for the first time.

    Args:
        run: whose folder has everything but its result.
        task: its data.
        tell: is told what is being done.
    """
    metrics: dict[str, dict[str, float]] = {}
    tell("preparing networks")
    networks = Networks.of(run, run.architecture)
    run.keep_statistics()
    if run.config.likelihood().fits and task.select is not None:
        networks.fit_noise(task.select)
        networks = Networks.of(run, run.architecture)
    tell("evaluating networks")
    examples = {}
    per_class: dict[str, list[dict[str, Any]]] = {}
    temperature = None
    for name, split in (("select", task.select), ("test", task.test)):
        if split is not None:
            looked_at = split.some(MOST) if name == "select" else split
            evaluated = networks.evaluate(looked_at, name, temperature)
            if isinstance(task.likelihood, Classification):
                confusions = run.answers[name].confusions(looked_at.y)
                by_class = {key: confusion.by_class(task.classes) for key, confusion in confusions.items()}
                per_class |= _named(name, by_class)
                if name == "select":
                    counts = task.likelihood.counted(torch.ones(len(looked_at)), looked_at.y)
                    temperature = fit_temperature(run.answers[name].mixture.log_probs, looked_at.y, counts)
            metrics |= _named(name, evaluated)
            examples[name] = len(looked_at)
    shown = {"selected": run.architecture} | ({"largest": largest(run)} if run.space.nested else {})
    history = run.history()
    chosen = zip(run.space.decisions, run.architecture.choices, strict=True)
    return {
        "run": str(run.folder),
        "space": run.config.space_name,
        "method": run.config.method["name"],
        "data": run.config.data["name"],
        "seed": run.seed,
        "architecture": str(run.architecture),
        "selected": {decision.name: decision.options[option] for decision, option in chosen},
        "distribution": _belief(run),
        **({"evidence": _evidence(run)} if run.evidence else {}),
        "temperature": temperature,
        "metrics": metrics,
        **({"per_class": per_class} if per_class else {}),
        "evaluated": examples,
        **({"noise": read_json(run.folder / NOISE)} if run.config.likelihood().fits else {}),
        "cost": {name: plain(run.space.cost(architecture, task.shape)) for name, architecture in shown.items()},
        **_limited(run),
        "budget": {"forward": history[-1]["forward"], "backward": history[-1]["backward"]},
        **forward_times(run, run.architecture, task.training.x[:512]),
    }


def _limited(run: Run) -> dict[str, Any]:
    """What the selected network has of everything that is limited, by the limit; and what cost was worth."""
    told: dict[str, Any] = {}
    if run.bounds is not None:
        told["limits"] = run.bounds.costs(run.architecture)
    return told | ({"price": run.config.price} if run.config.price else {})


def _named(split: str, found: Mapping[str, T]) -> dict[str, T]:
    """Under the names of a result: those of the selected network are the split's own."""
    return {split if key == "selected" else f"{split}_{key}": value for key, value in found.items()}
