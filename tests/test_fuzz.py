"""A short round of the fuzz: what is damaged or wrong is taken, or refused in one line, and nothing else happens."""

from bench.fuzz import fuzz


def test_nothing_but_refusals_comes_of_what_is_damaged(tmp_path):
    counts = fuzz(900)
    assert all(own["refused"] for own in counts.values())
    assert {"architecture", "csv", "images", "npz", "run", "setting", "toml", "truth"} <= counts.keys()
