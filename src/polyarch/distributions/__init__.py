"""Belief over architectures."""

from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.priors import exponential, make_prior, uniform

__all__ = ["Categorical", "Distribution", "exponential", "make_prior", "uniform"]
