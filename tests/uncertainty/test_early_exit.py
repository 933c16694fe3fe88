"""Early exit against enumeration: the curve, the threshold, who leaves where, and that later blocks see nobody else."""

import math

import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.methods import VariationalDepth
from polyarch.spaces import Fourier, ModuleSpace, ResidualDepth
from polyarch.uncertainty.early_exit import cut_mixtures, exit_curve


def leave(confidence, threshold):
    """Where every input leaves: the first depth that is sure enough, else the last."""
    last = len(confidence) - 1
    return [next((d for d in range(last) if confidence[d][k] >= threshold), last) for k in range(len(confidence[0]))]


def measured(confidence, correct, threshold):
    """Mean depth, accuracy and excess at a threshold, by counting."""
    last, found = len(confidence) - 1, leave(confidence, threshold)
    early = [k for k, d in enumerate(found) if d < last]
    errors = sum(not correct[found[k]][k] for k in early) - sum(not correct[last][k] for k in early)
    accuracy = sum(bool(correct[d][k]) for k, d in enumerate(found)) / len(found)
    return sum(found) / len(found), accuracy, errors / max(len(early), 1)


@pytest.mark.parametrize("seed", range(8))
def test_the_curve_is_what_counting_gives(seed):
    """Every set of exits that some threshold gives is a point, with ties among confidences too."""
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.randint(4, 13, (4, 9), generator=generator).double() / 12
    correct = torch.rand(4, 9, generator=generator) < 0.6
    curve = exit_curve(confidence, correct)
    assert math.isinf(curve.threshold[0])
    for k, threshold in enumerate(curve.threshold.tolist()):
        expected = measured(confidence, correct, threshold)
        assert (curve.depth[k].item(), curve.accuracy[k].item(), curve.excess[k].item()) == pytest.approx(expected)
    distinct = {tuple(leave(confidence, t)) for t in [math.inf, *confidence.flatten().tolist(), 1e-9]}
    assert curve.together.tolist() == pytest.approx(correct.double().mean(1).tolist())
    assert len(distinct) == len(curve.threshold) == len({tuple(leave(confidence, t)) for t in curve.threshold.tolist()})

    for risk in (0.0, 0.1, 0.3, 1.0):
        every = [t for t in [math.inf, *confidence.flatten().tolist()] if measured(confidence, correct, t)[2] <= risk]
        chosen = curve.threshold[curve.allowed(risk)].item()
        assert leave(confidence, chosen) == leave(confidence, min(every))


def test_one_depth_has_nowhere_to_leave_early():
    curve = exit_curve(torch.full((1, 5), 0.9), torch.tensor([[True, True, False, True, True]]))
    assert curve.depth.tolist() == [0.0]
    assert curve.accuracy.tolist() == pytest.approx([0.8])
    assert curve.allowed(0.0) == 0


def test_mixtures_are_cut_by_moving_the_mass():
    generator = torch.Generator().manual_seed(0)
    members = torch.randn(5, 6, 3, dtype=torch.float64, generator=generator).log_softmax(-1)
    for weights in (torch.rand(5, generator=generator).double().softmax(0), torch.eye(5).double()[2]):
        found = cut_mixtures(members, weights)
        for d in range(5):
            cut = torch.cat([weights[:d], weights[d:].sum(0, keepdim=True)])
            expected = (cut[:, None, None] * members[: d + 1].exp()).sum(0)
            assert torch.allclose(found[d].exp(), expected, atol=1e-12)


class Own(nn.Module):
    """Answers after one block at the earliest; a head with batch norm."""

    def __init__(self):
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()) for _ in range(4)]
        blocks[0] = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU())
        self.depth = pa.Depth("depth", blocks, nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 10)), least=1)

    def forward(self, x):
        return self.depth(x)


@pytest.fixture(scope="module", params=["built-in", "vectors", "own"])
def run(request, tmp_path_factory):
    """Digits, by the built-in convolutional and fully connected networks and by a module of one's own."""
    space, epochs = {
        "built-in": (ResidualDepth(max_depth=2, width=8), 2),
        "vectors": (ResidualDepth(max_depth=4, block="linear"), 8),
        "own": (ModuleSpace(Own), 8),
    }[request.param]
    task = pa.data.load("digits", select=0.3)
    method = VariationalDepth(epochs=epochs, batch_size=64, update="sgd")  # belief stays broad in so few epochs
    out = tmp_path_factory.mktemp("run") / "run"
    return pa.search(space, task, method, out=out, compute=pa.Compute("cpu"), select="expectation")


