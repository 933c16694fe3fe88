"""Runs with another history than their own."""

import json
import shutil

from polyarch.runs.run import METRICS, WEIGHTS, Run
from polyarch.training import checkpoints


def rewritten(run, folder, change) -> Run:
    """A copy of a run whose lines of metrics are what `change` makes of them; the last of them is the kept one."""
    shutil.copytree(run.folder, folder)
    lines = change(run.history())
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    tensors, _ = checkpoints.load(folder / WEIGHTS)
    checkpoints.save(folder / WEIGHTS, tensors, {"best_epoch": lines[-1]["epoch"]})
    return Run(folder, run.task())


STAGES = ((0, 1), (0, 2), (1, 1), (1, 2), (1, 3), (2, 1))
"""Stage and epoch of each of six lines."""


def in_stages(lines):
    """Six lines as those of a search in stages: belief rests in the first epoch of each, and options are left out."""
    for line, (stage, epoch) in zip(lines, STAGES, strict=True):
        line |= {"stage": stage, "epoch": epoch}
        if epoch == 1:
            del line["step"]["search_log_likelihood"]
        for name, probs in line["probs"].items():
            left = [0.0 if k < stage else p for k, p in enumerate(probs)]
            line["probs"][name] = [p / sum(left) for p in left]
    return lines
