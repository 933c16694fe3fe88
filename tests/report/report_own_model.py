"""A model of one's own: a run finds it again by its name, and a conftest has none where two of them are collected."""

from torch import nn

import polyarch as pa


class Own(nn.Module):
    """A model with names that take room."""

    def __init__(self):
        super().__init__()
        sizes = {"conv3x3": 3, "depthwise_separable_conv5x5": 5}
        self.first = pa.Choice("first", {name: nn.Conv2d(1, 4, k, padding=k // 2) for name, k in sizes.items()})
        self.act = pa.Choice("activation_after_the_first", {"relu": nn.ReLU(), "tanh": nn.Tanh(), "gelu": nn.GELU()})
        pools = {"max": nn.MaxPool2d(2), "average": nn.AvgPool2d(2)}
        self.pool = pa.Choice("pooling_of_the_last_feature_map_before_the_head", pools)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.pool(self.act(self.first(x))).flatten(1))
