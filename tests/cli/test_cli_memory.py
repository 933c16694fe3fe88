"""Too little memory is one line that says what to lower for this very search, and the doctor says it before."""

import numpy as np
import pytest
import torch
from commandline import SPIRALS, TINY, check_one_line, cli, refused

import polyarch as pa
from polyarch.errors import PolyarchError, is_lack_of_memory

CELLS = ("--space", "nasbench201", "--set", "channels=1", "--set", "cells=1", "--device", "cpu")
DARTS = ("--space", "darts", "--set", "channels=1", "--set", "layers=2", "--device", "cpu")
NO_MEMORY = "CUDA out of memory. Tried to allocate 20.00 GiB.\nGPU 0 has a total capacity of 1.00 GiB"


def on_a_full_device(*_):
    raise torch.OutOfMemoryError(NO_MEMORY)


def while_capturing(*_):
    """As `torch.cuda.graph` leaves it: what fails inside makes the end of the recording fail, too."""
    try:
        on_a_full_device()
    finally:
        raise torch.AcceleratorError("CUDA error: operation failed due to a previous error during capture")


def in_a_library(*_):
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def on_a_full_host(*_):
    torch.empty(10**15)


def of_python(*_):
    raise MemoryError


def ends_in_one_line(*arguments, says=()):
    """Fails by one line, after what a search says that has begun, or reads data on a slow machine."""
    ended = cli(*arguments)
    *begun, error = ended.err.splitlines(keepends=True)
    assert ended.code == 2
    said = (" examples", "belief cannot form", "chosen for", "search: reading ")
    assert all(any(words in line for words in said) for line in begun)
    check_one_line(error, says)


@pytest.mark.parametrize("fails", [on_a_full_device, while_capturing, in_a_library, on_a_full_host, of_python])
@pytest.mark.parametrize("where", ["step", "evaluate", "init"])
def test_a_search_that_runs_out_of_memory(tmp_path, monkeypatch, fails, where):
    monkeypatch.setattr(pa.methods.VariationalDepth, where, fails)
    says = (
        "not enough memory; start a new search with a lower batch_size, max_depth or width (`polyarch doctor` says how "
        "much it needs)"
    )
    ends_in_one_line("search", *TINY, "--out", tmp_path / "run", says=says)


@pytest.mark.parametrize(
    ("method", "arguments", "says"),
    [
        (pa.methods.Darts, (*CELLS, "--method", "darts"), "a lower batch_size, channels or cells ("),
        (pa.methods.Darts, (*CELLS, "--method", "darts", "--repeats", "2"), "batch_size, channels, cells or repeats ("),
        (pa.methods.Parsec, (*DARTS, "--method", "parsec"), "a lower batch_size, channels or layers ("),
        (
            pa.methods.Parsec,
            (*DARTS, "--method", "parsec", "--set", "form=dense"),
            "a lower batch_size, channels or layers, or with form=sparse (",
        ),
    ],
)
def test_it_names_what_the_search_has(tmp_path, monkeypatch, method, arguments, says):
    monkeypatch.setattr(method, "step", on_a_full_device)
    ends_in_one_line("search", *arguments, "--out", tmp_path / "run", says=says)


def test_one_that_is_resumed(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(pa.methods.VariationalDepth, "evaluate", on_a_full_device)
        ends_in_one_line("search", *TINY, "--out", tmp_path / "run")
        says = "a lower batch_size, max_depth or width ("
        ends_in_one_line("search", "--resume", "--out", tmp_path / "run", says=says)
    assert cli("search", "--resume", "--out", tmp_path / "run").code == 0


def test_training_one_network(tmp_path, monkeypatch):
    monkeypatch.setattr(pa.methods.Standalone, "step", on_a_full_device)
    cell = str(pa.spaces.NasBench201().architecture([3] * 6))
    told = ("--space", "nasbench201", "--arch", cell, "--data", "digits", "--out", tmp_path / "run")
    ends_in_one_line("train", *told, says="a lower batch_size, channels or cells (")


def test_other_commands(tmp_path, monkeypatch):
    assert cli("search", *TINY, "--out", tmp_path / "run").code == 0
    monkeypatch.setattr(pa.runs.run.Run, "model", on_a_full_device)
    np.savez(tmp_path / "new.npz", x=np.zeros((2, 2), np.float32))
    said = refused("evaluate", tmp_path / "run", says="not enough memory; ")
    assert "batch_size" not in said.err


def test_what_is_no_lack_of_memory(tmp_path, monkeypatch):
    def reads_back(*_):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    monkeypatch.setattr(pa.methods.VariationalDepth, "step", reads_back)
    with pytest.raises(RuntimeError, match="when stream is capturing"):
        cli("search", *TINY, "--out", tmp_path / "run")
    assert not is_lack_of_memory(PolyarchError("of memory: out of memory"))


@pytest.mark.nightly
def test_the_doctor_tells_a_cuda_device_apart():
    told = ("--space", "nasbench201", "--method", "darts", "--set", "channels=2", "--set", "cells=1")
    rolled_out = (*told, "--set", "objective.loss=sotl", "--set", "objective.steps=4")
    found = cli("doctor", *rolled_out, "--json").json["search"]
    bytes_, cuda = found["bytes"], found["bytes_on_cuda"]
    assert set(bytes_) == {"state", "scratch", "data", "step", "evaluation", "total"}
    busiest = max(bytes_["step"], bytes_["evaluation"])
    assert bytes_["total"] == 2 * bytes_["state"] + bytes_["scratch"] + bytes_["data"] + busiest
    assert cuda["graphs"] > 1.2 * bytes_["step"], "training again is warmed up beside the pool of the way there"
    assert cuda["total"] > bytes_["total"]
    sampled = ("--space", "nasbench201", "--method", "single-path", "--json")
    sparse = cli("doctor", *sampled, "--set", "form=sparse").json["search"]
    assert sparse["bytes_on_cuda"] == {"graphs": 0, "total": sparse["bytes"]["total"]}
    chosen = cli("doctor", *sampled).json["search"]
    assert chosen["bytes_on_cuda"]["graphs"] > 0, "networks of this space run fused there, and dense then"
    printed = cli("doctor", *rolled_out).out
    assert "\n  memory: state " in printed
    assert "\n  on a CUDA device: graphs " in printed


def test_the_doctor_says_what_to_lower():
    printed = cli("doctor", *SPIRALS, "--set", "width=1000000", "--repeats", "2").out
    assert printed.endswith("more than cpu has: start with a lower batch_size, max_depth, width or repeats\n")
    too_much = ("--set", "width=100000000000000000000")
    refused("doctor", *SPIRALS, *too_much, says="not enough memory; start a new search with a lower batch_size")
