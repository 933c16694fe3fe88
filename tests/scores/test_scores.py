"""Every score keeps the contract, on every sort of space; and the contract's check finds what breaks it."""

import re
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.data.likelihood import Classification, Gaussian
from polyarch.data.task import Split, TaskShape
from polyarch.scores import (
    Candidate,
    GradNorm,
    Grasp,
    JacobCov,
    Macs,
    Parameters,
    Score,
    Snip,
    Sog,
    Sogn,
    Sotl,
    SynFlow,
    Tabulated,
    TrainLoss,
    ValidAccuracy,
    ValidLoss,
)
from polyarch.scores.synflow import synflow
from polyarch.spaces import Darts, NasBench1Shot1, NasBench201, ResidualDepth
from polyarch.tables import Table
from polyarch.testing import check_score
from polyarch.testing.toy import Lines, every_choice

QUICK = {"steps": 2, "batch_size": 4}
SCORES = (
    *(Parameters(), Macs(), Snip(), Grasp(), SynFlow(), GradNorm(), JacobCov(), Tabulated()),
    *(Sotl(**QUICK), TrainLoss(**QUICK), Sog(**QUICK), Sogn(**QUICK)),
    *(ValidAccuracy(examples=6), ValidLoss(**QUICK, recalibrate=False)),
)
IMAGES = TaskShape((1, 8, 8), 3)


def own_module():
    """Draws when it runs in training mode, and answers with its own batch norm between layers."""
    norm = pa.Choice("norm", {"yes": nn.BatchNorm1d(5), "no": nn.Identity()})
    return nn.Sequential(nn.Linear(4, 5), norm, nn.Dropout(0.5), nn.ReLU(), nn.Linear(5, 3))


def candidates(space, shape, n=3, likelihood=None):
    """The first few sampled architectures, with everything a score may ask for."""
    generator = torch.Generator().manual_seed(0)
    belief = pa.distributions.uniform(space.decisions)
    x = torch.randn(8, *shape.input, generator=generator)
    y = torch.randint(shape.outputs, (8,), generator=generator)
    supernet = space.supernet(shape)
    supernet.reset_parameters([generator])
    architectures = space.decode(belief.sample(n, generator))
    likelihood = likelihood or Classification(shape.outputs)
    texts = list(dict.fromkeys(space.key(a) for a in architectures))
    table = Table("a table", {"arch": np.array(texts), "test_acc": np.linspace(1, 2, len(texts))})
    splits = {"train": Split(x, y), "select": Split(x.flip(0), y.flip(0)), "order": 3}
    return [
        Candidate(a, space, shape, supernet, Split(x, y), likelihood, **splits, table=table, column="test_acc")
        for a in architectures
    ]


SPACES = {
    "nasbench201": (NasBench201(channels=2, cells=1), IMAGES),
    "nasbench1shot1": (NasBench1Shot1(sub_space=1, channels=2, cells=1), IMAGES),
    "darts": (Darts(channels=2, layers=3), TaskShape((1, 32, 32), 3)),
    "depth": (ResidualDepth(max_depth=3, width=4), TaskShape((2,), 3)),
    "module": (pa.ModuleSpace(own_module), TaskShape((4,), 3)),
}


@pytest.mark.parametrize("score", SCORES, ids=lambda s: s.name)
@pytest.mark.parametrize("name", SPACES)
def test_contract(score, name):
    check_score(score, candidates(*SPACES[name], n=2))


