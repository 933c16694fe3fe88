import pytest
import torch

import polyarch as pa
from polyarch.methods import FixedDepth, VariationalDepth
from polyarch.training.capture import CapturedStep


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", [VariationalDepth, FixedDepth])
@pytest.mark.parametrize("data", ["spirals", "digits"])
def test_captured_search_equals_the_same_search_on_the_cpu(tmp_path, method, data):
    task = pa.data.load(data)
    space = pa.spaces.ResidualDepth(max_depth=4, width=16)
    settings = {"epochs": 4, "batch_size": 64, "rate": 0.02}
    runs = {d: pa.search(space, task, method(**settings), out=tmp_path / d, device=d) for d in ("cpu", "cuda")}
    log = {d: [line["step"] for line in run.history()] for d, run in runs.items()}
    for cpu, cuda in zip(log["cpu"], log["cuda"], strict=True):
        for name in cpu:
            assert cuda[name] == pytest.approx(cpu[name], rel=2e-2)
    assert torch.allclose(
        runs["cpu"].distribution.probs()["depth"], runs["cuda"].distribution.probs()["depth"], atol=1e-2
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_capturing_leaves_no_trace_in_the_state():
    from polyarch.methods.base import Info

    state = {"count": torch.zeros(1, device="cuda")}

    def step() -> Info:
        state["count"] += 1
        return Info({"count": state["count"].clone()}, 1, 0)

    captured = CapturedStep(step, state, torch.device("cuda"))
    assert state["count"].item() == 0
    assert [captured().metrics["count"].item() for _ in range(3)] == [1, 2, 3]


def test_on_the_cpu_a_step_is_simply_called():
    calls = []
    captured = CapturedStep(lambda: calls.append(1), {}, torch.device("cpu"))
    captured()
    captured()
    assert len(calls) == 2
