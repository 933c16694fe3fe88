"""The measurement of second-order DARTS: rows that make sense, and the table."""

import json

from reproduce import second_order


def test_a_quick_run_and_its_table(tmp_path, monkeypatch, capsys):
    small = ("--seeds", "1", "--epochs", "0", "--channels", "2", "--cells", "1", "--out", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["second_order.py", "--quick", *small])
    second_order.main()
    rows = json.loads((tmp_path / "second-order-digits.json").read_text())["rows"]
    products = {row["activation"]: row for row in rows if row["kind"] == "product"}
    assert products["silu"]["off"] < 0.05
    assert products["relu"]["off"] > 10 * products["silu"]["off"]
    assert products["silu"]["second"] > 0.999
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["second_order.py", "--table", "--out", str(tmp_path)])
    second_order.main()
    said = capsys.readouterr().out
    assert "| relu | 0 |" in said
    assert "first 1.00, second" in said
