"""A finished search, read from its folder."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from polyarch import data
from polyarch.architecture import Architecture
from polyarch.core import Meaning, Method
from polyarch.data.files import FileSource, TableFile
from polyarch.data.inputs import said_once
from polyarch.data.kinds import Inputs
from polyarch.data.likelihood import Gaussian, Likelihood
from polyarch.data.own_likelihoods import text_of
from polyarch.data.preprocess import InUnits, OnSeveral, Preprocess, preprocess_from
from polyarch.data.task import Split, Task
from polyarch.distributions import selection
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.evidence import Evidence
from polyarch.distributions.priors import uniform
from polyarch.errors import PolyarchError
from polyarch.files import read_json
from polyarch.runs import guarantees
from polyarch.runs.config import Config, saying_damaged
from polyarch.runs.examples import kept_task
from polyarch.runs.in_words import run_in_words
from polyarch.runs.limits import make_bounds
from polyarch.runs.options import is_here
from polyarch.runs.predictor import Predictor
from polyarch.settings import plain
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.bounds import SpaceBounds
from polyarch.spaces.limits import Limit, limits_of
from polyarch.streams import Streams
from polyarch.training import checkpoints
from polyarch.training.calibration import calibration_batches, recalibrate, statistics_of
from polyarch.training.evaluation import MOST
from polyarch.uncertainty.conformal import class_sets, intervals
from polyarch.uncertainty.early_exit import EarlyExit, exit_curve_of
from polyarch.uncertainty.ensemble import Apart, Ensemble, Nested, Said, Within
from polyarch.uncertainty.members import Members, members_of
from polyarch.uncertainty.predictive import Predictive

if TYPE_CHECKING:
    from polyarch.runs.exporting import Exported, Format
    from polyarch.runs.results import Answers

ARCHITECTURE = "architecture.json"
WEIGHTS = "weights.safetensors"
STATISTICS = "statistics.safetensors"
EVIDENCE = "evidence.safetensors"
NOISE = "noise.json"
RESULT = "result.json"
METRICS = "metrics.jsonl"
METRICS_CSV = "metrics.csv"
PLAIN = "plain.json"
"""Of a run's folder: plain models beside it (`fit_plain_models`)."""
TRAINED = "trained"
"""Of a run's folder: the run of its selected network, trained alone."""


