"""The most probable architecture within bounds: the passes against looking at all there are."""

import itertools
from dataclasses import replace

import pytest
import torch

from polyarch.architecture import Decision
from polyarch.distributions import Categorical, Discretized, GaussianLogits, Listed, priced, uniform
from polyarch.distributions.bounded import Bounds, Part, Sums, front, in_order, most_probable, total
from polyarch.distributions.selection import select

SIZES = (3, 4, 2, 3)
DECISIONS = tuple(Decision(f"d{k}", tuple("abcd"[:size])) for k, size in enumerate(SIZES))
EVERY = torch.tensor(list(itertools.product(*map(range, SIZES))))


def product(seed, spread=2.0):
    logits = spread * torch.randn(4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    exists = torch.tensor([[k < size for k in range(4)] for size in SIZES])
    return Categorical(DECISIONS, logits.masked_fill(~exists, -torch.inf))


def sums(seed, spare=(torch.inf, torch.inf)):
    """Whole costs, many of them equal; the last two decisions have one in common."""
    generator = torch.Generator().manual_seed(seed)
    groups = ((0,), (1,), (2, 3))
    joint = [torch.tensor(list(itertools.product(*(range(SIZES[k]) for k in group)))) for group in groups]
    parts = [
        Part(group, rows, torch.randint(0, 5, (len(rows), 2), generator=generator).double())
        for group, rows in zip(groups, joint, strict=True)
    ]
    return Sums(tuple(parts), torch.tensor(spare, dtype=torch.float64), ())


class Within(Bounds):
    """Bounds on sums, of which a search is told all, nothing, or other ones."""

    sums, others, looks = None, False, None

    def __init__(self, table, tells=None, **more):
        self.table, self.sums, self.looked = table, tells, 0
        vars(self).update(more)

    def first(self, choices):
        self.looked += len(choices)
        found = (total(self.table, choices) <= self.table.spare).all(1).nonzero()
        return int(found[0]) if len(found) else None

    def anything(self):
        return tuple(EVERY[total(self.table, EVERY).sum(1).argmin()].tolist())


def told(table):
    return Within(table, table)


def best_of_all(belief, table):
    logs = belief.log_prob(EVERY).masked_fill(~(total(table, EVERY) <= table.spare).all(1), -torch.inf)
    return logs.max().item()


@pytest.mark.parametrize("spare", [(6, torch.inf), (torch.inf, 3), (6, 6), (4, 8), (0, 0)], ids=str)
@pytest.mark.parametrize("bounds", [told, Within])
def test_it_is_the_most_probable_of_all(spare, bounds):
    for seed in range(20):
        belief, table = product(seed), sums(seed + 100, spare)
        found = most_probable(belief, bounds(table))
        wanted = best_of_all(belief, table)
        if wanted == -torch.inf:
            assert found is None
        else:
            assert belief.log_prob(torch.tensor([found])).item() == pytest.approx(wanted)
            assert (total(table, torch.tensor([found])) <= table.spare).all()


def test_a_mode_within_bounds_stays_and_is_all_that_is_looked_at():
    belief, bounds = product(0), told(sums(1, (100, 100)))
    assert most_probable(belief, bounds) == tuple(belief.mode().tolist())
    assert bounds.looked == 1


def test_a_front_has_every_architecture_that_none_beats_in_both():
    belief, table = product(3), sums(4, (100, torch.inf))
    found, logs, costs = front(belief, table), belief.log_prob(EVERY), total(table, EVERY)[:, 0]
    beaten = [
        ((costs <= cost) & (logs > log)).any() or ((costs < cost) & (logs >= log)).any()
        for cost, log in zip(costs, logs, strict=True)
    ]
    assert sorted(zip(found.costs[:, 0], found.log_probs.round(9), strict=True)) == sorted(
        {(cost.item(), round(log.item(), 9)) for cost, log, out in zip(costs, logs, beaten, strict=True) if not out}
    )
    assert torch.allclose(belief.log_prob(found.choices), torch.from_numpy(found.log_probs))


def test_in_order():
    belief = product(5)
    rows = torch.tensor(list(in_order(belief)))
    assert len({tuple(row) for row in rows.tolist()}) == len(EVERY)
    assert torch.allclose(belief.log_prob(rows), belief.log_prob(EVERY).sort(descending=True).values)


def test_where_looking_takes_long_cheaper_ones_are_tried():
    """Of a bound that is not told as a sum, after a few looks, by way of fewer multiply-accumulates."""
    belief, table = product(0, spread=9.0), sums(1)
    least = total(table, EVERY)[:, 1].min().item()
    bounds = Within(replace(table, spare=torch.tensor([torch.inf, least + 1]).double()), table, others=True, looks=2)
    found = most_probable(belief, bounds)
    assert total(table, torch.tensor([found]))[0, 1] <= least + 1
    assert bounds.looked < 30 < len(EVERY)


def test_a_list_is_gone_through_by_its_weights():
    choices, logits = EVERY[[5, 20, 40, 60]], torch.tensor([0.0, 3.0, 2.0, 1.0])
    belief, table = Listed(DECISIONS, choices, logits), sums(0, (100, 100))
    costs = total(table, choices)[:, 0]
    table = replace(table, spare=torch.tensor([costs[[0, 2, 3]].max().item(), torch.inf], dtype=torch.float64))
    allowed = [k for k in (1, 2, 3, 0) if costs[k] <= table.spare[0]]
    assert most_probable(belief, told(table)) == tuple(choices[allowed[0]].tolist())


def test_gaussian_logits_are_read_out_by_their_mean():
    """Not by the probability of being the largest, which the deviation of another option may turn round."""
    decisions = (Decision("a", ("x", "y", "z")),)
    belief = GaussianLogits(decisions, torch.tensor([[2.0, 1.0, 0.9]]), torch.tensor([[0.1, 0.1, 3.0]]))
    part = Part((0,), torch.arange(3)[:, None], torch.tensor([[9.0, 0], [1, 0], [1, 0]]).double())
    bounds = told(Sums((part,), torch.tensor([5.0, torch.inf]).double(), ()))
    assert belief.probs()["a"][2] > belief.probs()["a"][1]
    assert most_probable(belief, bounds) == (1,)


def test_what_is_read_out_is_read_out_under_the_smallest_price_that_obeys():
    """Two simplices of an expensive and a cheap option: the one whose cheap option weighs more gives way first."""
    decisions = tuple(Decision(name, ("dear", "cheap")) for name in "ab")
    weights = Categorical(decisions, torch.tensor([[0.9, 0.1], [0.6, 0.4]]).log())
    belief = Discretized(decisions, weights, lambda rows: torch.stack([row.argmax(-1) for row in rows], -1))
    costs = torch.tensor([[5.0, 0], [1, 0]]).double()
    parts = tuple(Part((k,), torch.arange(2)[:, None], costs) for k in range(2))
    for most, wanted in ((10, (0, 0)), (7, (0, 1)), (2, (1, 1)), (1, None)):
        bounds = told(Sums(parts, torch.tensor([most, torch.inf]).double(), (costs, costs)))
        assert most_probable(belief, bounds) == wanted


def test_a_choice_that_belief_rules_out_is_made_where_nothing_else_obeys(caplog):
    logits = product(0).logits.clone()
    logits[0, 1:] = -torch.inf  # the first decision is certain
    table = sums(0)
    table.parts[0].costs[:] = torch.tensor([[9.0, 9], [0, 0], [0, 0]])
    table = replace(table, spare=torch.tensor([8.0, torch.inf], dtype=torch.float64))
    bounds = told(table)
    assert most_probable(Categorical(DECISIONS, logits), bounds) is None
    assert select(Categorical(DECISIONS, logits), "argmax", bounds=bounds) == bounds.anything()
    assert "limits" in caplog.text


def test_rules_of_an_ordered_decision_are_asked_of_what_is_left():
    decision = (Decision("depth", tuple("01234")),)
    belief = Categorical(decision, torch.tensor([[0.05, 0.2, 0.21, 0.04, 0.5]]).log())
    part = Part((0,), torch.arange(5)[:, None], torch.arange(5.0)[:, None].expand(5, 2).double())
    bounds = told(Sums((part,), torch.tensor([2.0, torch.inf]).double(), ()))
    assert select(belief, "95%") == (4,)
    assert select(belief, "95%", bounds=bounds) == (1,)  # within 95 % of the largest that is left
    assert select(belief, "argmax", bounds=bounds) == (2,)
    assert select(belief, "expectation", bounds=bounds) == (1,)
    assert select(belief, "expectation", bounds=told(replace(bounds.sums, spare=torch.tensor([3.0, 9]).double()))) == (
        3,
    )


def test_a_prior_by_cost_equals_enumeration():
    """p(a) proportional to prior(a) exp(-cost(a)), over all architectures."""
    prior = product(7)
    costs = [torch.rand(size, generator=torch.Generator().manual_seed(size), dtype=torch.float64) for size in SIZES]
    whole = torch.stack([own[EVERY[:, k]] for k, own in enumerate(costs)]).sum(0)
    wanted = (prior.log_prob(EVERY) - whole).log_softmax(0)
    assert torch.allclose(priced(prior, costs).log_prob(EVERY), wanted)
    assert torch.allclose(
        priced(uniform(DECISIONS), costs).log_prob(EVERY).double(), (-whole).log_softmax(0), atol=1e-5
    )
