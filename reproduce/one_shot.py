"""One-shot supernets and ranking: who is best, and how sure are we (SoTL thesis, section 4.2)?

    python -m reproduce.one_shot curves        # seconds: SoTL in recorded curves, Figs. 4.4 and 4.5
    python -m reproduce.one_shot table         # two minutes: parameters, SynFlow and black-box search on NAS-Bench-201
    python -m reproduce.one_shot coverage      # a quarter of an hour: how often 95 % intervals hold what they are for
    python -m reproduce.one_shot supernets     # seconds: Tables 4.1, 4.4, 4.5, Figs. 4.6 to 4.8; --raw FOLDER

    python -m reproduce.one_shot show          # what was found, as Markdown
    python -m reproduce.one_shot figures       # figures as PNG

Tables are found through POLYARCH_TABLES; or give paths. Supernets are those of `reproduce.own_supernets`. Every part
writes docs/results/ranking/PART.json (rows, the command, machine); tables and figures come from these. A part is a
module with `ABOUT`, `options`, `rows`, `SECTIONS` and `DRAWINGS`.
"""

from __future__ import annotations

from pathlib import Path

from reproduce import one_shot_coverage, one_shot_curves, one_shot_supernets, one_shot_table
from reproduce.showing import RESULTS, Row, draw, keep, page, parser_of

PARTS = {
    "curves": one_shot_curves,
    "table": one_shot_table,
    "coverage": one_shot_coverage,
    "supernets": one_shot_supernets,
}


def said(row: Row) -> str:
    """A row in short."""
    return "  " + ", ".join(str(value) for value in row.values() if isinstance(value, str | int | float))


def main() -> None:
    """Runs a part and writes its rows; or prints and draws what there is."""
    parser = parser_of(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, part in PARTS.items():
        verb = verbs.add_parser(name, help=part.ABOUT)
        verb.add_argument("--table", default="nasbench201", help="name or path of NAS-Bench-201's table")
        part.options(verb)
    verbs.add_parser("show", help="print all tables as Markdown")
    verbs.add_parser("figures", help="draw all figures")
    for verb in verbs.choices.values():
        verb.add_argument("--out", type=Path, default=RESULTS / "ranking", help="default: docs/results/ranking")
    given = parser.parse_args()
    if given.verb == "show":
        print(page(given.out, [section for part in PARTS.values() for section in part.SECTIONS]), end="")
    elif given.verb == "figures":
        draw(given.out, {name: drawing for part in PARTS.values() for name, drawing in part.DRAWINGS.items()}, "png")
    else:
        part = PARTS[given.verb]
        print(f"{given.verb}: {part.ABOUT}", flush=True)
        file = given.out / f"{given.verb}.json"
        keep(file, part.rows(given), "table", "curves", "raw", say=said, part=given.verb, about=part.ABOUT)


if __name__ == "__main__":
    main()
