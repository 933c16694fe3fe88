"""Numbers as people write them, what was found in a sentence or three, and how to do it again."""

from __future__ import annotations

import dataclasses
import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyarch import catalogue
from polyarch.data.loading import source_for
from polyarch.distributions import selection
from polyarch.runs.run import Run
from polyarch.settings import dotted, make, settings_of, written

THIN, MINUS = "\u202f", "\u2212"
SPLITS = {
    "test": "test",
    "calibrate": "calibration",
    "select": "validation",
    "search": "search",
    "train": "training",
    "unlabelled": "unlabelled",
}


@dataclasses.dataclass(frozen=True)
class Measure:
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


LOG_LIKELIHOOD = Measure("log_likelihood", "log-likelihood", "mean over examples, in nats", True)
CLASSIFICATION = (
    Measure("accuracy", "accuracy", "share of right answers", True, percent=True, digits=1),
    LOG_LIKELIHOOD,
    Measure("brier", "Brier", "squared error of the probabilities, summed over classes", False),
    Measure("ece", "ECE", "calibration error of the predicted class, 15 bins", False),
    Measure("ece_all_classes", "ECE, all classes", "as in the released code of the depth paper, 10 bins", False),
)
AURC = Measure("aurc", "AURC", "area under risk against coverage", False, digits=4)
REGRESSION = (Measure("rmse", "RMSE", "root of the mean squared error", False), LOG_LIKELIHOOD)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return statistics.fmean(values)


def spread(values: Sequence[int], digits: int) -> str:
    """A single whole number, or mean and deviation of several."""
    return str(values[0]) if len(values) == 1 else number(mean(values), digits, statistics.stdev(values))


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


def plural(count: int, noun: str) -> str:
    """1 block, 2 blocks."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def ranges(numbers: Sequence[int]) -> str:
    """[3, 4, 5, 9] as 3–5, 9."""
    parts: list[list[int]] = []
    for value in sorted(numbers):
        if parts and value == parts[-1][-1] + 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)


# --------------------------------------------------------------------------------------------------
# How to do it again.


def changed(cls: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ from a class's defaults, by dotted name."""
    defaults = {setting.name: setting.default for setting in settings_of(cls).values()}
    told = dotted(cls, settings)
    return {name: value for name, value in told.items() if name not in defaults or defaults[name] != value}


def _options(run: Run) -> dict[str, Any]:
    """What else a search was given beside its data, by the names of the command line's options."""
    config = run.config
    given: dict[str, Any] = {"belief-from": config.belief_from, "table": config.table, "column": config.column}
    given |= {"precision": "" if config.precision == "float32" else config.precision}
    return {name: value for name, value in given.items() if value}


def _arguments(run: Run) -> dict[str, str]:
    """The same as arguments of `search`, written in Python; the prior always, since a method's own may change."""
    config = run.config
    start = {"prior": repr(config.prior) if isinstance(config.prior, str) else "prior"}
    start |= {"belief_from": repr(config.belief_from)} if config.belief_from else {}
    given = {"start": f"pa.Start({', '.join(f'{name}={value}' for name, value in start.items())})"}
    given |= {"compute": f"pa.Compute(precision={config.precision!r})"} if config.precision != "float32" else {}
    given |= {"callbacks": f"[pa.TableTruth({config.table!r}, {config.column!r})]"} if config.table else {}
    return given


def search_command(run: Run, out: Path, repeats: int = 1, baselines: Sequence[int] = ()) -> str | None:
    """What repeats a search from the shell; None where the data or the prior exist in Python alone."""
    config, source = run.config, run.config.data["source"]
    if source is None or not isinstance(config.prior, str):
        return None
    space, method = (
        catalogue.find("space", config.space["name"])[0],
        catalogue.find("method", config.method["name"])[0],
    )
    words = ["polyarch", "search"]
    words += ["--space", config.space["name"], "--method", config.method["name"], "--data", source["data"]]
    words += ["--out", str(out), "--seed", str(config.seed)]
    words += ["--repeats", str(repeats)] if repeats > 1 else []
    words += ["--baselines", ",".join(map(str, baselines))] if baselines else []
    words += [part for name, value in _options(run).items() for part in (f"--{name}", str(value))]
    usual = selection.rule_for("auto", config.make_space().nested, config.data["examples"]["train"])
    settings = {
        "data": changed(source_for(source["data"]), source["settings"]),
        "space": changed(space, config.space["settings"]),
        "method": changed(method, config.method["settings"]),
        "search": {
            name: value
            for name, value, default in (
                ("prior", config.prior, method.default_prior),
                ("selection", config.select, usual),
            )
            if value != default
        },
    }
    for room, values in settings.items():
        for name, value in values.items():
            words += ["--set", f"{room}.{name}={written(value)}"]
    return _lines(words)


def search_call(run: Run, out: Path, repeats: int = 1) -> str:
    """The same in Python, for data in memory."""
    config = run.config
    made = {}
    for kind, described in (("space", config.space), ("method", config.method)):
        cls, _ = catalogue.find(kind, described["name"])
        held = make(cls, described["settings"])
        names = dict.fromkeys(name.partition(".")[0] for name in changed(cls, described["settings"]))
        values = ", ".join(f"{name}={getattr(held, name)!r}" for name in names)
        home = f"pa.{kind}s." if cls.__module__.startswith(f"polyarch.{kind}s.") else ""
        made[kind] = f"{home}{cls.__name__}({values})"
    extra = f", repeats={repeats}" if repeats > 1 else ""
    extra += "".join(f", {name}={value}" for name, value in _arguments(run).items())
    return (
        f"pa.search(\n    {made['space']},\n    task,\n    {made['method']},\n"
        f"    out={str(out)!r}, seed={config.seed}{extra}, select={config.select!r},\n)"
    )


def _lines(words: Sequence[str], wide: int = 100) -> str:
    """A command on as many lines as it needs, an option and its value together."""
    pairs = [words[:2]] + [words[k : k + 2] for k in range(2, len(words), 2)]
    lines = [""]
    for pair in pairs:
        text = shlex.join(pair)
        if lines[-1] and len(lines[-1]) + len(text) > wide:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + text
    return " \\\n  ".join(lines)
