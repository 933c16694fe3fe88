"""Belief over architectures."""

from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.dirichlet import Dirichlet
from polyarch.distributions.discretized import Discretized
from polyarch.distributions.gaussian import GaussianLogits
from polyarch.distributions.listed import Listed
from polyarch.distributions.priors import exponential, make_prior, priced, uniform

__all__ = [
    "Categorical",
    "Dirichlet",
    "Discretized",
    "Distribution",
    "GaussianLogits",
    "Listed",
    "exponential",
    "make_prior",
    "priced",
    "uniform",
]
