"""Predictions of `polyarch predict`: rows that a run makes of inputs, and how they are written, part by part."""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, final

from typing_extensions import override

if TYPE_CHECKING:
    from torch import Tensor

    from polyarch.runs.run import Run
    from polyarch.uncertainty.ensemble import Ensemble

BETWEEN = "|"
"""What stands between the classes of a set in CSV."""
QUANTILES = (0.05, 0.5, 0.95)
"""Of numbers that are predicted: between the first and the last lie nine in ten, if the prediction is honest."""
Rows = list[dict[str, Any]]


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """What a run says of inputs, of which there may be many parts."""

    run: Run
    ensemble: Ensemble
    threshold: float | None
    """The confidence above which it answers; None where it always does."""
    quantile: float | None
    """Of calibration scores, for sets and intervals; None where there are none."""
    head: dict[str, Any]
    """How it comes to what it says."""

    @classmethod
    def of(cls, searched: Run, risk: float | None, coverage: float | None) -> Answers:
        """Those of a run, with what it promises."""
        from polyarch.errors import PolyarchError
        from polyarch.runs.guarantees import quantile_for_coverage, threshold_for

        run = searched.trained or searched  # what show tells of is what answers
        if risk is not None and not run.classifies:
            raise PolyarchError(f"--risk is for classification, and this run predicts {run.predicts}; leave it out")
        ensemble = run.ensemble()
        threshold = None if risk is None else threshold_for(run, ensemble, risk)
        quantile = None if coverage is None else quantile_for_coverage(run, ensemble, coverage)
        head: dict[str, Any] = {"architecture": str(run.architecture)}
        if run.classifies:
            head["temperature"] = run.temperature
        if risk is not None:
            head |= {"risk": risk, "threshold": threshold}
        if coverage is not None:
            head |= {"coverage": coverage, "quantile": quantile, "guarantee": "marginal"}
        return cls(run, ensemble, threshold, quantile, head)

    def rows(self, names: list[str], x: Tensor) -> Rows:
        """A row for every input."""
        return self._classes(names, x) if self.run.classifies else self._numbers(names, x)

    def _classes(self, names: list[str], x: Tensor) -> Rows:
        from polyarch.runs.guarantees import predicted_classes
        from polyarch.uncertainty.conformal import class_sets

        said = predicted_classes(self.run, self.ensemble, x)
        classes = self.run.config.data["classes"] or [str(k) for k in range(said.log_probs.shape[-1])]
        sets = [None] * len(x) if self.quantile is None else class_sets(said.log_probs, self.quantile).tolist()
        parts = (said.log_probs.exp().tolist(), said.entropy.tolist(), said.mutual_information.tolist())
        rows = []
        for name, probs, entropy, information, likely in zip(names, *parts, sets, strict=True):
            best = max(range(len(probs)), key=probs.__getitem__)
            row = {
                "input": name,
                "class": classes[best],
                "probability": probs[best],
                "entropy": entropy,
                "mutual_information": information,
            }
            if self.threshold is not None:
                row["abstain"] = not probs[best] > self.threshold
            if likely is not None:
                row["set"] = [name for name, is_in in zip(classes, likely, strict=True) if is_in]
            rows.append(row | {"probabilities": dict(zip(classes, probs, strict=True))})
        return rows

    def _numbers(self, names: list[str], x: Tensor) -> Rows:
        from polyarch.uncertainty.conformal import intervals
        from polyarch.uncertainty.ensemble import asked
        from polyarch.uncertainty.gaussians import Gaussians
        from polyarch.uncertainty.mixtures import Mixtures

        said = asked(self.ensemble, x, self.run.device)
        assert isinstance(said, Gaussians | Mixtures)
        columns: dict[str, list[Any]] = {"input": names}
        if isinstance(said, Mixtures):
            columns |= said.likelihood.columns(said.mean, self.run.config.data["classes"])
            told = {"std": said.std if said.mean.dim() == 1 else None}
            told |= {"entropy": said.entropy, "mutual_information": said.mutual_information}
            columns |= {name: values.tolist() for name, values in told.items() if values is not None}
        else:
            columns |= {"mean": said.mean.tolist(), "std": said.std.tolist()}
            columns |= {f"quantile_{round(100 * share)}": said.quantile(share).tolist() for share in QUANTILES}
        if self.quantile is not None:
            assert said.std is not None
            low, high = intervals(said.mean, said.std, self.quantile).unbind(-1)
            columns |= {"low": low.tolist(), "high": high.tolist()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class Written(ABC):
    """Predictions as text, written as they come."""

    def __init__(self, file: TextIO) -> None:
        """Takes where they are written."""
        self._file, self.count = file, 0

    @abstractmethod
    def begin(self, head: dict[str, Any]) -> None:
        """Those of a run come; `head` says how it comes to them."""

    @abstractmethod
    def rows(self, rows: Rows) -> None:
        """Some of them."""

    def end(self) -> None:
        """Those of a run have come."""


@final
class AsCsv(Written):
    """A line for every input, with a column for the probability of each class."""

    def __init__(self, file: TextIO, of_seeds: bool) -> None:
        """Takes where they are written, and whether a column says of which seed they are."""
        super().__init__(file)
        self._of_seeds = of_seeds
        self._seed: dict[str, Any] = {}

    @override
    def begin(self, head: dict[str, Any]) -> None:
        self._seed = {"seed": head["seed"]} if self._of_seeds else {}

    @override
    def rows(self, rows: Rows) -> None:
        flat = []
        for row in rows:
            own = {name: value for name, value in row.items() if name != "probabilities"}
            if "set" in own:
                own["set"] = BETWEEN.join(own["set"])
            flat.append(self._seed | own | {f"p({name})": p for name, p in row.get("probabilities", {}).items()})
        writer = csv.DictWriter(self._file, fieldnames=list(flat[0]), lineterminator="\n")
        if not self.count:
            writer.writeheader()
        writer.writerows(flat)
        self.count += len(flat)


@final
class AsJson(Written):
    """One object, or of several seeds one for each in a list, whose last value is a list of rows."""

    def __init__(self, file: TextIO, of_seeds: Path | None) -> None:
        """Takes where they are written and, of several seeds, the folder of their run."""
        super().__init__(file)
        self._before = f'{{"run": {json.dumps(str(of_seeds))}, "seeds": [' if of_seeds else ""
        self._comma = ""

    @override
    def begin(self, head: dict[str, Any]) -> None:
        self._file.write(f'{self._before}{json.dumps(head)[:-1]}, "predictions": [')
        self._before, self._comma = ", ", ""

    @override
    def rows(self, rows: Rows) -> None:
        self._file.write(self._comma + json.dumps(rows)[1:-1])
        self._comma = ", "
        self.count += len(rows)

    @override
    def end(self) -> None:
        self._file.write("]}")