@pytest.mark.parametrize("score", [Snip(), Grasp(), SynFlow(), GradNorm(), JacobCov()], ids=lambda s: s.name)
def test_seeds(score):
    given = candidates(*SPACES["nasbench201"], n=2)
    zero, again, one = (score(given, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(zero, again)
    assert not torch.equal(zero, one)


def test_plain_scores():
    [candidate] = candidates(*SPACES["nasbench201"], n=1)
    network = candidate.fresh(torch.Generator())
    assert Parameters()([candidate], torch.Generator()).item() == sum(p.numel() for p in network.parameters())
    assert Macs()([candidate], torch.Generator()).item() == candidate.space.cost(candidate.architecture, IMAGES).macs


def test_fresh_networks_are_those_that_would_be_trained():
    """In the form of evaluation, with first weights as torch draws them."""
    [candidate] = candidates(*SPACES["nasbench201"], n=1)
    space = replace(candidate.space, network="evaluation")
    seed = int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(7)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        wanted = space.build(candidate.architecture, IMAGES).state_dict()
    found = candidate.fresh(torch.Generator().manual_seed(7)).state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_the_loss_is_the_mean_negative_log_likelihood():
    [candidate] = candidates(*SPACES["depth"], n=1)
    network, data = candidate.fresh(torch.Generator()), candidate.data
    assert torch.allclose(candidate.loss(network), F.cross_entropy(network(data.x), data.y))
    [candidate] = candidates(ResidualDepth(max_depth=2, width=4), TaskShape((2,), 1), 1, Gaussian(scale=2.0))
    network, data = candidate.fresh(torch.Generator()), candidate.data
    normal = torch.distributions.Normal(network(data.x).squeeze(-1), 2.0)
    assert torch.allclose(candidate.loss(network), -normal.log_prob(data.y).mean())
    check_score(Snip(), candidates(ResidualDepth(max_depth=2, width=4), TaskShape((2,), 1), 2, Gaussian(scale=2.0)))


def test_an_auxiliary_tower_counts_for_nothing():
    [candidate] = candidates(*SPACES["darts"], n=1)
    network = candidate.fresh(torch.Generator())
    assert isinstance(network.train()(candidate.data.x), tuple)
    value = synflow(network, candidate.shape.input)
    network.auxiliary = None
    assert synflow(network, candidate.shape.input) == value


def test_a_cell_that_passes_nothing_on_has_no_flow():
    space = NasBench201(channels=2, cells=1)
    nothing = space.parse("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")
    scores = SynFlow()([Candidate(nothing, space, IMAGES)], torch.Generator())
    assert scores.tolist() == [0]


def test_what_is_missing_is_said():
    [candidate] = candidates(*SPACES["depth"], n=1)
    for score in (Snip(), Grasp(), GradNorm(), JacobCov()):
        with pytest.raises(PolyarchError, match="needs data"):
            score([replace(candidate, data=None)], torch.Generator())
    lacks = {
        "data": "snip needs data, a batch",
        "supernet": "sotl needs trained weights; give a run",
        "train": "sotl needs training data; name some",
        "select": "valid-loss needs validation data; give data that has",
        "table": "table needs a table and a column; name them",
        "likelihood": "sotl needs training data",
    }
    for part, says in lacks.items():
        [score] = [s for s in SCORES if s.name == says.split()[0]]
        score.check(candidate)
        with pytest.raises(PolyarchError, match=f"^{says}") as refused:
            score.check(replace(candidate, **{part: None}))
        assert "\n" not in str(refused.value)
    with pytest.raises(PolyarchError, match="trained weights"):
        replace(candidate, supernet=None).inherited()
    line = Candidate(Lines().decode(every_choice(Lines()))[0], Lines(), TaskShape((1,), 1))
    with pytest.raises(PolyarchError, match="no convolution and no linear layer"):
        SynFlow()([line], torch.Generator())


# ---------------------------------------------------------------------------------------------------------------------
# What the check must find.


@dataclass(frozen=True, kw_only=True)
class Sound(Score):
    """Keeps the contract; what breaks it is handed in."""

    name: ClassVar[str] = "sound"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = "A test."
    cost: ClassVar[str] = "Nothing."

    def one(self, k, candidate):
        return float(sum(candidate.architecture.choices))

    def __call__(self, candidates, generator):
        return torch.tensor([self.one(k, c) for k, c in enumerate(candidates)], dtype=torch.float64)


def touch_weights(_, candidate):
    with torch.no_grad():
        next(candidate.supernet.parameters()).add_(1)
    return 0.0


def leave_gradients(_, candidate):
    sum(p.sum() for p in candidate.supernet.parameters()).backward()
    return 0.0


def change_mode(_, candidate):
    candidate.supernet.eval()
    return 0.0


def touch_data(_, candidate):
    candidate.data.x.add_(1)
    return 0.0


BAD = {
    "deterministic": lambda _, candidate: torch.rand(()).item(),
    "generator alone": lambda _, candidate: torch.rand(()).item() * 0,
    "finite": lambda _, candidate: float("nan"),
    "depend neither on the order": lambda k, candidate: float(k),
    "leaves out": lambda _, candidate: float(candidate.data is None),
    "weight of supernet 0 changed": touch_weights,
    "gradient of": leave_gradients,
    "mode of": change_mode,
    "training of": lambda _, candidate: float(candidate.supernet.requires_grad_(False) is None),
    "validation y of candidate 0 changed": lambda _, candidate: candidate.select.y.add_(1).sum().item() * 0.0,
    "x of candidate 0 changed": touch_data,
}


@pytest.mark.parametrize("says", BAD)
def test_the_check_finds(says, monkeypatch):
    given = candidates(*SPACES["depth"])
    check_score(Sound(), given)
    monkeypatch.setattr(Sound, "one", staticmethod(BAD[says]))
    with pytest.raises(AssertionError, match=re.escape(says)):
        check_score(Sound(), given)


@pytest.mark.parametrize(("word", "value"), [("meaning", " "), ("cost", ""), ("needs", frozenset({"money"}))])
def test_the_check_reads_what_a_score_says_of_itself(word, value, monkeypatch):
    monkeypatch.setattr(Sound, word, value)
    with pytest.raises(AssertionError, match="a score"):
        check_score(Sound(), candidates(*SPACES["depth"]))
