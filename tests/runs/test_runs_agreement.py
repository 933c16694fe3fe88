"""Do seeds agree: by enumeration, and through a search."""

import json
import math
from itertools import product

import pytest
import torch

import polyarch as pa
from polyarch.architecture import Decision
from polyarch.distributions import uniform
from polyarch.distributions.distances import kl, total_variation
from polyarch.runs.agreement import Agreement, agreement_of, chance_of, same_options
from polyarch.testing.toy import EnumeratedElbo, Lines, toy_task


def test_agreement_by_chance_is_that_of_all_pairs():
    """Of independent decisions, and of a list in which they hang together."""
    decisions = Lines().decisions
    every = list(product(*(range(len(d)) for d in decisions)))
    pairs = [[a == b for a, b in zip(one, other, strict=True)] for one in every for other in every]
    expected = sum(map(sum, pairs)) / len(pairs) / len(decisions)
    assert chance_of(uniform(decisions).probs()) == pytest.approx(expected)
    listed = torch.tensor([[0, 0], [1, 1], [2, 1]])
    own = pa.distributions.Listed(decisions, listed, torch.zeros(3))
    expected = (
        sum(
            int(a == b) for one in listed.tolist() for other in listed.tolist() for a, b in zip(one, other, strict=True)
        )
        / 18
    )
    assert chance_of(own.probs()) == pytest.approx(expected)


def test_same_options_of_all_pairs():
    assert same_options(["ab", "ab"]) == 1
    assert same_options(["ab", "ac", "db"]) == pytest.approx((0.5 + 0.5 + 0) / 3)


def test_distances():
    """KL as torch has it, and finite where the prior's probabilities round to 0; total variation the same both ways."""
    p, q = torch.tensor([0.2, 0.8, 0.0]), torch.tensor([0.5, 0.25, 0.25])
    decisions = (Decision("a", ("x", "y", "z")), Decision("b", ("x", "y", "z")))
    prior = pa.distributions.Categorical(decisions, torch.stack([q, q]).log())
    categorical = torch.distributions.Categorical
    wanted = torch.distributions.kl_divergence(categorical(p), categorical(q))
    assert kl({"a": p, "b": q}, prior).item() == pytest.approx(wanted.item(), rel=1e-5)
    narrow = pa.distributions.Categorical(decisions, torch.tensor([[0.0, -500, 0], [0.0, 0, 0]]))
    assert kl({"a": p, "b": p}, narrow).item() == pytest.approx(narrow_kl(p), rel=1e-5)
    both = total_variation({"a": p, "b": q}, {"a": q, "b": q})
    assert both.item() == pytest.approx(0.55 / 2)
    assert both == total_variation({"a": q, "b": q}, {"a": p, "b": q})


def narrow_kl(p):
    """Of two decisions, by hand."""
    negative = sum(x * math.log(x) for x in p.tolist() if x)
    return 2 * negative + 0.2 * math.log(2) + 0.8 * (500 + math.log(2)) + math.log(3)


@pytest.mark.parametrize(
    ("agreement", "nested", "says"),
    [
        (
            Agreement(5, 4, 0.31, 0.2, 0.4),
            False,
            "5 seeds chose 4 different architectures; on a decision two of them agree in 31% of cases, by chance in "
            "20%; two of their beliefs have 60% of their mass in common: what is selected tells more about the seed "
            "than about the data.",
        ),
        (
            Agreement(3, 3, 0.9, 0.2, None),
            False,
            "3 seeds each chose another architecture; on a decision two of them agree in 90% of cases, by chance in "
            "20%: what is selected tells about the data or the method, more than about the seed.",
        ),
        (
            Agreement(2, 1, 1.0, 0.2, 0.1),
            True,
            "2 seeds chose the same architecture; two of their beliefs have 90% of their mass in common.",
        ),
    ],
)
def test_in_words(agreement, nested, says):
    assert agreement.sentence(nested) == says


def test_through_a_search(tmp_path):
    task = toy_task(tmp_path / "data")
    method = EnumeratedElbo(epochs=3, noise=0.5)
    runs = pa.search(Lines(), task, method, out=tmp_path / "run", repeats=3, compute=pa.Compute("cpu"))
    found = agreement_of(runs)
    assert (found.seeds, found.chance) == (3, pytest.approx((1 / 3 + 1 / 2) / 2))
    apart = [
        total_variation(a.distribution.probs(), b.distribution.probs()).item()
        for a, b in zip(runs, [*runs[1:], runs[0]], strict=True)
    ]
    assert found.apart == pytest.approx(sum(apart) / 3, rel=1e-5)
    assert agreement_of(runs[:1]) is None
    for run in runs:
        told = json.loads((run.folder / "result.json").read_text())["distribution"]
        assert told["meaning"] == EnumeratedElbo.meaning.text
        assert told["kl"] == pytest.approx(run.distribution.kl(run.prior).item(), rel=1e-4)


def test_where_nothing_is_learnt_selections_are_compared_alone(tmp_path):
    task = toy_task(tmp_path / "data")
    compute = pa.Compute("cpu")
    drawn = pa.search(Lines(), task, pa.methods.OneShot(epochs=1), out=tmp_path / "drawn", repeats=2, compute=compute)
    assert agreement_of(drawn).apart is None
    assert "kl" not in drawn[0].result["distribution"]
    assert drawn[0].result["distribution"]["meaning"].startswith("None is learnt")
    alone = pa.methods.Standalone(architecture=str(drawn[0].architecture), epochs=1)
    assert agreement_of(pa.search(Lines(), task, alone, out=tmp_path / "one", repeats=2, compute=compute)) is None
