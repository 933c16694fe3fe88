import numpy as np

from polyarch.spaces import NasBench201
from reproduce import belief_rates


def test_features_tell_operations_and_pairs():
    found = belief_rates.features(np.array([[0, 1, 2, 3, 4, 0], [0, 1, 2, 3, 4, 1]]))
    assert found.shape == (2, 6 * 5 + 15 * 25)
    assert found.sum(1).tolist() == [6 + 15, 6 + 15]
    assert np.abs(found[0] - found[1]).sum() == 2 * (1 + 5), "one edge, and its pairs with the five others"


def test_the_regression_knows_something_of_cells_that_it_has_not_seen():
    model, worth = belief_rates.fitted()
    assert 0.6 < worth["correlation"] < 0.7
    assert worth["error"] < worth["std"]
    nothing, convolutions = (NasBench201().parse(cell).choices for cell in (
        "|none~0|+|none~0|none~1|+|avg_pool_3x3~0|none~1|none~2|",
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|",
    ))  # fmt: skip
    low, high = model.predict(belief_rates.features(np.array([nothing, convolutions])))
    assert high > low + 0.5