class Run:
    """One seed's finished search: its belief, the selected architecture, and networks with trained weights."""

    def __init__(self, folder: str | Path, task: Task | None = None, allow_changed: bool = False) -> None:
        """Opens a folder; nothing heavy is read before it is asked for.

        Args:
            folder: of the run.
            task: its data, where that is at hand; else it is loaded again when needed.
            allow_changed: whether code of one's own may have changed since: `open_run` looks, and so does whatever
                opens runs beneath this one.
        """
        self.folder = Path(folder)
        self.config = Config.read(self.folder)
        self._task = task
        self.allow_changed = allow_changed
        self.answers: dict[str, Answers] = {}
        """What was said of splits, by their names, while the run is open (`results.answers_of`)."""

    @property
    @saying_damaged
    def seed(self) -> int:
        """The seed of every random stream."""
        return self.config.seed

    @property
    def finished(self) -> bool:
        """Whether the search came to its end: the result is the last thing that it writes."""
        return (self.folder / RESULT).exists()

    @cached_property
    @saying_damaged
    def shares_weights(self) -> bool:
        """Whether the selected network had to share its weights with others that use them otherwise.

        Its numbers are then no measure of what it can do, and it should be trained alone. Not so where architectures
        contain each other, as depths do, nor where all that a space draws are meant to predict together.
        """
        return shares_weights(self.config.make_space(), self.config.make_method())

    @property
    def trained(self) -> Run | None:
        """The run of the selected network, trained alone (`train_selected`); None where it was not."""
        home = self.folder / TRAINED
        return Run(home, self._task, self.allow_changed) if (home / RESULT).exists() else None

    @property
    @saying_damaged
    def device(self) -> torch.device:
        """Where the search ran, if that is here too, else the CPU; what the run hands out is always on the CPU."""
        return torch.device(self.config.device if is_here(self.config.device) else "cpu")

    @cached_property
    @saying_damaged
    def space(self) -> Space:
        """The space of the stage that the search ended in: the last one, unless a callback stopped it before."""
        stage = read_json(self.folder / ARCHITECTURE)["stage"]
        return self.config.make_method().stages(self.config.make_space())[stage].space

    @cached_property
    @saying_damaged
    def distribution(self) -> Distribution:
        """What the search believes."""
        return self.config.make_method().distribution(self.space, self.belief).repeat(0)

    @cached_property
    @saying_damaged
    def prior(self) -> Categorical:
        """What was believed before the data was seen, of whatever `distribution` tells probabilities of."""
        return self.config.make_prior(self.space) if self.distribution.exact else uniform(self.distribution.factors)

    @cached_property
    @saying_damaged
    def meaning(self) -> Meaning:
        """What its belief means."""
        return self.config.make_method().meaning

    @property
    @saying_damaged
    def belief(self) -> dict[str, Tensor]:
        """The tensors that belief is made of, as `State.belief` has them."""
        return {n.partition("/")[2]: value for n, value in self._tensors.items() if n.startswith("belief/")}

    @cached_property
    @saying_damaged
    def architecture(self) -> Architecture:
        """The selected architecture."""
        return self.space.parse(read_json(self.folder / ARCHITECTURE)["architecture"])

    def selected(self, rule: str, bounds: SpaceBounds | None = None) -> Architecture:
        """What another rule would have selected, or the same within other bounds: `run.within(["parameters=100k"])`."""
        bounds = bounds or self.bounds
        rule = selection.rule_for(rule, self.space.nested, self.config.data["examples"])
        return self.space.architecture(selection.select(self.distribution, rule, self.evidence, bounds))

    @cached_property
    @saying_damaged
    def bounds(self) -> SpaceBounds | None:
        """What a selected network may cost, with the latencies that were measured for it; None without limits."""
        return self.config.make_bounds(self.space, read_json(self.folder / ARCHITECTURE).get("measured"))

    def within(self, limits: Sequence[str | Limit], table: str = "") -> SpaceBounds | None:
        """The bounds of the run with these limits as well; raises where no network is within them.

        Args:
            limits: such as `parameters=100k`; one takes the place of the run's own on the same cost.
            table: the file of the table that limits on its columns are of; by default that the run was watched by.
        """
        given = limits_of(limits)
        if not given:
            return self.bounds
        names = {limit.name for limit in given}
        kept = [limit for limit in limits_of(self.config.limits) if limit.name not in names]
        measured = {} if self.bounds is None else self.bounds.measured
        bounds = make_bounds(
            [*kept, *given],
            self.space,
            self.config.shape(),
            table or self.config.table,
            device=str(self.device),
            measured=measured,
        )
        assert bounds is not None
        bounds.anything()
        return bounds

    @cached_property
    @saying_damaged
    def evidence(self) -> Evidence | None:
        """Of a nested decision, what training and validation data say of every option; None where nothing was left."""
        return Evidence(**self._load(EVIDENCE)[0]) if (self.folder / EVIDENCE).exists() else None

    @property
    def result(self) -> dict[str, Any]:
        """What `show --json` prints: what the search wrote at its end, and what its network is worth, trained alone."""
        found = read_json(self.folder / RESULT) | {"run": str(self.folder)}  # the folder may have moved since
        if (self.folder / PLAIN).exists():
            found["plain"] = read_json(self.folder / PLAIN)
        if self.trained is None:
            return found
        alone = self.trained.result
        found["trained"] = {name: alone[name] for name in ("run", "budget", "kept")}
        for kind in ("metrics", "per_class"):
            measured = {split: alone[kind][split] for split in ("select", "test") if split in alone.get(kind, {})}
            if measured:
                found[kind] = found.get(kind, {}) | {f"{split}_trained": own for split, own in measured.items()}
        return found

    @saying_damaged
    def history(self) -> list[dict[str, Any]]:
        """What was measured during the search, evaluation by evaluation."""
        return read_history(self.folder)

    @saying_damaged
    def supernet(self) -> Supernet:
        """The shared weights of all architectures."""
        with torch.device("meta"):
            supernet = self.space.supernet(self.config.shape())
        state = {
            name.partition("/")[2]: value
            for name, value in self._tensors.items()
            if name.startswith(("weights/", "buffers/"))
        }
        try:
            supernet.load_state_dict(state, assign=True)
        except RuntimeError:
            raise PolyarchError(
                f"the weights of {self.folder} do not fit the space {self.config.space_name!r} as it is now; "
                "use the version of its code that wrote the run"
            ) from None
        return supernet.eval().requires_grad_(False)

    @saying_damaged
    def preprocess(self) -> Preprocess:
        """Raw inputs to what networks of this run take."""
        state = {n.partition("/")[2]: value for n, value in self._tensors.items() if n.startswith("preprocess/")}
        return preprocess_from(self.inputs.columns, state, self.inputs.parts)

    @saying_damaged
    def units(self) -> InUnits | None:
        """From what networks say of numbers to the units that these were read in; None where both are the same."""
        units = self.config.units()
        return None if units.plain else InUnits(units, self.config.likelihood().outputs)

    def model(self, architecture: Architecture | None = None) -> nn.Module:
        """The selected network, or another of the space, as a plain module on raw inputs, with only its own weights.

        Of a run with several inputs it takes these as the network does, in order or by name, or the rows of a task.

        Where the selected network was trained alone, it is that one. Others have the weights that they share, and so
        has `run.model(run.architecture)`.
        """
        if architecture is None and self.trained is not None:
            return self.trained.model()
        network = self.networks([architecture or self.architecture])[0]
        parts = [self.preprocess(), network, self.units()]
        made = OnSeveral if self.inputs.parts else nn.Sequential
        return made(*filter(None, parts)).eval().requires_grad_(False)

    def save(
        self,
        path: str | os.PathLike[str],
        model: nn.Module | None = None,
        *,
        temperature: float | None = None,
        format: Format | None = None,
    ) -> Exported:
        """Writes `model()`, or another predictor, to a file that needs no polyarch, and beside it a card of what it is.

        `.onnx` is for ONNX Runtime and its like (needs `polyarch[onnx]`), `.pt2` a program for `torch.export.load`, and
        `.safetensors` the weights by name, with a file of plain torch beside them that loads them. Each takes any
        number of raw inputs and answers by name: docs/export.md.

        Args:
            path: of the file; what is there is replaced.
            model: what to write instead: `ensemble()`, `early_exit(risk)`, or `model()` after further training.
            temperature: what log-probabilities are divided by; by default what was fitted for `model()`, and 1 where
                `model` is given. `self.temperature` is that of `ensemble()`.
            format: `onnx`, `torch` or `safetensors`, where the ending does not say it.
        """
        from polyarch.runs.exporting import save  # which takes torch's exporters along

        return save(self, Path(path), model, temperature, format)

    @saying_damaged
    def likelihood(self, of: Literal["network", "shared", "mixture", "before"] = "network") -> Likelihood:
        """What outputs say of targets as they were read; where noise is learnt, as validation data had it at the end.

        Args:
            of: the selected network as `model()` gives it, or with the weights that it shares, or the mixture, which
                has its members' disagreement besides; `before` is any of them before noise was learnt.
        """
        if of == "network" and self.trained is not None:
            return self.trained.likelihood()
        own, kept = self.config.likelihood().unweighted, self.folder / NOISE
        if not isinstance(own, Gaussian):
            return own
        if of == "before" or not own.fits or not (self.finished or kept.exists()):
            return replace(own, scale=own.scale * self.config.units().scale)
        return replace(own, scale=read_json(kept)["mixture" if of == "mixture" else "network"])

    def networks(self, architectures: Sequence[Architecture]) -> list[nn.Module]:
        """Networks on standardised inputs, each with batch-norm statistics of its own.

        The run keeps those of the selected network and of the mixture's members. Others are measured anew, on training
        data and on the run's device.
        """
        supernet = self.supernet()
        networks = {str(architecture): supernet.extract(architecture) for architecture in architectures}
        if supernet.shares_statistics and self.space.count() > 1:
            self._measure({a: n for a, n in networks.items() if a not in self._statistics and statistics_of(n)})
            for architecture, network in networks.items():
                network.load_state_dict(self._statistics.get(architecture, {}), strict=False)
        return [networks[str(architecture)] for architecture in architectures]

    def _measure(self, networks: Mapping[str, nn.Module]) -> None:
        """Measures batch-norm statistics of networks, by architecture; `keep_statistics` writes them."""
        if not networks:
            return
        preprocess = self.preprocess().to(self.device)
        batches = calibration_batches(self.task(sample=True).training.x, seed=self.seed)
        for architecture, network in networks.items():
            recalibrate(network.to(self.device), (preprocess(batch.to(self.device)) for batch in batches))
            self._statistics[architecture] = statistics_of(network.cpu())

    @cached_property
    @saying_damaged
    def _statistics(self) -> dict[str, dict[str, Tensor]]:
        """Batch-norm statistics of networks that share weights with others, by architecture."""
        if not (self.folder / STATISTICS).exists():
            return {}
        tensors, numbers = self._load(STATISTICS)
        found: dict[str, dict[str, Tensor]] = {text: {} for text in numbers["architectures"]}
        for name, value in tensors.items():
            place, _, own = name.partition("/")
            found[numbers["architectures"][int(place)]][own] = value
        return found

    def keep_statistics(self) -> None:
        """Writes the statistics that were measured, so that they need neither data nor time again."""
        if self._statistics:
            rows = enumerate(self._statistics.values())
            tensors = {f"{place}/{name}": value for place, own in rows for name, value in own.items()}
            checkpoints.save(self.folder / STATISTICS, tensors, {"architectures": list(self._statistics)})

    def ensemble(
        self, architecture: Architecture | None = None, *, members: int | None = None, seed: int | None = None
    ) -> Ensemble:
        """The mixture that belief stands for, as a module on raw inputs.

        Args:
            architecture: for nested spaces such as depth, where members share one pass: cut there instead of at the
                selected architecture (Antorán et al. 2020, Eq. 3); the deepest architecture cuts nothing.
            members: for other spaces: how many; all architectures where there are no more, else so many draws. By
                default 20, or all where there are fewer.
            seed: of the draws; by default the run's.
        """
        if not self.space.nested:
            generator = Streams(self.seed if seed is None else seed)["architecture"]
            return self.ensemble_of(members_of(self.space, self.distribution, members, generator))
        if members is not None:
            raise PolyarchError(
                f"the members of the space {self.space.name!r} share one pass, and all of them are used; leave members "
                "out"
            )
        small, weights = self.supernet().nested_members(architecture or self.architecture, self.distribution)
        return Ensemble(self.preprocess(), Nested(small), weights, self.likelihood("mixture"), self.units()).eval()

    def early_exit(self, risk: float) -> EarlyExit:
        """The mixture of `ensemble()`, in which every input by itself stops at the first depth that is sure enough.

        How sure is chosen on validation data, as little as it may be: of the inputs that stop before the selected
        depth, the share of wrong answers is at most `risk` above what `ensemble()` gets wrong of the same inputs. That
        is optimistic, since the threshold was chosen there; for new inputs nothing is promised.

        Args:
            risk: 0 or more, such as 0.01; at 0 no more answers of those that stop are wrong than without stopping.
        """
        if not isinstance(self.config.likelihood(), data.Classification):
            raise PolyarchError(f"early exit goes by the probability of a class, and this run predicts {self.predicts}")
        if not 0 <= risk < 1:
            raise PolyarchError(f"risk is {risk}; it must be 0 or more and below 1, such as 0.01")
        network = self.supernet().stepwise(self.architecture)
        if "select" not in self.config.data["examples"]:
            raise PolyarchError("early exit needs validation data, and this run has none; search with select=0.15")
        held_out = self.task(sample=True).select
        assert held_out is not None
        chosen_on, ensemble = held_out.some(MOST), self.ensemble()
        curve = exit_curve_of(ensemble.to(self.device), chosen_on.x.to(self.device), chosen_on.y.to(self.device))
        least = int(self.space.decisions[0].options[0])
        threshold = curve.threshold[curve.allowed(risk)].item()
        return EarlyExit(self.preprocess(), network, ensemble.weights.cpu(), least, threshold).eval()

    def ensemble_of(self, members: Members) -> Ensemble:
        """The mixture of chosen members, for spaces that are not nested.

        They run inside the supernet, as many as they may be, unless its batch-norm statistics are those of many
        architectures: then each is a network of its own with statistics of its own.
        """
        supernet = self.supernet()
        networks: Within | Apart = Within(supernet, members.choices, members.seeds)
        if supernet.shares_statistics:
            networks = Apart(self.networks(self.space.decode(members.choices)))
        own = (members.weights, self.likelihood("mixture"), self.units())
        return Ensemble(self.preprocess(), networks, *own).eval()

    @property
    def temperature(self) -> float:
        """What log-probabilities of the mixture are divided by before they are told; 1 where none was fitted."""
        return self.result.get("temperature") or 1.0

    def prediction_sets(self, x: Any, coverage: float) -> Tensor:
        """Which classes may be the true one of inputs as `predict` takes them: [n, classes] bool.

        For inputs that are exchangeable with the run's calibration examples, the true class is in its set with at least
        the probability `coverage`: on average, not for every kind of input (`uncertainty.conformal`).
        """
        if not self.classifies:
            raise PolyarchError(
                f"sets are of classes, and this run predicts {self.predicts}; for numbers ask for prediction_intervals"
            )
        said, quantile = self._promised(x, coverage)
        assert isinstance(said, Predictive)
        return class_sets(said.log_probs, quantile)

    def prediction_intervals(self, x: Any, coverage: float) -> Tensor:
        """From where to where the true number of such inputs may be, by the same promise: [n, 2]."""
        if self.classifies:
            raise PolyarchError("intervals are of numbers, and this run predicts a class; ask for prediction_sets")
        said, quantile = self._promised(x, coverage)
        return intervals(*guarantees.numbers_of(said, self.predicts), quantile)

    def _promised(self, x: Any, coverage: float) -> tuple[Said, float]:
        """What `predict` says of inputs, and the quantile of calibration scores under which that keeps its promise."""
        predictor = self.predictor()
        quantile = guarantees.quantile_for_coverage(self.trained or self, predictor.ensemble, coverage)
        return predictor(self._given(x)), quantile

    def predictor(self) -> Predictor:
        """What answers for the run, apart from its folder: the mixture of `ensemble()`, after the run's temperature.

        Where the selected network was trained alone, it is that one.
        """
        if self.trained is not None:
            return self.trained.predictor()
        names = self.config.data["classes"] or [str(k) for k in range(self.config.likelihood().outputs)]
        classes = tuple(names) if self.classifies else ()
        return Predictor(self.ensemble(), self.inputs, classes, self.temperature, self.highest_byte, self.device)

    def predict(self, x: Any) -> Said:
        """What the run says of inputs: `probs`, `entropy` and `mutual_information`, or `mean`, `std` and `quantile`.

        Under another likelihood `mean`, `log_prob` and, where it tells them, `std` and `entropy`.

        Args:
            x: an array or a data frame, a path, or a tensor of raw inputs as a task has them (`task.test.x`).
        """
        return self.predictor()(self._given(x))

    def _given(self, x: Any) -> Any:
        """Inputs, read where they are a path."""
        return self.inputs_at(os.fspath(x))[1] if isinstance(x, str | os.PathLike) else x

    def task(self, *, sample: bool = False) -> Task:
        """The data of the run: loaded again from where it came, or as the run kept it, and checked to be the same.

        Args:
            sample: whether some examples of every split will do, where large data came from memory and no more is kept.
        """
        if self._task is not None:
            return self._task
        if self.config.data["source"] is None:
            return kept_task(self.folder, self.config, sample)
        return load_again(self.config)

    def other_data(self, text: str) -> Split:
        """Labelled data, read as the run's own was: its test split where it comes with one, else all of it."""
        source = data.source_from(text, self._settings_for(data.source_for(text)))
        if isinstance(source, FileSource) and source.text != (self.config.data["source"] or {}).get("data"):
            outputs = self.config.likelihood().outputs
            names = self.config.data["classes"] or [str(k) for k in range(outputs)]
            likelihood = self.config.likelihood()
            split = data.read_labelled(source, self.inputs, likelihood, names if self.classifies else ())
        else:
            task = source.task()
            split = task.test or task.train
            theirs = (tuple(split.x.shape[1:]), task.likelihood.outputs)
            own = (self.inputs.shape, self.config.likelihood().outputs)
            if theirs != own or self.inputs.parts:
                raise PolyarchError(
                    f"{text} has inputs of shape {theirs[0]} and {theirs[1]} outputs; this run is for {own[0]} and "
                    f"{own[1]}: give data of that shape"
                )
            known = tuple(self.config.data["classes"])
            if known and task.classes and task.classes != known:
                raise PolyarchError(
                    f"{text} has the classes {', '.join(task.classes)}; this run knows {', '.join(known)}: give those"
                )
        self.inputs.check(text, split.x, self.highest_byte)
        return split

    @property
    @saying_damaged
    def classifies(self) -> bool:
        """Whether it predicts classes."""
        return isinstance(self.config.likelihood(), data.Classification)

    @property
    @saying_damaged
    def predicts(self) -> str:
        """What it predicts, in a word."""
        return self.config.likelihood().predicts

    def inputs_at(self, text: str) -> tuple[list[str], Tensor]:
        """Inputs to predict, as `data.read_inputs` reads them, and refused where they are on another scale."""
        return next(self.input_parts(text, None)[1])

    def input_parts(self, text: str, most: int | None) -> tuple[int | None, Iterator[tuple[list[str], Tensor]]]:
        """The same, at most so many at a time, so that there may be more than memory holds; and how many there are.

        What there is to say of inputs is said of the first part that it is true of.
        """
        found = data.input_parts(text, self.inputs, most)
        return found.total, said_once(self._checked(text, found))

    def _checked(self, text: str, found: data.InputParts) -> Iterator[tuple[list[str], Tensor]]:
        low, high = math.inf, -math.inf
        for names, x in found:
            self.inputs.check(text, x, self.highest_byte, (low, high))
            low, high = min(low, x.min().item()), max(high, x.max().item())
            yield names, x

    def other_inputs(self, text: str) -> Tensor:
        """Inputs of any kind, with labels or without, for which the run was not made: out-of-distribution data.

        Args:
            text: a name (its test split is taken where it has one), or a path as `inputs_at` takes it.

        Returns:
            Raw inputs [m, ...] of the shape of the run's own and on their scale.
        """
        if text not in data.SOURCES and Path(text).expanduser().exists():
            return self.inputs_at(text)[1]
        task = data.source_from(text, self._settings_for(data.source_for(text))).task()
        x = (task.test or task.train).x
        if tuple(x.shape[1:]) != self.inputs.shape or self.inputs.parts:
            raise PolyarchError(
                f"{text} has inputs {list(x.shape[1:])}, and this run takes {list(self.inputs.shape)}; resize them "
                "first: save them as images in a folder, which is scaled when it is read, or as a .npz of that shape"
            )
        self.inputs.check(text, x, self.highest_byte)
        return x

    @cached_property
    @saying_damaged
    def inputs(self) -> Inputs:
        """What the run's inputs are, to which all others are held."""
        return self.config.inputs()

    @property
    def highest_byte(self) -> float:
        """What white is in the run's images, where they are bytes."""
        return (self._source or data.Source).highest_byte

    @property
    def _source(self) -> type[data.Source] | None:
        """What reads the run's own data; None where that came from memory or is gone."""
        source = self.config.data["source"]
        with suppress(PolyarchError):
            return data.source_for(source["data"]) if source else None
        return None

    def _settings_for(self, cls: type[data.Source]) -> dict[str, Any]:
        """How to read other data: with the run's settings where its own is of that sort, and for its likelihood."""
        both_tables = self._source is not None and issubclass(self._source, TableFile) and issubclass(cls, TableFile)
        own = self.config.data["source"]["settings"] if self._source is cls or both_tables else {}
        takes = data.settings_of(cls)
        settings: dict[str, Any] = {name: value for name, value in own.items() if name in takes}
        for name in ("labels", "class_weights"):  # what is judged on has all labels, and every example counts alike
            settings.pop(name, None)
        likelihood = self.config.likelihood()
        if "likelihood" in takes and not isinstance(likelihood, data.Classification | Gaussian):
            return settings | {"likelihood": text_of(likelihood)}
        if "kind" in takes:
            settings["kind"] = "classification" if self.classifies else "regression"
            settings["noise"] = self.config.data["likelihood"].get("noise", "fixed")
        return settings

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return self._load(WEIGHTS)[0]

    def _load(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers of one of the run's files."""
        try:
            return checkpoints.load(self.folder / name)
        except checkpoints.Damaged as error:
            raise PolyarchError(
                f"{error}; restore it, or remove {self.folder / RESULT} and run `{resume_command(self.folder)}`, "
                "which writes it again from the last checkpoint"
            ) from None

    @saying_damaged
    def __repr__(self) -> str:
        return run_in_words(self)


def shares_weights(space: Space, method: Method) -> bool:
    """Whether a search selects a network that had to share its weights (`Run.shares_weights`)."""
    return not (space.nested or method.draws_from_space) and space.random().architectures > 1


def open_run(folder: str | Path, *, allow_changed: bool = False, space: Space | None = None) -> Run:
    """A finished run; for a folder of several repeats, take one of `open_repeats`, or `open_best`.

    Args:
        folder: of the run.
        allow_changed: whether code of one's own may have changed since the run was made; else that is refused.
        space: of the run, where an object made its networks that has no name, such as a lambda, in another process.
    """
    run = _opened(folder, None, allow_changed, space)
    if run.config.repeats > 1:
        best = repeat_folder(run.folder, best_repeat(folder, allow_changed=allow_changed))
        raise PolyarchError(f"{folder} holds {run.config.repeats} repeats; open one of them, such as {best}, the best")
    return run


def open_best(folder: str | Path, *, allow_changed: bool = False, space: Space | None = None) -> Run:
    """Of a finished run's repeats the best by validation data, or by the training objective where there is none.

    For a single run, itself. Test data has no part in it. `allow_changed` and `space` are those of `open_run`.
    """
    run = _opened(folder, None, allow_changed, space)
    if run.config.repeats == 1:
        return run
    return Run(repeat_folder(run.folder, best_repeat(folder, allow_changed=allow_changed)), None, allow_changed)


def best_repeat(folder: str | Path, *, allow_changed: bool = False) -> int:
    """The seed of the best of several repeats: by their networks trained alone where all were, else by the search."""
    runs = open_repeats(folder, allow_changed=allow_changed)
    found, by = {run.seed: run.result["metrics"] for run in runs}, decided_by(runs[0].config)
    if not all("select_trained" in metrics for metrics in found.values()):
        best: int = Run(folder).result["best"]
        return best
    return max(found, key=lambda seed: merit(found[seed]["select_trained"], by))


def decided_by(config: Config) -> str:
    """The metric that repeats are compared by: the accuracy by which classes count as they did in learning."""
    likelihood = config.likelihood()
    return "accuracy" if likelihood.unweighted is likelihood else "balanced_accuracy"


def merit(measured: Mapping[str, float], by: str) -> tuple[float, float]:
    """What repeats are compared by on validation data: accuracy, and between equals, or for numbers, log-likelihood."""
    return measured.get(by, 0.0), measured["log_likelihood"]


def open_repeats(folder: str | Path, task: Task | None = None, *, allow_changed: bool = False) -> list[Run]:
    """Every repeat of a finished run; for a single run, itself.

    Args:
        folder: of the run.
        task: their data, where that is at hand.
        allow_changed: that of `open_run`.
    """
    run = _opened(folder, task, allow_changed)
    if run.config.repeats == 1:
        return [run]
    folders = [repeat_folder(run.folder, run.seed + k) for k in range(run.config.repeats)]
    return [Run(each, task, allow_changed) for each in folders]


def _opened(folder: str | Path, task: Task | None, allow_changed: bool, space: Space | None = None) -> Run:
    run = Run(folder, task, allow_changed)
    if space is not None:
        run.config.take_space(space)
    if not run.finished:
        raise PolyarchError(f"{folder} is not finished; run `{resume_command(run.folder)}`")
    if not allow_changed:
        run.config.check_code()
    return run


def resume_command(folder: Path) -> str:
    """What to type to go on with a run."""
    return f"polyarch search --resume --out {shlex.quote(str(folder))}"


def repeat_folder(folder: Path, seed: int) -> Path:
    """Where one repeat of a batch of them is kept."""
    return folder / f"seed-{seed}"


def read_history(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that are whole."""
    path = folder / METRICS
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:  # the last line of a run that was killed while writing it
            break
    return found


def searched_seconds(history: Sequence[Mapping[str, Any]]) -> float:
    """How long a search took, by its history, in which every interruption begins to count anew."""
    total = last = 0.0
    for line in history:
        total += last if line["seconds"] < last else 0.0
        last = line["seconds"]
    return total + last


def load_again(config: Config) -> Task:
    """Data that has a name or is in a file, as a run had it, and checked to be the same."""
    source = config.data["source"]
    settings = dict(source["settings"])
    if settings.get("kind") == "auto" and isinstance(config.likelihood(), Gaussian):
        settings["kind"] = "regression"  # which it turned out to be, and was said when the search began
    task = data.load(source["data"], **settings)
    check_same_data(config, task)
    return task


def check_same_data(config: Config, task: Task) -> None:
    """Raises when a task is not the one a run was made with."""
    if task.fingerprint != config.data["fingerprint"]:
        raise PolyarchError(
            f"the data {task.name!r} is no longer what this run was made with (its fingerprint differs); "
            "restore the data or start a new run"
        )
    own = config.data["likelihood"]
    if plain(task.likelihood.settings()) != own:
        what, setting = "other noise", f"noise={own.get('noise', 'fixed')}"
        if own["kind"] not in ("classification", "gaussian"):
            what, setting = "another likelihood", f"likelihood={own['kind']}"
        if own["kind"] == "classification":
            what, setting = "other weights of classes", f"class_weights={'balanced' if 'weights' in own else 'none'}"
        raise PolyarchError(
            f"the data {task.name!r} was loaded with {what} than this run was made with; load it with {setting}"
        )
