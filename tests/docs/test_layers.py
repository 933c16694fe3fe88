"""The layers that the docs draw are those that `make check` proves."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_draws_every_layer_in_the_order_of_the_contract():
    [contract] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [part.strip() for layer in contract["layers"] for part in layer.split("|") if part.strip() != "__main__"]
    page = (ROOT / "docs" / "concepts.md").read_text()
    drawn = page.partition("## Layers")[2].partition("```text")[2].partition("```")[0]
    rows = {}
    for row, line in enumerate(drawn.splitlines()):
        rows |= {word.removesuffix("/"): row for word in line.split() if word.removesuffix("/") in layers}
    assert set(layers) == rows.keys()
    assert [rows[name] for name in layers] == sorted(rows[name] for name in layers)
