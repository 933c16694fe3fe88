"""What scoring a candidate costs: SoTL beside a validation pass, and many candidates at once beside one by one.

    python -m bench.candidates [--device cuda] [--candidates 8] [--channels 8] [--cells 1] [--rounds 3]

Candidates are random cells of NAS-Bench-201 with the weights of an untrained supernet, on digits that are repeated to
25,000 images for validation, as many as the thesis has (Fig. 4.6: 4.5 s and 6.5 s on a P100, a ratio of 0.7). One
JSON line: seconds per candidate of 100 minibatches of 64 and of a validation pass with and without batch norm measured
anew, both ways; ratios are medians over rounds, in which everything is measured in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable

import torch

import polyarch as pa
from polyarch.data.task import Split
from polyarch.ranking import draw
from polyarch.scores import Candidate, Curve, Look, Tuning, fine_tuned
from polyarch.scores.fine_tuning import tuned_at_once

STEPS, VALID = 100, 25_000
PASS, RECALIBRATED = Look(recalibrate=False), Look()
LOOKS = (PASS, RECALIBRATED)


def candidates_of(count: int, channels: int, cells: int, device: str) -> list[Candidate]:
    """Random cells."""
    task, space = pa.data.load("digits"), pa.spaces.NasBench201(channels=channels, cells=cells)
    supernet = space.supernet(task.shape)
    supernet.reset_parameters([torch.Generator().manual_seed(0)])
    x, y = ((a.to(device)) for a in (task.train.x.float() / 16, task.train.y))
    many = torch.arange(VALID, device=device) % len(x)
    given = Candidate(
        space.architecture([0] * len(space.decisions)),
        space,
        task.shape,
        supernet.to(device),
        likelihood=task.likelihood,
        train=Split(x, y),
        select=Split(x[many], y[many]),
    )
    return [Candidate(**{**vars(given), "architecture": cell}) for cell in draw(space, count, seed=0)]


def main() -> None:
    """Measures everything in turn, so that a busy moment hits all alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    candidates = candidates_of(given.candidates, given.channels, given.cells, given.device)
    ways: dict[str, Callable[[], list[Curve]]] = {
        "one by one": lambda: [
            fine_tuned([candidate], STEPS, Tuning(), torch.Generator(), looks=LOOKS)[0] for candidate in candidates
        ],
        "at once": lambda: tuned_at_once(candidates, STEPS, Tuning(), LOOKS),
    }
    told: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for k in range(given.rounds + 1):  # the first warms up
        for name, run in ways.items():
            curves = run()
            if not k:
                continue
            told[name].append(
                {
                    "start": statistics.mean(curve.start_seconds for curve in curves),
                    "sotl": statistics.mean(curve.step_seconds for curve in curves),
                    "pass": statistics.mean(curve.looks[PASS].seconds for curve in curves),
                    "recalibrated pass": statistics.mean(curve.looks[RECALIBRATED].seconds for curve in curves),
                }
            )

    def ratio(over: Callable[[int], float], under: Callable[[int], float]) -> float:
        return round(statistics.median(over(k) / under(k) for k in range(given.rounds)), 3)

    alone, at_once = told["one by one"], told["at once"]
    median = {
        name: {what: round(statistics.median(row[what] for row in rows), 4) for what in rows[0]}
        for name, rows in told.items()
    }
    found = {
        "candidates": given.candidates,
        "seconds a candidate": median,
        "sotl over a validation pass": {
            name: ratio(lambda k, rows=rows: rows[k]["sotl"], lambda k, rows=rows: rows[k]["pass"])
            for name, rows in told.items()
        },
        "one by one over at once": {
            "sotl": ratio(
                lambda k: alone[k]["start"] + alone[k]["sotl"], lambda k: at_once[k]["start"] + at_once[k]["sotl"]
            ),
            "recalibrated pass": ratio(
                lambda k: alone[k]["recalibrated pass"], lambda k: at_once[k]["recalibrated pass"]
            ),
        },
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
