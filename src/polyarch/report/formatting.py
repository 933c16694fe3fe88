"""Numbers and metrics as people write them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from polyarch.data.likelihood import Likelihood

THIN, MINUS = "\u202f", "\u2212"
SPLITS = {
    "test": "test",
    "calibrate": "calibration",
    "select": "validation",
    "search": "search",
    "train": "training",
    "unlabelled": "unlabelled",
}


@dataclass(frozen=True)
class Metric:
    """How one number of a result is shown."""

    name: str
    title: str
    about: str
    higher_is_better: bool
    percent: bool = False
    digits: int = 3

    def show(self, values: Sequence[float]) -> str:
        """The value, or mean and deviation of several."""
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return percent(mean(values), deviation) if self.percent else number(mean(values), self.digits, deviation)

    def show_deviation(self, values: Sequence[float]) -> str:
        """How far several differ, to stand apart from their mean; nothing of one."""
        if len(values) < 2:
            return ""
        deviation = statistics.stdev(values)
        return f"±{THIN}{percent(deviation) if self.percent else number(deviation, self.digits)}"


LOG_LIKELIHOOD = Metric("log_likelihood", "log-likelihood", "mean over examples, in nats", True)
CLASSIFICATION = (
    Metric("accuracy", "accuracy", "share of right answers", True, percent=True, digits=1),
    Metric("f1", "F1", "harmonic mean of precision and recall, mean over classes", True),
    Metric("auc", "AUC", "area under the ROC curve of each class against the rest, mean over classes", True),
    LOG_LIKELIHOOD,
    Metric("brier", "Brier", "squared error of the probabilities, summed over classes", False),
    Metric("ece", "ECE", "calibration error of the predicted class, 15 bins", False),
)
AURC = Metric("aurc", "AURC", "area under risk against coverage", False, digits=4)
REGRESSION = (
    Metric("rmse", "RMSE", "root of the mean squared error", False),
    Metric("mae", "MAE", "mean absolute error", False),
    Metric("r2", "R²", "share of the targets' variance that is explained", True),
    LOG_LIKELIHOOD,
    Metric("crps", "CRPS", "continuous ranked probability score", False),
)


FIGURES = (
    Metric(
        "exact_match", "exact match", "share of examples all of whose labels are right", True, percent=True, digits=1
    ),
    Metric("f1", "F1", "harmonic mean of precision and recall, mean over labels", True),
    Metric("deviance", "deviance", "of Poisson, mean over examples", False),
)
"""What likelihoods tell besides their metric."""
PERCENT = ("accuracy", "hamming_accuracy")
"""Metrics that are shares."""


def metrics_of(likelihood: Likelihood) -> tuple[Metric, ...]:
    """What predictions are evaluated by, under a likelihood that is neither of classes nor of numbers."""
    name = likelihood.metric
    share = name in PERCENT
    first = Metric(name, titled(name), "mean over examples", likelihood.higher_is_better, share, 1 if share else 3)
    return (first, *FIGURES, LOG_LIKELIHOOD)


def titled(name: str) -> str:
    """A metric's name for people."""
    return name.replace("_", " ").replace("hamming", "Hamming")


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return statistics.fmean(values)


def number(value: float, digits: int = 3, deviation: float | None = None) -> str:
    """-0.0612 as −0.061, with ± where there is a deviation."""
    if deviation is None and 0 < abs(value) < 0.5 * 10**-digits:
        digits = min(6, -math.floor(math.log10(abs(value))))  # -0.0003 is not nothing
    text = f"{value:.{digits}f}"
    text = text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)
    return text if deviation is None else f"{text}{THIN}±{THIN}{deviation:.{digits}f}"


def percent(share: float, deviation: float | None = None, digits: int = 1) -> str:
    """0.9804 as 98.0 %."""
    return number(100 * share, digits, None if deviation is None else 100 * deviation) + f"{THIN}%"


def about_percent(share: float) -> str:
    """0.204 as 20 %."""
    return percent(share, digits=1 if 0 < abs(share) < 0.01 else 0)


def whole(value: float) -> str:
    """1234567 as 1 234 567."""
    return f"{round(value):,}".replace(",", THIN)


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds, three digits that count."""
    value = 1000 * seconds
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f}{THIN}ms"


def plural(noun: str) -> str:
    """Depth as depths; a word that ends in s may be one already."""
    return noun if noun.endswith("s") else f"{noun}s"


def ranges(numbers: Sequence[int], names: Sequence[str] | None = None) -> str:
    """[3, 4, 5, 9] as 3–5, 9; with names of all numbers from 0 up, by these."""
    parts: list[list[int]] = []
    for value in sorted(numbers):
        if parts and value == parts[-1][-1] + 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    shown = [[str(k) if names is None else names[k] for k in (part[0], part[-1])] for part in parts]
    return ", ".join("–".join(dict.fromkeys(ends)) for ends in shown)


def seeds(numbers: Sequence[int]) -> str:
    """[3] as seed 3, [0, 1, 2] as seeds 0–2."""
    return f"seed{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"
