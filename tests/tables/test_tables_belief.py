"""Log mass on good architectures against enumeration by hand, and the tables that belief is scored by."""

import itertools
import math

import numpy as np
import pytest
import torch

from polyarch import PolyarchError
from polyarch.distributions import Categorical, uniform
from polyarch.distributions.listed import Listed
from polyarch.spaces import Darts, ResidualDepth
from polyarch.tables import find_truth, good_architectures, log_mass_on_good, regret
from polyarch.testing.toy import Lines, every_choice

SPACE = Lines()
TEXTS = [SPACE.format(c) for c in itertools.product(range(3), range(2))]
WORTH = [0.5, 0.9, 0.25, 0.9, 0.75, 0.0]  # two are the best
PROBS = torch.outer(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.6, 0.4])).flatten()


def truth_of(folder, better="higher", rows=6):
    sign = 1 if better == "higher" else -1
    path = folder / f"{better}{rows}.npz"
    said = np.array(f'{{"worth": {{"better": "{better}"}}}}')
    np.savez(path, arch=np.array(TEXTS[:rows]), worth=sign * np.array(WORTH[:rows]), columns=said)
    return find_truth(SPACE, path, "worth")


@pytest.fixture
def truth(tmp_path):
    return truth_of(tmp_path)


@pytest.fixture
def belief():
    return Categorical(SPACE.decisions, torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0]]).log())


@pytest.mark.parametrize(
    ("within", "good"),
    [(0, (1, 3)), (0.1, (1, 3)), (0.9 - 0.75, (1, 3, 4)), (0.5, (0, 1, 3, 4)), (0.9, range(6)), (9, range(6))],
)
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_the_mass_is_what_adding_up_by_hand_gives(tmp_path, belief, better, within, good):
    """With ties, with e = 0, and with what is exactly e away."""
    truth = truth_of(tmp_path, better)
    assert good_architectures(truth, within).tolist() == every_choice(SPACE)[list(good)].tolist()
    assert math.exp(log_mass_on_good(belief, truth, within)) == pytest.approx(PROBS[list(good)].sum().item(), abs=1e-6)
    share = len(good) / 6
    assert log_mass_on_good(uniform(SPACE.decisions), truth, within) == pytest.approx(math.log(share), abs=1e-6)
    assert log_mass_on_good(belief, truth, 9) <= 0


def test_the_mass_of_a_mixture_is_the_mixture_of_masses(truth, belief):
    choices = every_choice(SPACE)
    other = Listed(SPACE.decisions, choices, torch.tensor([0.1, 0.0, 0.4, 0.1, 0.3, 0.1]).log())
    weights = 0.3 * belief.log_prob(choices).exp() + 0.7 * other.log_prob(choices).exp()
    mixture = Listed(SPACE.decisions, choices, weights.log())
    for within in (0, 0.3, 0.5):
        masses = [math.exp(log_mass_on_good(one, truth, within)) for one in (belief, other)]
        expected = math.log(0.3 * masses[0] + 0.7 * masses[1])
        assert log_mass_on_good(mixture, truth, within) == pytest.approx(expected, abs=1e-6)


def test_a_point_mass_has_all_or_nothing(truth):
    for k, choices in enumerate(every_choice(SPACE)):
        point = Listed(SPACE.decisions, choices.unsqueeze(0), torch.zeros(1))
        assert log_mass_on_good(point, truth, 0.2) == (0 if k in (1, 3, 4) else -math.inf)


def test_regret(tmp_path):
    for better in ("higher", "lower"):
        truth = truth_of(tmp_path, better)
        found = [regret(truth, SPACE.parse(text)) for text in TEXTS]
        assert found == pytest.approx([0.4, 0.0, 0.65, 0.0, 0.15, 0.9])


def test_what_the_table_lacks_is_not_good(tmp_path, belief):
    """All that is known counts, and what is not known is no good even where everything is."""
    truth = truth_of(tmp_path, rows=3)
    assert math.exp(log_mass_on_good(belief, truth, 9)) == pytest.approx(PROBS[:3].sum().item(), abs=1e-6)


def test_what_cannot_be_scored_is_refused(tmp_path, truth, belief):
    with pytest.raises(PolyarchError, match="within"):
        log_mass_on_good(belief, truth, -0.1)
    with pytest.raises(PolyarchError, match="other decisions than those of the space 'lines'"):
        log_mass_on_good(uniform(ResidualDepth().decisions), truth, 0)
    with pytest.raises(PolyarchError, match=r"architectures, too many to look at each"):
        good_architectures(find_truth(Darts(), truth.table.where, "worth"), 0)
    with pytest.raises(PolyarchError, match="no row is of the space 'depth'"):
        good_architectures(find_truth(ResidualDepth(), truth.table.where, "worth"), 0)
