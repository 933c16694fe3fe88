"""`--set labels=N` on the command line: kept in the run, used by its baselines, refused in one line."""

import pytest
from commandline import SMALL, SPIRALS, TINY, cli, refused

import polyarch as pa

WIRED = ("--space", "wiring", "--method", "semi-supervised", "--device", "cpu")


def test_the_run_and_its_baselines_have_the_labels(tmp_path):
    out = tmp_path / "run"
    told = (*SPIRALS, *SMALL, "--set", "epochs=2", "--set", "labels=10", "--baselines", "1")
    assert cli("search", *told, "--out", out).code == 0
    # One batch of all labelled examples; and, where belief is learnt, the validation data that it goes by.
    for folder, forward in ((out, 10 + 18), (out / "baselines" / "depth-1", 10)):
        assert pa.open_run(folder).config.data["examples"]["train"] == 10
        assert pa.open_run(folder).history()[0]["forward"] == forward
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "data.labels=10" in page
    assert "unlabelled examples" in page
    assert cli("search", "--resume", "--set", "labels=10", "--out", out).code == 0
    refused("search", "--resume", "--set", "labels=12", "--out", out, says="labels=12 conflicts with the run")


def test_a_run_with_all_labels_goes_on_with_all(own_copy):
    assert cli("search", "--resume", "--set", "labels=0", "--out", own_copy).code == 0
    refused("search", "--resume", "--set", "labels=10", "--out", own_copy, says="which has 0; leave it out")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ((*TINY, "--set", "labels=1"), "labels=1 is below the 2 classes of spirals"),
        ((*TINY, "--set", "labels=-1"), "labels is -1; it must be at least 0"),
        ((*TINY, "--set", "labels=42"), "labels=42 leaves none of the 42 training examples"),
        (("--space", "fourier", "--data", "fourier", "--device", "cpu", "--set", "labels=5"), "leave labels out"),
        ((*WIRED, "--data", "digits"), "semi-supervised needs examples without a label; say how many keep theirs"),
    ],
)
def test_refused(tmp_path, told, says):
    refused("search", *told, "--out", tmp_path / "run", says=says)
    assert not (tmp_path / "run").exists()
