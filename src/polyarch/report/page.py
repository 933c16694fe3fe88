"""Puts a report together: which sections a run has, what each says, and the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from polyarch import selection
from polyarch.data.task import Classification, Task
from polyarch.errors import PolyarchError
from polyarch.report import evidence, figures, pictures, words
from polyarch.report.drawing import BLUE, GREEN
from polyarch.report.words import Measure
from polyarch.runs.files import write_whole
from polyarch.runs.run import Run, check_same_data

NAME = "report.html"


def write_report(run: Run, task: Task, *, baselines: Sequence[Run] = ()) -> Path:
    """Writes `report.html` into the folder of a finished run: one file that needs no network.

    Args:
        run: the run.
        task: its data.
        baselines: runs on the same data to compare with; fixed depths are drawn beside the belief over depth.

    Returns:
        Where the page is.
    """
    return _write(run.folder, _Story([run], task, baselines, run.folder))


def write_summary_report(folder: str | Path, runs: Sequence[Run], task: Task, *, baselines: Sequence[Run] = ()) -> Path:
    """Writes `report.html` about several repeats of one search: means, and the spread over seeds.

    Args:
        folder: where the page is put, usually the folder that holds the repeats.
        runs: the repeats.
        task: their data.
        baselines: runs on the same data to compare with.

    Returns:
        Where the page is.
    """
    if not runs:
        raise PolyarchError("a summary needs one run at least; pass the runs of polyarch.runs.run.open_repeats(folder)")
    return _write(Path(folder), _Story(list(runs), task, baselines, Path(folder)))


def _write(folder: Path, story: _Story) -> Path:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(files("polyarch.report").joinpath("template.html.j2").read_text("utf-8"))
    path = folder / NAME
    # A folder's name may hold bytes that are no text.
    write_whole(path, template.render(story.context()).encode("utf-8", "backslashreplace"))
    return path


@dataclass
class _Story:
    """What there is to tell about the runs of one search that differ in their seed alone."""

    runs: list[Run]
    task: Task
    baselines: Sequence[Run]
    folder: Path
    measures: tuple[Measure, ...] = field(init=False)

    def __post_init__(self) -> None:
        for run in (*self.runs, *self.baselines):
            check_same_data(run.config, self.task)
        first = self.runs[0].config
        for run in self.runs[1:]:
            if (run.config.space, run.config.method, run.config.prior) != (first.space, first.method, first.prior):
                raise PolyarchError(
                    f"{run.folder} is not a repeat of {self.runs[0].folder}: its space, method or prior differ; "
                    "pass it as a baseline, or compare the runs"
                )
        self.classifies = isinstance(self.task.likelihood, Classification)
        self.measures = words.CLASSIFICATION if self.classifies else words.REGRESSION

    # What kind of story it is.

    @property
    def run(self) -> Run:
        """The first run; what all share is read from it."""
        return self.runs[0]

    @property
    def several(self) -> bool:
        return len(self.runs) > 1

    @cached_property
    def depth(self) -> bool:
        return evidence.is_depth(self.run)

    @cached_property
    def point(self) -> bool:
        return evidence.is_point(self.run)

    @cached_property
    def depths(self) -> list[int]:
        return [evidence.depth_of(run) for run in self.runs]

    @cached_property
    def cut(self) -> bool:
        """Whether anything was pruned: not where depth was fixed, or all of it kept."""
        return self.depth and not self.point and any(d < self.most for d in self.depths)

    @cached_property
    def most(self) -> int:
        """The largest depth considered."""
        return len(self.run.space.decisions[0]) - 1

    @cached_property
    def split(self) -> str | None:
        found = evidence.judged_split(self.task)
        return found[0] if found else None

    @cached_property
    def courses(self) -> list[evidence.Course]:
        return [evidence.course(run) for run in self.runs]

    @cached_property
    def voices(self) -> list[evidence.Voices]:
        return [evidence.Voices.of(run) for run in self.runs]

    @cached_property
    def groups(self) -> list[tuple[str, int | None, list[Run]]]:
        """Baselines by what they are: a name, the depth of a fixed one, and its runs."""
        found: dict[tuple[str, int | None], list[Run]] = {}
        for run in self.baselines:
            fixed = evidence.depth_of(run) if evidence.is_depth(run) and evidence.is_point(run) else None
            name = f"Fixed depth {fixed}" if fixed is not None else f"{run.config.method['name']}, {run.folder.name}"
            found.setdefault((name, fixed), []).append(run)
        ordered = sorted(found.items(), key=lambda item: (item[0][1] is None, item[0][1] or 0, item[0][0]))
        return [(name, fixed, runs) for (name, fixed), runs in ordered]

    def values(self, runs: Sequence[Run], kind: str, name: str) -> list[float]:
        """One measure of several runs on the split that results are told on; empty where it is not there."""
        found = [evidence.metric(run, self.split, kind, name) for run in runs] if self.split else []
        return [value for value in found if value is not None]

    # The page.

    def context(self) -> dict[str, Any]:
        """All that the template shows; a section that has nothing to say is None."""
        config = self.run.config
        sections = {
            "table": self.table(),
            "seeds": self.seeds(),
            "belief": self.belief(),
            "course": self.over_time(),
            "curves": self.curves(),
            "calibration": self.calibration(),
            "maps": pictures.functions(self.runs, self.voices, self.task),
            "gallery": self.gallery(),
            "cost": self.cost(),
        }
        titles = {
            "table": "Results", "seeds": "Seeds", "belief": "Belief", "course": "Course", "curves": "Training",
            "calibration": "Calibration", "maps": "Functions", "gallery": "Hard cases", "cost": "Cost",
        }  # fmt: skip
        return {
            "title": f"{config.data['name']}: {config.space['name']} by {config.method['name']}",
            "data": config.data["name"],
            "space": config.space["name"],
            "method": config.method["name"],
            "runs": len(self.runs),
            "finding": self.finding(),
            "tiles": self.tiles(),
            "split": words.SPLITS.get(self.split or "", ""),
            "examples": words.whole(config.data["examples"][self.split]) if self.split else "",
            "contents": [(key, titles[key]) for key, section in sections.items() if section] + [("made", "How it was made")],
            "made": self.made(),
            **sections,
        }

    def finding(self) -> list[str]:
        """What was found, in plain words."""
        said = [self._selected(), self._saved(), self._scores()]
        return [sentence for sentence in (*said, self._compared()) if sentence]

    def _selected(self) -> str:
        if not self.depth:
            return "" if self.several else f"The search selects {self.run.architecture}."
        if self.point:
            return f"A residual network of fixed depth {self.depths[0]}."
        if self.several:
            mean, deviation = evidence.mean_and_spread(self.depths)
            span = f"{min(self.depths)} to {max(self.depths)}" if len(set(self.depths)) > 1 else f"always {self.depths[0]}"
            spread = words.number(mean, 1, deviation)
            return f"Over {len(self.runs)} seeds, depth {spread} of {self.most} ({span}) explains the data."
        if self.depths[0] == self.most:
            return f"The search keeps all {words.plural(self.most, 'block')}: a larger max_depth may explain the data better."
        return f"Depth {self.depths[0]} of {self.most} explains the data."

    def _saved(self) -> str:
        if not self.cut:
            return ""
        costs = [run.result["cost"] for run in self.runs]
        saved = sum(1 - c["selected"]["parameters"] / c["largest"]["parameters"] for c in costs) / len(costs)
        faster = sum(run.result["forward_seconds"]["saving"] for run in self.runs) / len(self.runs)
        share = words.about_percent(saved)
        if self.several:
            what = f"On average, pruning drops {share} of the parameters"
        else:
            dropped = words.plural(self.most - self.depths[0], "block")
            what = f"Pruning drops {dropped}, {share} of the parameters"
        time = f", and a forward pass takes {words.about_percent(faster)} less time" if faster >= 0.005 else ""
        return what + time + "."

    def _scores(self) -> str:
        main = self.measures[0]
        if not self.split:
            return "The data has no validation or test examples, so how well it predicts was not measured."
        own, mixed = self.values(self.runs, "", main.name), self.values(self.runs, "_ensemble", main.name)
        if not own:
            return ""
        where = f"{words.SPLITS[self.split]} {main.title}"
        if self.point or not mixed:
            return f"Its {where} is {main.show(own)}."
        which = "selected networks reach" if self.several else "selected network reaches"
        return f"The {which} {main.show(own)} {where}, the mixture over depths {main.show(mixed)}."

    def _compared(self) -> str:
        rows = [(fixed, self.values(runs, "", "log_likelihood")) for _, fixed, runs in self.groups if fixed is not None]
        rows = [(fixed, values) for fixed, values in rows if values]
        mixed = self.values(self.runs, "_ensemble", "log_likelihood")
        if len(rows) < 2 or not mixed or not self.split:
            return ""
        depth, best = max(rows, key=lambda row: evidence.mean_and_spread(row[1])[0])
        mine, theirs = evidence.mean_and_spread(mixed)[0], evidence.mean_and_spread(best)[0]
        return (
            f"Of {len(rows)} fixed depths trained alone, depth {depth} does best on {words.SPLITS[self.split]} data "
            f"(log-likelihood {words.number(theirs)}); the mixture reaches {words.number(mine)}."
        )

    def tiles(self) -> list[tuple[str, str, str]]:
        """Key numbers: name, value, and a note."""
        tiles: list[tuple[str, str, str]] = []
        if self.depth:
            mean, deviation = evidence.mean_and_spread(self.depths)
            value = words.number(mean, 1, deviation) if self.several else str(self.depths[0])
            tiles.append(("depth" if self.point else "selected depth", value, "" if self.point else f"of {self.most}"))
        else:
            entropy = evidence.mean_and_spread([run.result["distribution"]["entropy"] for run in self.runs])[0]
            tiles.append(("entropy of belief", words.number(entropy, 2), "nats"))
        for measure in self.measures:
            own, mixed = self.values(self.runs, "", measure.name), self.values(self.runs, "_ensemble", measure.name)
            if own and measure.name in ("accuracy", "rmse", "log_likelihood", "ece") and self.split:
                note = "" if self.point or not mixed else f"mixture {measure.show([_mean(mixed)])}"
                title = measure.title if measure.name == "ece" else f"{words.SPLITS[self.split]} {measure.title}"
                tiles.append((title, measure.show(own), note))
        if not self.split:
            for name, title in (("accuracy", "training accuracy"), ("log_likelihood", "training log-likelihood")):
                found = [c.at_kept("train", name) for c in self.courses]
                values = [float(v) for v in found if v is not None]
                measure = next((m for m in self.measures if m.name == name), None)
                if values and measure:
                    tiles.append((title, measure.show(values), "data it was fitted to"))
        costs = [run.result["cost"] for run in self.runs]
        parameters = evidence.mean_and_spread([c["selected"]["parameters"] for c in costs])[0]
        if not self.cut:
            macs = evidence.mean_and_spread([c["selected"]["macs"] for c in costs])[0]
            tiles.append(("parameters", words.whole(parameters), f"{words.whole(macs)} MACs"))
            return tiles
        kept = evidence.mean_and_spread([c["selected"]["parameters"] / c["largest"]["parameters"] for c in costs])[0]
        tiles.append(("parameters kept", words.about_percent(kept), words.whole(parameters)))
        saving = evidence.mean_and_spread([run.result["forward_seconds"]["saving"] for run in self.runs])[0]
        tiles.append(("time saved", words.about_percent(max(saving, 0)), "of a forward pass"))
        return tiles

    def table(self) -> dict[str, Any] | None:
        """Every network and mixture in every measure, the best of each column marked."""
        if not self.split:
            return None
        here = f"depth {self.depths[0]}" if self.depth and not self.several else ""
        cut = any(voice.full is not None for voice in self.voices)
        rows: list[tuple[str, str, list[Run], str]] = [
            ("This network" if self.point else "Selected network", here, self.runs, "")
        ]
        if not self.point:
            until = f"depths 0 to {self.depths[0]}, Eq. 3" if here else "up to the selected depth, Eq. 3"
            rows.append(("Mixture, pruned" if cut else "Mixture", until if self.depth else "", self.runs, "_ensemble"))
        if cut:
            rows.append(("Mixture, all depths" if self.depth else "Mixture, not pruned", "", self.runs, "_unpruned"))
        for name, fixed, runs in self.groups:
            many = f"{len(runs)} seeds" if len(runs) > 1 else ""
            rows.append((name, many, runs, "" if fixed is not None else "_ensemble"))
        cells = [[self.values(runs, kind, m.name) for m in self.measures] for _, _, runs, kind in rows]
        best = [self._best(m, [row[k] for row in cells]) for k, m in enumerate(self.measures)]
        shown = [
            {
                "name": name, "note": note, "baseline": runs is not self.runs,
                "cells": [(m.show(v) if v else "–", v and m.show([_mean(v)]) == b)
                          for m, v, b in zip(self.measures, values, best, strict=True)],
            }
            for (name, note, runs, _), values in zip(rows, cells, strict=True) if any(values)
        ]  # fmt: skip
        return {"measures": self.measures, "rows": shown} if shown else None

    @staticmethod
    def _best(measure: Measure, column: Sequence[Sequence[float]]) -> str | None:
        means = [_mean(values) for values in column if values]
        if len(means) < 2:
            return None
        return measure.show([max(means) if measure.higher_is_better else min(means)])

    def seeds(self) -> dict[str, Any] | None:
        """One line a seed."""
        if not self.several:
            return None
        rows = []
        for run, course in zip(self.runs, self.courses, strict=True):
            mixed = [(m, self.values([run], "" if self.point else "_ensemble", m.name)) for m in self.measures]
            rows.append(
                {
                    "seed": run.seed,
                    "architecture": str(evidence.depth_of(run)) if self.depth else str(run.architecture),
                    "kept": course.kept,
                    "entropy": words.number(run.result["distribution"]["entropy"], 2),
                    "cells": [m.show(v) if v else "–" for m, v in mixed],
                }
            )
        return {"rows": rows, "measures": self.measures, "of": "network" if self.point else "pruned mixture"}

    def belief(self) -> dict[str, Any] | None:
        """The distribution over architectures, beside its prior."""
        if self.point:
            return None
        found = [evidence.probs(run) for run in self.runs]
        probs = {name: pictures.stacked([p[name] for p in found]) for name in found[0]}
        prior = evidence.prior(self.run)
        if not self.depth:
            return {
                "svg": figures.decisions(
                    probs, prior, {d.name: d.options for d in self.run.space.decisions},
                    {d.name: [run.architecture.choices[k] for run in self.runs]
                     for k, d in enumerate(self.run.space.decisions)},
                ),
                "rules": [], "notes": [], "fit": "", "cut": False,
            }  # fmt: skip
        usable = {rule: about for rule, (_, about) in selection.RULES.items()}
        chosen = {rule: [run.selected(rule).choices[0] for run in self.runs] for rule in usable}
        fit = self._baseline_fit() or self._own_fit()
        names = {} if self.several else {rule: depths[0] for rule, depths in chosen.items()}
        return {
            "svg": figures.posterior(probs["depth"], prior["depth"], self.depths, names, fit),
            "rules": [
                {
                    "rule": rule,
                    "about": about,
                    "depth": words.number(*_digits(chosen[rule])) if self.several else str(chosen[rule][0]),
                    "used": rule == self.run.config.select,
                }
                for rule, about in usable.items()
            ],
            "notes": self._belief_notes(probs["depth"]),
            "cut": self.cut,
            "fit": "" if fit is None else "baselines" if fit.colour == GREEN else "own",
        }

    def _belief_notes(self, probs: Any) -> list[str]:
        mean = probs.mean(0)
        plateau = [int(k) for k in (mean >= 0.95 * mean.max()).nonzero()[0]]
        entropy = evidence.mean_and_spread([run.result["distribution"]["entropy"] for run in self.runs])[0]
        most = float(evidence.np.log(len(mean)))
        notes = []
        if entropy > 0.95 * most and len(mean) > 2:
            notes.append(
                f"Belief is nearly flat (entropy {words.number(entropy, 2)} of at most {words.number(most, 2)} nats): "
                "the data hardly tells these depths apart yet, and another seed may select another depth."
            )
        if len(plateau) > 1:
            notes.append(f"Depths {words.ranges(plateau)} are within 95{words.THIN}% of the largest probability.")
        return notes

    def _baseline_fit(self) -> figures.Fit | None:
        points = [(fixed, self.values(runs, "", "log_likelihood")) for _, fixed, runs in self.groups if fixed is not None]
        points = [(fixed, values) for fixed, values in points if values and all(map(_finite, values))]
        mixed, own = self.values(self.runs, "_ensemble", "log_likelihood"), self.values(self.runs, "", "log_likelihood")
        if not points or not self.split:
            return None
        return figures.Fit(
            title=f"{words.SPLITS[self.split]} log-likelihood, nats per example",
            depths=[fixed for fixed, _ in points if fixed is not None],
            values=[values for _, values in points],
            label="fixed depths",
            colour=GREEN,
            mixture=mixed,
            selected=(self.depths[0], own[0]) if own and not self.several else None,
        )

    def _own_fit(self) -> figures.Fit | None:
        split = "valid" if "valid" in self.courses[0].values else "train"
        found = [c.at_kept(split, "depth_log_likelihood") for c in self.courses]
        mixed = [c.at_kept(split, "log_likelihood") for c in self.courses]
        fits = [f for f in found if f is not None]
        if not fits:
            return None
        by_depth = pictures.stacked(fits).T
        good = [d for d, values in enumerate(by_depth) if all(map(_finite, values))]
        if not good:
            return None
        return figures.Fit(
            title=f"{words.SPLITS[split]} log-likelihood of each depth of the shared network, nats per example",
            depths=good,
            values=[by_depth[d].tolist() for d in good],
            label="each depth",
            colour=BLUE,
            mixture=[float(m) for m in mixed if m is not None],
        )

    def over_time(self) -> dict[str, Any] | None:
        """How belief formed."""
        if self.point or len(self.courses[0].epochs) < 2:
            return None
        return {"svg": figures.course(self.courses, "depth" if self.depth else None)}

    def curves(self) -> dict[str, Any] | None:
        """How training went."""
        values, examples = self.courses[0].values, self.run.config.data["examples"]["train"]
        if len(self.courses[0].epochs) < 2:
            return None
        splits = [s for s in ("train", "valid") if s in values]
        steps = () if self.several else ("step",)  # one line a seed is enough
        short = {"step": "steps", "train": "train", "valid": "valid."}
        panels: list[figures.CurvePanel] = []
        if all("elbo" in values[s] for s in splits):
            lines = [figures.Line("step", "elbo", "steps", examples)] if "elbo" in values["step"] and not self.several else []
            lines += [figures.Line(s, "objective", short[s]) for s in splits]
            panels.append(figures.CurvePanel("ELBO, nats per training example", lines))
        for name, title in (
            ("log_likelihood", "log-likelihood, nats" + ("" if self.point else ", mixture")),
            ("accuracy", "accuracy" + ("" if self.point else ", mixture")),
            ("squared_error", "mean squared error"),
        ):
            lines = [figures.Line(s, name, short[s]) for s in (*steps, *splits) if name in values.get(s, {})]
            if lines:
                panels.append(figures.CurvePanel(title, lines, percent=name == "accuracy"))
        if not panels:
            return None
        last = [c.kept == c.epochs[-1] for c in self.courses]
        return {
            "svg": figures.curves(self.courses, panels),
            "kept": words.ranges(sorted({c.kept for c in self.courses})) if not self.several else "",
            "rising": all(last),
            "steps": any(line.split == "step" for panel in panels for line in panel.lines),
            "one": len(splits) == 1 and words.SPLITS[splits[0]],
        }

    def calibration(self) -> dict[str, Any] | None:
        """Whether confidence can be trusted, before and after pruning."""
        found = evidence.judged_split(self.task)
        if not self.classifies or found is None:
            return None
        return {"svg": pictures.calibration(self.runs, self.voices, *found, depth=self.depth)}

    def gallery(self) -> dict[str, Any] | None:
        """The images that the mixture finds hardest."""
        found = evidence.judged_split(self.task)
        shape = self.task.input_shape
        if not self.classifies or found is None or len(shape) != 3 or shape[0] not in (1, 3):
            return None
        return {"cards": pictures.gallery(self.voices, found[1], self.task)}

    def cost(self) -> dict[str, Any] | None:
        """What the selected network costs beside the largest."""
        if not self.cut:
            return None
        costs, seconds = [run.result["cost"] for run in self.runs], [run.result["forward_seconds"] for run in self.runs]
        rows = []
        for name, small, large, show in (
            ("parameters", [c["selected"]["parameters"] for c in costs], [c["largest"]["parameters"] for c in costs], words.whole),
            ("multiply-accumulates", [c["selected"]["macs"] for c in costs], [c["largest"]["macs"] for c in costs], words.whole),
            ("forward pass", [s["selected"] for s in seconds], [s["largest"] for s in seconds], words.milliseconds),
        ):  # fmt: skip
            share = _mean([a / b if b else 1.0 for a, b in zip(small, large, strict=True)])
            saved = 1 - share
            rows.append(
                {
                    "name": name,
                    "selected": show(_mean(small)),
                    "largest": show(_mean(large)),
                    "width": f"{100 * min(share, 1):.1f}",
                    "saved": words.about_percent(saved) + " saved" if saved >= 0.0005 else "nothing saved",
                }
            )
        examples = min(512, self.run.config.data["examples"]["train"])
        return {"rows": rows, "examples": words.whole(examples), "mean": self.several}

    def made(self) -> dict[str, Any]:
        """Settings, and how to repeat, resume and use the run."""
        config = self.run.config
        again = self.folder.with_name(self.folder.name + "-again")
        source = config.data["source"]
        data: dict[str, Any] = {"name": config.data["name"], "input": " × ".join(map(str, config.data["input"]))}
        data |= {f"{words.SPLITS[name]} examples": words.whole(n) for name, n in config.data["examples"].items()}
        data |= config.data["likelihood"] | {"fingerprint": config.data["fingerprint"][:12]}
        data |= source["settings"] if source else {"source": "memory"}
        general = {
            "prior": config.prior if isinstance(config.prior, str) else "given as a distribution",
            "selection rule": config.select,
            "seeds" if self.several else "seed": words.ranges([run.seed for run in self.runs]),
            "kept epoch": words.ranges(sorted({c.kept for c in self.courses})),
            "examples seen (forward)": words.whole(self.run.result["budget"]["forward"]),
            "examples seen (backward)": words.whole(self.run.result["budget"]["backward"]),
            "device": config.device,
            **{f"{name} version": version for name, version in config.versions.items()},
        }
        return {
            "tables": [
                ("Run", general),
                ("Data", data),
                (f"Space: {config.space['name']}", config.space["settings"]),
                (f"Method: {config.method['name']}", config.method["settings"]),
            ],
            "command": words.search_command(self.run, again, len(self.runs)),
            "call": words.search_call(self.run, again, len(self.runs)),
            "resume": words.resume_command(self.folder),
            "python": self._python(),
            "baselines": [str(run.folder) for run in self.baselines],
        }

    def _python(self) -> str:
        lines = ["import polyarch as pa", "", f"run = pa.open_run({str(self.run.folder)!r})"]
        name = self.run.space.decisions[0].name
        if not self.point:
            lines.append(f"run.distribution.probs()[{name!r}]   # belief")
        lines.append("model = run.model()                    # the selected network: a plain nn.Module on raw inputs")
        if any(voice.pruned for voice in self.voices):
            lines.append("ensemble = run.ensemble()              # the mixture; ensemble.output(x) predicts")
            if self.classifies:
                lines.append("ensemble(x).mutual_information         # where its members disagree")
        return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return evidence.mean_and_spread(values)[0]


def _digits(values: Sequence[float]) -> tuple[float, int, float]:
    mean, deviation = evidence.mean_and_spread(values)
    return mean, 1, deviation


def _finite(value: float) -> bool:
    return abs(value) < float("inf")
