"""The identities of the paper (Eqs. 1 to 7), and what its training must do."""

import math

import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import Problem
from polyarch.distributions import Categorical, exponential, uniform
from polyarch.methods import FixedDepth, VariationalDepth
from polyarch.methods.variational_depth import (
    depth_log_likelihood,
    elbo,
    natural_step,
    posterior,
    total_log_likelihood,
)
from polyarch.streams import Streams
from polyarch.testing import check_distribution
from polyarch.training.dry_run import prepare


def log_evidence(fits, prior):
    """Log p(Y | X), which exceeds the bound by KL(q || posterior) (Eq. 4)."""
    return (fits + prior.log_probs.squeeze(-2)).logsumexp(-1)


SPACE = pa.spaces.ResidualDepth(max_depth=6, width=8)


def some_belief(seed):
    logits = torch.randn(1, 1, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Categorical(SPACE.decisions, logits)


def problem_of(task, repeats=1):
    supernet = SPACE.supernet(task.shape, repeats)
    supernet.reset_parameters([Streams(k)["init"] for k in range(repeats)])
    examples = task.seen(task.train)
    return Problem(SPACE, supernet, task.likelihood, exponential(SPACE.decisions), {"train": examples})


def test_log_evidence_less_elbo_is_the_kl_to_the_posterior(spirals):
    """Eq. 4; and the bound is tight at Eq. 5."""
    fits = total_log_likelihood(problem_of(spirals), "train")
    prior = Categorical(SPACE.decisions, exponential(SPACE.decisions).logits.double())
    exact = posterior(fits, prior)
    for seed in range(5):
        belief = some_belief(seed)
        gap = log_evidence(fits, prior) - elbo(fits, belief, prior)
        assert torch.allclose(gap, belief.kl(exact), atol=1e-5)
        assert gap > 0
    assert (log_evidence(fits, prior) - elbo(fits, exact, prior)).abs() < 1e-5


def test_the_posterior_equals_enumeration(spirals):
    fits = total_log_likelihood(problem_of(spirals), "train")[0]
    prior = exponential(SPACE.decisions)
    joint = [math.log(p) + fit for p, fit in zip(prior.probs()["depth"].tolist(), fits.tolist(), strict=True)]
    largest = max(joint)
    weights = [math.exp(j - largest) for j in joint]
    expected = torch.tensor([w / sum(weights) for w in weights], dtype=torch.float64)
    assert torch.allclose(posterior(fits, prior).probs()["depth"], expected, atol=1e-6)


def test_the_posterior_maximises_the_bound(spirals):
    fits = total_log_likelihood(problem_of(spirals), "train")
    prior = Categorical(SPACE.decisions, exponential(SPACE.decisions).logits.double())
    logits = posterior(fits, prior).logits.clone().requires_grad_()
    [slope] = torch.autograd.grad(elbo(fits, Categorical(SPACE.decisions, logits), prior).sum(), [logits])
    assert slope.abs().max() < 1e-6


def test_the_mean_of_eq_2_over_all_minibatches_is_eq_1(spirals):
    problem = problem_of(spirals)
    problem.supernet.eval()
    belief, prior = some_belief(0), problem.prior
    whole = elbo(total_log_likelihood(problem, "train"), belief, prior)
    estimates = []
    for batch in problem.passes("train", size=12):
        fit = depth_log_likelihood(problem, batch.x, batch.y).double().sum(-1)
        estimates.append(elbo(problem.train_size / 12 * fit, belief, prior))
    assert torch.allclose(torch.stack(estimates).mean(0), whole, rtol=1e-6)


def test_one_step_is_sgd_on_the_bound_divided_by_n(spirals):
    method = VariationalDepth(update="sgd", weights={"momentum": 0.5, "lr": 0.1})
    problem, state, feed = prepare(method, SPACE, spirals, spirals.seen(spirals.train), repeats=1)
    reference = [p.detach().clone().requires_grad_() for p in (*state.weights.values(), *state.belief.values())]
    optimiser = torch.optim.SGD(reference, lr=0.1, momentum=0.5)
    names = [*state.weights, *state.belief]
    for _ in range(3):
        values = dict(zip(names, reference, strict=True))
        weights = {name: values[name] for name in state.weights}
        [batch] = feed.batches["train"]
        problem.supernet.train()
        from polyarch.spaces import All

        outputs = torch.func.functional_call(problem.supernet, weights, (batch.x, All()))
        probs = values["logits"].softmax(-1)
        fit = torch.nn.functional.cross_entropy(
            outputs.flatten(0, 2), batch.y.expand(7, -1).flatten(), reduction="none"
        ).view(1, 7, -1)
        kl = (probs * (probs.log() - problem.prior.log_probs.squeeze(-2))).sum()
        loss = (probs * fit.mean(-1)).sum() + kl / problem.train_size
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        method.step(problem, state, feed)
    for name, expected in zip(names, reference, strict=True):
        found = state.weights[name] if name in state.weights else state.belief[name]
        assert torch.allclose(found, expected, atol=1e-5), name


def test_belief_may_learn_at_a_rate_of_its_own(spirals):
    states = {}
    for belief_rate in (0.0, 0.1, 0.4):
        method = VariationalDepth(update="sgd", weights={"lr": 0.1, "momentum": 0.0}, arch={"lr": belief_rate})
        problem, state, feed = prepare(method, SPACE, spirals, spirals.seen(spirals.train), repeats=1)
        method.step(problem, state, feed)
        states[belief_rate] = state
    assert torch.equal(states[0.0].belief["logits"], states[0.1].belief["logits"])
    assert torch.allclose(states[0.4].belief["logits"], 4 * states[0.1].belief["logits"], rtol=1e-4)
    for name, value in states[0.1].weights.items():
        assert torch.equal(value, states[0.4].weights[name])


def test_the_e_step_sets_belief_to_the_posterior(spirals):
    method = VariationalDepth(update="em")
    problem, state, feed = prepare(method, SPACE, spirals, spirals.seen(spirals.train), repeats=2)
    before = state.belief["logits"].clone()
    method.step(problem, state, feed)
    assert torch.equal(state.belief["logits"], before)
    assert method.end_epoch(problem, state, 0, evaluated=False).forward == problem.train_size
    expected = posterior(total_log_likelihood(problem, "train"), problem.prior).probs()["depth"]
    believed = method.distribution(problem.space, state.belief).probs()["depth"]
    assert torch.allclose(believed.double(), expected, atol=1e-5)


def test_a_natural_step_goes_as_far_as_it_may():
    decisions, chance = pa.spaces.ResidualDepth(max_depth=4).decisions, torch.Generator().manual_seed(0)
    start, end = (Categorical(decisions, 3 * torch.randn(2, 1, 5, generator=chance)) for _ in range(2))
    whole = natural_step(start, end, math.inf)
    assert torch.allclose(whole.log_probs, end.log_probs, atol=1e-5), "r = 1 is the E-step"
    for limit in (1e-4, 1e-2, 0.3):
        moved = natural_step(start, end, limit)
        assert torch.allclose(moved.kl(start), torch.tensor(limit), rtol=2e-3)
        # log q' is on the straight line between both, at the same place for all options.
        a, b, c = (each.log_probs.double().squeeze(-2) for each in (start, end, moved))
        a, b, c = (each - each[:, :1] for each in (a, b, c))
        r = ((c - a) / (b - a))[:, 1:]
        assert (r - r[:, :1]).abs().max() < 1e-3
        assert ((r > 0) & (r < 1)).all()


def test_natural_steps_climb_the_bound_to_the_posterior(spirals):
    """With weights that stand still: Eq. 1 rises at every step, and its gap closes (Eq. 4)."""
    method = VariationalDepth(update="natural", epochs=100, arch={"warmup": 0.0, "limit": 0.02})
    problem, state, _ = prepare(method, SPACE, spirals, spirals.seen(spirals.train), repeats=2)
    totals = total_log_likelihood(problem, "train")
    exact, bounds = posterior(totals, problem.prior), []
    for epoch in range(100):
        method.end_epoch(problem, state, epoch, evaluated=False)
        assert method.distribution(problem.space, state.belief).kl(exact).max() < 1e-5, "belief itself has no lag"
        trained_by = method.distribution(problem.space, {"logits": state.belief["weighting"]})
        bounds.append(elbo(totals, trained_by, problem.prior))
    climbed = torch.stack(bounds).diff(dim=0)
    assert (climbed >= -1e-4).all()
    assert trained_by.kl(exact).max() < 1e-4


def test_weights_of_all_depths_are_trained_alike_at_first(spirals):
    method = VariationalDepth(update="natural", epochs=20, arch={"warmup": 0.25})
    problem, state, feed = prepare(method, SPACE, spirals, spirals.seen(spirals.train), repeats=1)
    sgd = VariationalDepth(update="sgd")
    moves, believes = [], []
    for epoch in range(20):
        method.end_epoch(problem, state, epoch, evaluated=epoch == 2)
        moves.append(bool(state.belief["weighting"].any()))
        believes.append(bool(state.belief["logits"].any()))
    assert moves == [False] * 5 + [True] * 15
    assert believes == [False] * 2 + [True] * 18, "where nobody asks, no pass is made"

    _, other, _ = prepare(sgd, SPACE, spirals, spirals.seen(spirals.train), repeats=1)
    _, fresh, _ = prepare(method, SPACE, spirals, spirals.seen(spirals.train), repeats=1)
    fresh.belief["logits"].data.fill_(1.0)[..., 0] = 5.0  # which the weights do not see
    method.step(problem, fresh, feed)
    sgd.step(problem, other, feed)
    for name, value in fresh.weights.items():
        assert torch.equal(value, other.weights[name]), name


def test_held_out_evidence_needs_held_out_data(spirals):
    method = VariationalDepth(update="natural", arch={"evidence": "search"})
    with pytest.raises(PolyarchError, match="set select or search"):
        method.feeds(problem_of(spirals))


def test_the_exponential_prior_has_the_papers_numbers():
    fifty = exponential(pa.spaces.ResidualDepth(max_depth=50).decisions)
    probs = fifty.probs()["depth"]
    assert probs[0].item() == pytest.approx(0.150, abs=5e-4)
    assert probs[50].item() == pytest.approx(4.4e-5, rel=0.02)
    assert uniform(fifty.decisions).kl(fifty).item() == pytest.approx(2.03, abs=5e-3)
    twenty = pa.spaces.ResidualDepth(max_depth=20).decisions
    assert uniform(twenty).kl(exponential(twenty)).item() == pytest.approx(0.444, abs=5e-4)


@pytest.mark.parametrize(
    "belief", [exponential(SPACE.decisions), uniform(SPACE.decisions), exponential(SPACE.decisions, 0.3)]
)
def test_priors_are_distributions(belief):
    check_distribution(belief)


def test_fixed_depth_is_variational_depth_with_all_mass_on_one_depth(tmp_path, spirals):
    """LDN-11: q fixed to a point mass, KL 0; the deeper blocks are never made."""
    run = pa.search(SPACE, spirals, FixedDepth(depth=3, epochs=2), out=tmp_path / "run")
    assert run.distribution.probs()["depth"].tolist() == [0, 0, 0, 1]
    assert run.architecture.text == "depth=3"
    assert len(run.supernet().blocks) == 3
    x = spirals.test.x
    assert torch.allclose(run.ensemble().output(x), run.model()(x).log_softmax(-1), atol=1e-5)


def test_fixed_depth_refuses_a_depth_beyond_the_space(tmp_path, spirals):
    with pytest.raises(PolyarchError, match="depth=7 is beyond depth=6"):
        pa.search(SPACE, spirals, FixedDepth(depth=7), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_it_learns_the_spirals(tmp_path):
    task = pa.data.load("spirals", noise=0.2, noise_kind="uniform")
    space = pa.spaces.ResidualDepth(max_depth=10)
    method = VariationalDepth(epochs=400, evaluation={"every": 20}, stopping={"split": "train"})
    run = pa.search(space, task, method, out=tmp_path / "run")
    assert run.result["metrics"]["test_ensemble"]["accuracy"] > 0.95
    history = run.history()
    assert history[-1]["train"]["elbo"] > history[0]["train"]["elbo"]


def test_the_mixture_is_of_probabilities_not_of_logits(tmp_path, spirals):
    run = pa.search(SPACE, spirals, VariationalDepth(epochs=3), out=tmp_path / "run")
    ensemble = run.ensemble(SPACE.architecture([6]))
    x = spirals.test.x
    members, weights = ensemble.members(x), ensemble.weights
    of_probs = torch.einsum("m,mnk->nk", weights, members.softmax(-1))
    of_logits = torch.einsum("m,mnk->nk", weights, members).softmax(-1)
    assert torch.allclose(ensemble.output(x).exp(), of_probs, atol=1e-6)
    assert not torch.allclose(ensemble.output(x).exp(), of_logits, atol=1e-4)


def test_early_stopping_keeps_the_best_state(tmp_path, spirals):
    method = VariationalDepth(
        epochs=200, stopping={"patience": 20, "split": "train"}, evaluation={"every": 5}, weights={"lr": 0.5}
    )
    run = pa.search(SPACE, spirals, method, out=tmp_path / "run")
    history = run.history()
    best = max(history, key=lambda line: line["train"]["objective"])
    problem = Problem(
        SPACE, run.supernet(), spirals.likelihood, exponential(SPACE.decisions), {"train": spirals.seen(spirals.train)}
    )
    fits = total_log_likelihood(problem, "train")[0]
    bound = elbo(fits, run.distribution, exponential(SPACE.decisions))
    assert bound.item() == pytest.approx(best["train"]["elbo"], rel=1e-5)


def test_only_the_kept_blocks_are_in_the_model(tmp_path, spirals):
    run = pa.search(SPACE, spirals, VariationalDepth(epochs=2), out=tmp_path / "run", select="expectation")
    depth = run.architecture.choices[0]
    assert 0 < depth < 6
    assert len(run.model()[1].blocks) == depth
    assert len(run.ensemble().networks.supernet.blocks) == depth
