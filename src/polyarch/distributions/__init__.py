"""Belief over architectures."""

from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.dirichlet import Dirichlet
from polyarch.distributions.gaussian import GaussianLogits
from polyarch.distributions.listed import Listed
from polyarch.distributions.priors import exponential, make_prior, uniform
from polyarch.distributions.reading import ReadOut, belief_over

__all__ = [
    "Categorical",
    "Dirichlet",
    "Distribution",
    "GaussianLogits",
    "Listed",
    "ReadOut",
    "belief_over",
    "exponential",
    "make_prior",
    "uniform",
]
