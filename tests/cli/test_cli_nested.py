"""Nested spaces other than depth: the same results, baselines and tables, one of the library and one of a user."""

import numpy as np
import pytest
import torch
from commandline import cli, refused

import polyarch as pa

SHORT = ("--method", "variational-depth", "--set", "epochs=3", "--set", "weights.lr=0.01", "--device", "cpu")
FOURIER = ("--space", "fourier", "--data", "fourier", "--set", "max_degree=3", *SHORT)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A search of `sizes:Sizes` with two baselines, as a user would make it."""
    folder, random = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    x = random.normal(size=(60, 1)).astype(np.float32)
    np.savez(folder / "d.npz", x=x, y=(x[:, 0] ** 2 > 0.5).astype(int))
    told = ("--space", "sizes:Sizes", "--data", folder / "d.npz", "--set", "select=0.3", *SHORT)
    found = cli("search", *told, "--baselines", "small,large", "--out", folder / "run", "--json").json
    return folder / "run", found, told


def test_a_nested_space_of_ones_own(own):
    out, found, _ = own
    assert found["selected"] == {"size": found["architecture"].removeprefix("size=")}
    assert set(found["metrics"]) == {
        *(f"{split}{part}" for split in ("select", "test") for part in ("", "_ensemble", "_unpruned")),
        "test_tempered",
    }
    assert set(found["cost"]) == {"selected", "largest"}
    assert found["cost"]["largest"]["parameters"] == 6
    assert set(found["forward_seconds"]) == {"selected", "largest", "ensemble", "unpruned"}
    assert set(found["forward_saving"]) == {"selected", "ensemble"}
    printed = cli("show", out).out
    for row in ("mixture, pruned", "mixture, unpruned", "fixed size=small", "fixed size=large"):
        assert row in printed
    assert "parameters kept" in printed
    evaluated = cli("evaluate", out, "--json").json
    assert set(evaluated["metrics"]) == {"selected", "ensemble", "tempered", "unpruned"}


def test_its_baselines_are_single_options(own):
    """The space cannot be cut: the option is trained in the whole one, and the rest is left as it was drawn."""
    out, _, told = own
    for number, name in ((0, "small"), (2, "large")):
        run = pa.open_run(out / "baselines" / f"size-{number}")
        assert run.result["architecture"] == f"size={name}"
        assert run.result["selected"] == {"size": name}
        assert run.result["distribution"]["probs"]["size"] == [float(k == number) for k in range(3)]
        x = run.task().test.x
        assert torch.allclose(run.ensemble().output(x), run.model()(x).log_softmax(-1), atol=1e-5)
    (out / "baselines" / "size-2" / "result.json").unlink()
    assert cli("search", "--resume", *told, "--out", out).code == 0
    assert pa.open_run(out / "baselines" / "size-2").finished


def test_options_that_it_does_not_have(own, tmp_path):
    _, _, told = own
    says = "--baselines: 'huge' is no size of this space; write some of small, middle, large"
    refused("search", *told, "--baselines", "small,huge", "--out", tmp_path / "run", says=says)


def test_a_nested_space_of_the_library(tmp_path):
    out = tmp_path / "run"
    found = cli("search", *FOURIER, "--baselines", "1,3", "--out", out, "--json").json
    assert found["selected"] == {"degree": found["architecture"].removeprefix("degree=")}
    for degree in (1, 3):
        run = pa.open_run(out / "baselines" / f"degree-{degree}")
        assert run.result["architecture"] == f"degree={degree}"
        assert run.space.max_degree == degree, "this space can be cut"
    assert "fixed degree=1" in cli("show", out).out
