"""From belief to one architecture; rules for ordered options are those of Antorán et al. 2020."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from polyarch.architecture import Decision
from polyarch.distributions.base import Distribution
from polyarch.distributions.bounded import Bounds, most_probable
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.evidence import Evidence, pruned_mixtures, sufficient
from polyarch.errors import PolyarchError, unknown

logger = logging.getLogger("polyarch")

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


def select(
    belief: Distribution, rule: str, evidence: Evidence | None = None, bounds: Bounds | None = None
) -> tuple[int, ...]:
    """The choices that a rule takes from the belief of one run.

    Args:
        belief: of the run.
        rule: as `rule_for` spells it.
        evidence: of one ordered decision, what data says of every option.
        bounds: what networks may cost. A choice within them stays as it is; else the rule is asked of what is left of
            belief: of one ordered decision, the options up to the first that costs too much.
    """
    chosen = _select(belief, rule, evidence)
    if bounds is None or bounds.allow(chosen):
        return chosen
    if rule != "argmax":
        options = range(len(belief.decisions[0]))
        left = next((k for k in options if not bounds.allow([k])), len(options))
        cut = _up_to(belief, left)
        if cut is not None:
            known = evidence and replace(evidence, train=evidence.train[:left], held_out=evidence.held_out[:left])
            return _select(cut, rule, known)
    found = most_probable(belief, bounds)
    if found is None:
        found = bounds.anything()
        logger.warning("among what belief makes probable nothing was within the limits; what is selected obeys them")
    return found


def _up_to(belief: Distribution, count: int) -> Categorical | None:
    """Belief given that its one decision takes one of its first options; None where these have no probability."""
    [decision], product = belief.decisions, belief.product
    if product is None or not count or not (product.logits[0, :count] > -torch.inf).any():
        return None
    return Categorical((Decision(decision.name, decision.options[:count]),), product.logits[:, :count])


def _select(belief: Distribution, rule: str, evidence: Evidence | None) -> tuple[int, ...]:
    """The same without bounds."""
    if rule in RULES:
        return RULES[rule][0](belief)
    assert evidence is not None, "`rule_for` asks for validation data"
    return HELD_OUT_RULES[rule][0](belief, evidence)


def _ordered(belief: Distribution) -> torch.Tensor:
    [probs] = belief.probs().values()
    return probs.detach()
