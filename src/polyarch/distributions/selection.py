"""From belief to one architecture; rules for ordered options are those of Antorán et al. 2020."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from polyarch.distributions.base import Distribution
from polyarch.distributions.evidence import Evidence, pruned_mixtures, sufficient
from polyarch.errors import PolyarchError, unknown

SMALL_DATA = 1000
"""Training examples below which `auto` takes the argmax. Antorán et al. 2020 take it for their spirals (up to 800
points) and the 95 % rule for their images (tens of thousands), where belief flattens out; on digits (about 1,200) it
does too."""


def argmax(belief: Distribution) -> tuple[int, ...]:
    """The most probable architecture."""
    return tuple(belief.mode().tolist())


def ninety_five(belief: Distribution, share: float = 0.95) -> tuple[int, ...]:
    """The first option whose probability reaches 95 % of the largest, where the plateau begins (section 2)."""
    probs = _ordered(belief)
    return (int((probs >= share * probs.max()).nonzero()[0]),)


def expectation(belief: Distribution) -> tuple[int, ...]:
    """The expected option number, rounded (appendix D, "LDN-E")."""
    probs = _ordered(belief).double()
    return (int((probs * torch.arange(len(probs), device=probs.device)).sum().round()),)


RULES: dict[str, tuple[Callable[[Distribution], tuple[int, ...]], str]] = {
    "argmax": (argmax, "the most probable architecture"),
    "95%": (ninety_five, "the first option within 95 % of the largest probability; for one ordered decision"),
    "expectation": (expectation, "the expected option, rounded; for one ordered decision"),
}
HELD_OUT_RULES: dict[str, tuple[Callable[[Distribution, Evidence], tuple[int, ...]], str]] = {
    "sufficient": (
        lambda _, known: (sufficient(known.held_out * known.counts),),
        "the smallest option whose network is at most one standard error worse than the best on validation data",
    ),
    "sufficient-mixture": (
        lambda belief, known: (sufficient(pruned_mixtures(belief, known.held_out) * known.counts),),
        "the same of the mixture pruned there",
    ),
}
"""Rules of parsimony, that look at what options are worth on validation data, for one ordered decision."""


def check_rule(name: str) -> None:
    """Raises where no rule has that name."""
    known = [*RULES, *HELD_OUT_RULES, "auto"]
    if name not in known:
        raise unknown("selection rule", name, known)


def rule_for(name: str, ordered: bool, examples: Mapping[str, int]) -> str:
    """Spells `auto` out: for one ordered decision (a nested space) the paper's rule for the size of the data."""
    check_rule(name)
    if name == "auto":
        return "95%" if ordered and examples["train"] >= SMALL_DATA else "argmax"
    if name != "argmax" and not ordered:
        raise PolyarchError(f"select={name} is for one ordered decision, such as a depth; here, use argmax")
    if name in HELD_OUT_RULES and not examples.get("select"):
        raise PolyarchError(f"the selection rule {name} looks at validation data; set select (of the data) above 0")
    return name


def select(belief: Distribution, rule: str, evidence: Evidence | None = None) -> tuple[int, ...]:
    """The choices that a rule takes from the belief of one run.

    Args:
        belief: of the run.
        rule: as `rule_for` spells it.
        evidence: of one ordered decision, what data says of every option.
    """
    if rule in RULES:
        return RULES[rule][0](belief)
    assert evidence is not None, "`rule_for` asks for validation data"
    return HELD_OUT_RULES[rule][0](belief, evidence)


def _ordered(belief: Distribution) -> torch.Tensor:
    [probs] = belief.probs().values()
    return probs.detach()
