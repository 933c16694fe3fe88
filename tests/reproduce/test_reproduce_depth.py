"""The paper's depth experiments: a short run, and tables and figures from tiny rows and from what is committed."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "depth"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def depth():
    from reproduce import depth

    return depth


@pytest.fixture
def tables():
    from reproduce import depth_tables

    return depth_tables


@pytest.fixture
def figures():
    from reproduce import depth_figures

    return depth_figures


SECONDS = {"selected": 0.01, "largest": 0.02, "ensemble": 0.03, "unpruned": 0.04}


def quality(fit, accuracy=0.9):
    return {"accuracy": accuracy, "log_likelihood": fit, "ece": 0.02, "ece_all_classes": 0.09}


def a_row(seed, selected, deepest, fit=-0.1, **labels):
    probs = [1 / (deepest + 1)] * (deepest + 1)
    rules = {
        rule: {"depth": selected, "network": quality(fit - 0.1), "mixture": quality(fit)}
        for rule in ("argmax", "95%", "expectation")
    }
    return {**labels, "seed": seed, **rules, "full": quality(fit - 0.01), "probs": probs, "forward_seconds": SECONDS}


def write(folder, name, rows):
    part = name.split("-")[0]
    found = {"part": part, "command": f"python -m reproduce.depth --only {part}", "machine": "a machine", "rows": rows}
    (folder / f"{name}.json").write_text(json.dumps(found))


@pytest.fixture
def tiny(tmp_path):
    """Every part, as small as can be."""
    ldn = {"who": "LDN"}
    write(
        tmp_path,
        "draws",
        [
            *(a_row(seed, 2 + seed, 4, -0.1 * (1 + seed), **ldn, D=4) for seed in range(2)),
            *(a_row(seed, d, d, -0.3, who="DDN", D=d) for seed in range(2) for d in (1, 4)),
        ],
    )
    write(tmp_path, "released", [a_row(0, 2, 4, **ldn, D=4)])
    write(tmp_path, "max_depths", [a_row(0, 2, 4, **ldn, D=4)])
    write(tmp_path, "max_depths-8-9", [a_row(0, 5, d, **ldn, D=d) for d in (8, 9)])
    write(tmp_path, "widths", [a_row(seed, 2, 4, **ldn, width=w) for seed in range(2) for w in (5, 50)])
    write(tmp_path, "rotations", [a_row(0, 2, 4, **ldn, rotation=r) for r in (180, 360)])
    write(tmp_path, "points-50", [a_row(0, 2, 4, **ldn, points=50)])
    write(tmp_path, "updates", [a_row(0, 2, 4, **ldn, update=u, prior="uniform") for u in ("sgd", "em")])
    write(tmp_path, "pruning", [a_row(0, 2, 4) | {"difference": -0.012, "examples_with_90_percent": 7}])
    gap = {"running": [-1.0] * 4 + [-0.2] * 3, "batch": [-0.5] * 4 + [-0.1] * 3}
    lag = {"kl_to_posterior": 3.25, "posterior_mode": 1}
    write(tmp_path, "head", [a_row(seed, 2, 6, statistics="shared", fit=-0.1) | {"fit": gap} | lag for seed in (0, 1)])
    for part, data in (("fashion", "fashion-mnist"), ("mnist", "mnist")):
        write(tmp_path, part, [a_row(0, 20, 50, who=who, data=data, D=50, epochs=45) for who in ("LDN", "DDN")])
    write(tmp_path, "times", [{"D": 50, "depth": d, "seed": 0, "forward_seconds": SECONDS} for d in (20, 28)])
    return tmp_path


def cells(markdown, first):
    """The cells of the line that begins so."""
    [line] = [line for line in markdown.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_quick_run(depth, tables, call, tmp_path, capsys):
    call(depth, "--quick", "--only", "released", "--epochs", 5, "--seeds", 1, "--device", "cpu",
         "--out", tmp_path)  # fmt: skip
    part = tables.read(tmp_path, "released")
    [row] = part.rows
    assert row["epochs"] == 5
    assert sum(row["probs"]) == pytest.approx(1, abs=1e-3)
    assert "--only released --epochs 5" in part.source
    capsys.readouterr()
    call(depth, "--table", "--out", tmp_path)
    printed = capsys.readouterr().out
    assert cells(printed, "20")[-1] == "1"
    assert "(not run: draws)" in printed


def test_tables_of_tiny_rows(depth, call, tiny, capsys):
    call(depth, "--table", "--out", tiny)
    text = capsys.readouterr().out
    assert cells(text, "LDN pruned, D=4") == [
        "LDN pruned, D=4", "2.5 ± 0.7 (2 … 3)", "−0.150 ± 0.071", "10.00 ± 0.00", "2",
    ]  # fmt: skip
    assert cells(text, "LDN full, D=4")[1:3] == ["4", "−0.160 ± 0.071"]
    assert cells(text, "LDN selected network alone, D=4")[2] == "−0.250 ± 0.071"
    assert cells(text, "DDN, depth 1")[2] == "−0.400 ± 0.000"
    assert cells(text, "9")[1] == "5"  # from the second file of the part
    assert cells(text, "shared")[1:3] == ["−0.5000 ± 0.0000", "−0.1000 ± 0.0000"]
    assert cells(text, "all")[-2:] == ["−0.0120", "7"]
    assert cells(text, "exact E-step (Eq. 5)")[1] == "uniform"
    assert "| MNIST | 50 | LDN | 45 | 1.00 | 1 |" in text  # belief did not move
    assert "| MNIST | 50 | DDN | 45 |  | 1 |" in text
    assert "| MNIST | 50 | LDN-95, network alone | 20 | 10.00 | −0.200 | 2.00 | 9.00 | 50 % |  |  | 1 |" in text
    assert "| MNIST | 50 | LDN-95 | 20 | 10.00 | −0.100 | 2.00 | 9.00 | 25 % | 18 | 62 % | 1 |" in text
    assert "| 50 | 20 | 10 of 20 | 50 % | 30 of 40 | 25 % | 60 % |  |" in text
    assert "| 50 | 28 | 10 of 20 | 50 % | 30 of 40 | 25 % | 44 % | 41 % |" in text
    assert cells(text, "head, statistics shared")[1:3] == ["3.25 ± 0.00", "1.0 ± 0.0 (1 … 1)"]
    assert text.count("`python -m reproduce.depth --only max_depths` on a machine") >= 1


def test_rows_of_two_files_count_once(tables, tmp_path):
    write(tmp_path, "max_depths", [a_row(0, 2, 4, who="LDN", D=4)])
    write(tmp_path, "max_depths-4", [a_row(s, 3, 4, who="LDN", D=4) for s in (0, 1)])
    assert [row["argmax"]["depth"] for row in tables.read(tmp_path, "max_depths").rows] == [2, 3]
    assert tables.read(tmp_path, "widths") is None


def drawn(files):
    files = list(files)
    for file in files:
        text = file.read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg"
        assert root.find(f"{SVG}title").text
        assert "var(--" not in text
        assert len(text) < 300_000
    return {file.stem for file in files}


def test_figures_of_tiny_rows(figures, tiny, capsys):
    # Several D of images; of the committed rows there is one.
    write(tiny, "image_depths", [a_row(0, 3, 10, who=who, data="mnist", D=10) for who in ("LDN", "DDN")])
    assert drawn(figures.draw(tiny, list(figures.DRAWINGS))) == set(figures.DRAWINGS)


def test_what_is_missing_is_skipped(depth, call, tiny, capsys):
    for file in tiny.glob("*.json"):
        if file.stem not in {"draws", "rotations"}:
            file.unlink()
    call(depth, "--figures", "fig2,fig4,fig6", "--out", tiny)
    assert drawn(tiny.glob("*.svg")) == {"fig2", "fig6"}
    assert "fig4: no rows of fashion or mnist or image_depths, skipped" in capsys.readouterr().out


def test_functions_on_the_plane(figures, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(figures, "SIDE", 24)
    assert drawn(figures.draw(tmp_path, ["fig3"], epochs=4)) == {"fig3"}
    learnt = figures.learn("LDN", 4, 720.0, 200)
    assert learnt.alone.shape == learnt.cut.shape == (21, figures.SIDE, figures.SIDE)
    assert learnt.cut[0] == pytest.approx(learnt.alone[0])  # cut at 0, all weight is there
    mixed = (learnt.probs[:, None, None] * learnt.alone).sum(0)
    assert learnt.cut[-1] == pytest.approx(mixed, abs=1e-6)


def test_committed_results(depth, figures, tables, call, tmp_path, capsys):
    for file in RESULTS.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    call(depth, "--table", "--out", tmp_path)
    printed = capsys.readouterr().out
    assert cells(printed, "DDN, depth 20")[-1] == "6"
    page = (RESULTS.parent / "depth.md").read_text(encoding="utf-8")
    for block in printed.strip().split("\n\n"):
        assert block in page  # the page shows what the rows say
    assert drawn(figures.draw(tmp_path, list(figures.DRAWINGS))) >= {"fig2", "fig4", "fig5", "fig9", "fig10", "fig11"}
    assert drawn(RESULTS.glob("*.svg"))
