"""What is advised where training diverged."""

import pytest

import polyarch as pa
from polyarch.runs.divergence import advice
from polyarch.testing.toy import EnumeratedElbo


@pytest.mark.parametrize(
    ("method", "advised"),
    [
        (pa.methods.VariationalDepth(), "--set weights.lr=0.01 --set weights.grad_clip=5"),
        (pa.methods.VariationalDepth(weights={"lr": 0.02, "grad_clip": 2.0}), "--set weights.lr=0.002"),
        (pa.methods.Darts(weights={"lr": 7.0}), "--set weights.lr=0.025"),
        # Belief forms slowly enough, unless it was told to be faster.
        (pa.methods.Darts(), "--set weights.lr=0.0025"),
        (pa.methods.Darts(arch={"lr": 9.0}), "--set weights.lr=0.0025 --set arch.lr=0.0003"),
        # It looks through steps that are not clipped.
        (
            pa.methods.Darts(weights={"grad_clip": 0.0}, objective={"loss": "sotl", "order": "exact", "steps": 3}),
            "--set weights.lr=0.0025",
        ),
        (EnumeratedElbo(), "--set lr=0.005"),
    ],
)
def test_what_is_advised_is_what_the_method_has(method, advised):
    assert advice(method, {}) == advised


def test_what_was_left_as_it_is_is_standardised_first():
    assert advice(EnumeratedElbo(), {"standardise": False}) == "--set standardise=true --set lr=0.005"
    assert advice(EnumeratedElbo(), {"standardise": True}) == "--set lr=0.005"
