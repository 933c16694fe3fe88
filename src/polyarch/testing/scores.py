"""What every score must satisfy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import torch

from polyarch.scores.base import Candidate, Need, Score
from polyarch.spaces.base import Supernet


def check_score(score: Score, candidates: Sequence[Candidate]) -> None:
    """Checks that a score is deterministic, leaves everything as it was, and needs no more than it says.

    Args:
        score: to be checked.
        candidates: at least two, with what the score needs; more may be there, to see that it is left alone.
    """
    _check_words(score)
    assert len(candidates) > 1, "give at least two candidates"
    before, chance = _kept(candidates), torch.get_rng_state()
    first = score(candidates, torch.Generator().manual_seed(0))
    assert first.shape == (len(candidates),), "a score must give one number per candidate"
    assert first.dtype == torch.float64, "scores are float64"
    assert bool(torch.isfinite(first).all()), "scores must be finite"
    assert torch.equal(first, score(candidates, torch.Generator().manual_seed(0))), "a score must be deterministic"
    assert torch.equal(chance, torch.get_rng_state()), "a score must draw from its generator alone"
    after = _kept(candidates)
    for name, value in after.items():
        assert _same(value, before.get(name)), f"a score must not touch what it is given: {name} changed"
    # In the other order, and without what it does not ask for.
    bare = [_only_needed(score, candidate) for candidate in reversed(candidates)]
    again = score(bare, torch.Generator().manual_seed(0)).flip(0)
    assert torch.allclose(again, first), "a number must depend neither on the order nor on what `needs` leaves out"
    alone = score(candidates[:1], torch.Generator().manual_seed(0))
    assert torch.allclose(alone[0], first[0]), "a candidate's score must not depend on the others"


def _check_words(score: Score) -> None:
    assert score.meaning.strip(), "a score needs a sentence on what it means"
    assert score.cost.strip(), "a score needs a sentence on what it costs"
    assert score.needs <= set(get_args(Need)), f"a score can need {get_args(Need)}, not {set(score.needs)}"


def _only_needed(score: Score, candidate: Candidate) -> Candidate:
    """A candidate without what a score does not ask for."""
    gone: dict[str, Any] = {need: None for need in ("data", "train", "select", "table") if need not in score.needs}
    if not score.needs & {"data", "train", "select"}:
        gone["likelihood"] = None
    return replace(candidate, **gone) if "weights" in score.needs else replace(candidate, supernet=None, **gone)


def _kept(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Everything that candidates share: supernets' weights, gradients and modes, and data; tensors are copied."""
    kept: dict[str, Any] = {}
    supernets: dict[Supernet, None] = dict.fromkeys(c.supernet for c in candidates if c.supernet is not None)
    for k, supernet in enumerate(supernets):
        kept |= {f"{name} of supernet {k}": value.clone() for name, value in supernet.state_dict().items()}
        grads = ((name, p.grad) for name, p in supernet.named_parameters())
        kept |= {f"gradient of {name} of supernet {k}": None if g is None else g.clone() for name, g in grads}
        kept |= {f"mode of {name or 'all'} of supernet {k}": m.training for name, m in supernet.named_modules()}
        kept |= {f"training of {name} of supernet {k}": p.requires_grad for name, p in supernet.named_parameters()}
    for k, candidate in enumerate(candidates):
        for named, examples in (
            ("", candidate.data),
            ("training ", candidate.train),
            ("validation ", candidate.select),
        ):
            if examples is not None:
                kept[f"{named}x of candidate {k}"] = examples.x.clone()
                kept[f"{named}y of candidate {k}"] = examples.y.clone()
    return kept


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)
