"""Contract checks that the library's own classes pass, for yours to pass too; and a toy with a known answer."""

from polyarch.testing.distributions import check_distribution
from polyarch.testing.likelihoods import check_likelihood
from polyarch.testing.methods import check_method
from polyarch.testing.scores import check_score
from polyarch.testing.spaces import check_space

__all__ = ["check_distribution", "check_likelihood", "check_method", "check_score", "check_space"]
