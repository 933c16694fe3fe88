"""`polyarch doctor`: what is installed, what there is to compute on, and what a search would need."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from typing import Annotated, Any

import typer

from polyarch.cli.metrics import counted
from polyarch.cli.options import Json, Set
from polyarch.cli.waiting import waiting


def doctor(
    space: Annotated[str | None, typer.Option("--space", help="[default: depth]")] = None,
    method: Annotated[str | None, typer.Option("--method", help="[default: variational-depth]")] = None,
    data: Annotated[str | None, typer.Option("--data", help="[default: digits]")] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="A published search; see `polyarch list`.")] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1)] = 1,
    settings: Set = [],  # noqa: B006
    timed: Annotated[
        bool, typer.Option("--time", help="Also make a few steps, and say how long the search would take here.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Versions, devices, and the parameters and memory that a search with these options would need."""
    import torch

    from polyarch.cli.choices import asked, choose, published
    from polyarch.cli.progress import Followed, in_words
    from polyarch.runs.search import configured
    from polyarch.runs.timing import foretell
    from polyarch.training.dry_run import dry_run
    from polyarch.training.lack_of_memory import saying_what_to_lower, what_to_lower
    from polyarch.version import __version__

    names = asked(published(preset) if preset else None, space, method, data)
    chosen = choose(names.space, names.method, names.data, settings, names.settings)
    with waiting(f"doctor: reading {names.data}"):
        task, searched, how, by_rule = chosen.prepared()
    searched.check(task.shape)
    how.check(searched)
    with saying_what_to_lower(how, searched, repeats):
        estimate = dry_run(how, searched, task, repeats)
        seconds = foretell(configured(searched, task, how, repeats=repeats), task) if timed else None
    drawn = searched.random().architectures if how.draws_from_space else searched.count()
    found: dict[str, Any] = {
        "versions": {
            "polyarch": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "devices": {"cpu": {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "memory": _memory()}},
        "search": {
            "architectures": drawn,
            "train_examples": len(task.train),
            "chosen": by_rule.settings,
            "parameters": estimate.parameters,
            "bytes": {
                "state": estimate.state,
                "scratch": estimate.scratch,
                "data": estimate.data,
                "step": estimate.step,
                "evaluation": estimate.evaluation,
                "total": estimate.total,
            },
            "bytes_on_cuda": {"graphs": estimate.graphs, "total": estimate.cuda_total},
            **({"seconds": asdict(seconds)} if seconds else {}),
        },
    }
    for k in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(k)
        found["devices"][f"cuda:{k}"] = {"name": properties.name, "memory": properties.total_memory}
    if as_json:
        print(json.dumps(found))
        return
    print("versions:", ", ".join(f"{name} {version}" for name, version in found["versions"].items()))
    for name, device in found["devices"].items():
        print(f"{name}:", ", ".join(f"{k} {_readable(v) if k == 'memory' else v}" for k, v in device.items()))
    examples = f"{found['search']['train_examples']:,} training examples"
    print(f"search: {names.space} by {names.method} on {names.data}, {examples}")
    if by_rule:
        print(f"  {by_rule}")
    print(
        f"  {counted(found['search']['architectures'], 'architecture')}, {estimate.parameters:,} parameters per repeat"
    )
    for where, part in (("memory", "bytes"), ("on a CUDA device", "bytes_on_cuda")):
        print(f"  {where}:", ", ".join(f"{k} {_readable(v)}" for k, v in found["search"][part].items()))
    if seconds:
        print(f"  time: {in_words(seconds, Followed(trains=True, plain=True))}")
    for name, device in found["devices"].items():
        if device["memory"] < (estimate.total if name == "cpu" else estimate.cuda_total):
            print(f"  more than {name} has: start with {what_to_lower(how, searched, repeats)}")


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _readable(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