def exits_one_by_one(run, x, threshold):
    """Answer and depth of every input, from mixtures that are cut anew at every depth."""
    options = range(run.architecture.choices[0] + 1)
    architectures = [run.space.architecture([option]) for option in options]
    said = torch.stack([run.ensemble(a).precisely(x).log_probs for a in architectures])
    found = leave(said.amax(-1).exp().tolist(), threshold)
    depths = [int(run.space.decisions[0].options[option]) for option in found]
    return torch.stack([said[option, k] for k, option in enumerate(found)]), torch.tensor(depths)


@pytest.mark.parametrize("risk", [0.0, 0.02, 0.3])
def test_a_run_against_enumeration(run, risk):
    model, test, select = run.early_exit(risk), run.task().test.x[:200], run.task().select
    answers, depths = exits_one_by_one(run, test, model.threshold)
    found = model.exits(test)
    assert torch.equal(found.depth, depths)
    assert torch.allclose(found.log_probs, answers, atol=1e-4)
    assert torch.equal(model(test), found.log_probs)

    last = int(run.space.decisions[0].options[run.architecture.choices[0]])
    exits, full = model.exits(select.x), run.ensemble().precisely(select.x)
    early = exits.depth < last
    wrong, wrong_at_last = (said.log_probs.argmax(-1) != select.y for said in (exits, full))
    assert wrong[early].double().sum() - wrong_at_last[early].double().sum() <= risk * early.sum() + 1e-9
    assert early.any()
    assert torch.allclose(exits.log_probs[~early], full.log_probs[~early], atol=1e-4)


def test_more_risk_saves_more(run):
    x = run.task().test.x
    means = [run.early_exit(risk).exits(x).depth.double().mean() for risk in (0.0, 0.05, 0.9)]
    assert means == sorted(means, reverse=True)
    assert means[-1] < means[0]
    assert set(run.early_exit(0.9).exits(x).depth.tolist()) == {int(run.space.decisions[0].options[0])}


def test_later_blocks_see_only_what_has_not_left(run):
    model, x = run.early_exit(0.02), run.task().test.x[:150]
    [steps] = [module for module in model.modules() if type(module).__name__ == "Stepwise"]
    seen = []
    for block in steps.blocks:
        block.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    depth = model.exits(x).depth
    expected = [int((depth > passed).sum()) for passed in range(len(steps.blocks))]
    assert seen == [count for count in expected if count]
    assert seen[-1] < len(x)


def test_nothing_leaves_early_without_a_threshold(run):
    model, x = run.early_exit(0.0), run.task().test.x[:50]
    model.threshold = math.inf
    assert torch.allclose(model(x), run.ensemble().precisely(x).log_probs, atol=1e-4)


def test_it_is_a_plain_module_that_leaves_chance_alone(run, tmp_path):
    chance = torch.get_rng_state()
    model = run.early_exit(0.02)
    assert torch.equal(chance, torch.get_rng_state())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    x = run.task().test.x[:20]
    one_by_one = torch.cat([model(x[k : k + 1]) for k in range(20)])
    assert torch.allclose(one_by_one, model(x), atol=1e-4)


def test_what_cannot_be(tmp_path):
    quick = {"epochs": 1, "batch_size": 32}

    def refused(space, task, message, risk=0.01, method=VariationalDepth):
        run = pa.search(space, task, method(**quick), out=tmp_path / message[:5], compute=pa.Compute("cpu"))
        with pytest.raises(PolyarchError, match=message) as caught:
            run.early_exit(risk)
        assert "\n" not in str(caught.value)

    x, generator = torch.randn(80, 2), torch.Generator().manual_seed(0)
    classes = torch.randint(2, (80,), generator=generator)
    task, small = pa.data.load((x, classes), select=0.3), ResidualDepth(max_depth=2, width=4)
    refused(small, task, "risk is 1.5; it must be 0 or more and below 1", risk=1.5)
    refused(small, task, "must be 0 or more", risk=-0.1)
    refused(small, pa.data.load((x, classes), select=0), "needs validation data")
    refused(small, pa.data.load((x, x[:, 0]), kind="regression"), "this run predicts numbers")
    refused(Fourier(max_degree=2), pa.data.load((x[:, :1], classes)), "have no blocks after which they could answer")
