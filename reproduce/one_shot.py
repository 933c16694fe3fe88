"""One-shot supernets and ranking: who is best, and how sure are we (seed 002, section 4.2)?

    python -m reproduce.one_shot curves        # seconds: SoTL in recorded curves, Figs. 4.4 and 4.5
    python -m reproduce.one_shot table         # two minutes: parameters, SynFlow and black-box search on NAS-Bench-201
    python -m reproduce.one_shot supernets     # seconds: Tables 4.1, 4.4, 4.5, Figs. 4.6 to 4.8; --raw FOLDER

    python -m reproduce.one_shot show          # what was found, as Markdown
    python -m reproduce.one_shot figures       # figures as PNG

Tables are found through POLYARCH_TABLES; or give paths. Supernets are those of `reproduce.own_supernets`. Every part
writes docs/results/ranking/PART.json (rows, the command, machine); tables and figures come from these.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduce import one_shot_curves, one_shot_supernets, one_shot_table
from reproduce.depth import machine
from reproduce.one_shot_parts import Part
from reproduce.training_speed_tables import read

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "ranking"
PARTS: dict[str, Part] = {
    "curves": one_shot_curves.PART,
    "table": one_shot_table.PART,
    "supernets": one_shot_supernets.PART,
}
DOTS = 110
"""Of a figure, an inch."""


def command(words: Sequence[str]) -> str:
    """How to run this again; where tables lie and results went is nobody's business."""
    text = re.sub(r"\s*--(out|table|curves|raw)[= ]\S+", "", " ".join(words))
    return f"python -m reproduce.one_shot {text.strip()}"


def write(name: str, arguments: argparse.Namespace) -> None:
    """Runs one part; its rows are written as they come, so that a long part cut short is not lost."""
    part = PARTS[name]
    print(f"{name}: {part.about}", flush=True)
    found: dict[str, Any] = {
        "part": name,
        "about": part.about,
        "command": command(sys.argv[1:]),
        "machine": machine("cpu"),
        "rows": [],
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    for row in part.rows(arguments):
        found["rows"].append(row)
        told = [str(value) for value in row.values() if isinstance(value, str | int | float)]
        print(f"  {', '.join(told)}", flush=True)
        (arguments.out / f"{name}.json").write_text(json.dumps(found) + "\n")


def markdown(folder: Path) -> str:
    """All tables that there are rows for, and a line for each part that there are none for."""
    texts = []
    for name, part in PARTS.items():
        found = read(folder, name)
        if found is None:
            texts.append(f"(not run: {name})")
            continue
        for title, note, make in part.sections:
            texts.extend(text for text in (f"### {title}", note, make(found)) if text)
        texts.append(found.source)
    return "\n\n".join(texts) + "\n"


def draw(folder: Path) -> None:
    """All figures that there are rows for."""
    from polyarch.plotting import CARD, style

    for name, part in PARTS.items():
        found = read(folder, name)
        if found is None:
            continue
        for file, make in part.figures.items():
            with style():
                make(found).savefig(folder / f"{file}.png", dpi=DOTS, facecolor=CARD, metadata={"Software": None})
            print(folder / f"{file}.png")


def main() -> None:
    """Runs a part and writes its rows; or prints and draws what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, part in PARTS.items():
        verb = verbs.add_parser(name, help=part.about)
        verb.add_argument("--table", default="nasbench201", help="name or path of NAS-Bench-201's table")
        part.options(verb)
    verbs.add_parser("show", help="print all tables as Markdown")
    verbs.add_parser("figures", help="draw all figures")
    for verb in verbs.choices.values():
        verb.add_argument("--out", type=Path, default=RESULTS, help="default: docs/results/ranking")
    arguments = parser.parse_args()
    if arguments.verb == "show":
        print(markdown(arguments.out), end="")
    elif arguments.verb == "figures":
        draw(arguments.out)
    else:
        write(arguments.verb, arguments)


if __name__ == "__main__":
    main()
