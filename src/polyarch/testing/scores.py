"""What every score must satisfy."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from polyarch.scores.base import Candidate, Score


def check_score(score: Score, candidates: Sequence[Candidate]) -> None:
    """Checks that a score is deterministic, and leaves the supernet and chance alone."""
    supernets = {id(c.supernet): c.supernet for c in candidates if c.supernet is not None}
    before = {k: {n: v.clone() for n, v in s.state_dict().items()} for k, s in supernets.items()}
    chance = torch.get_rng_state()
    first = score(candidates, torch.Generator().manual_seed(0))
    assert first.shape == (len(candidates),), "a score must give one number a candidate"
    assert first.dtype == torch.float64, "scores are float64"
    assert bool(torch.isfinite(first).all()), "scores must be finite"
    assert torch.equal(first, score(candidates, torch.Generator().manual_seed(0))), "a score must be deterministic"
    assert torch.equal(chance, torch.get_rng_state()), "a score must draw from its generator alone"
    for key, supernet in supernets.items():
        for name, value in supernet.state_dict().items():
            assert torch.equal(value, before[key][name]), f"a score must not touch the supernet: {name} changed"
    alone = score(candidates[:1], torch.Generator().manual_seed(0))
    assert torch.allclose(alone[0], first[0]), "a candidate's score must not depend on the others"
    assert score.meaning.strip(), "a score needs a sentence on what it means"
