"""What a run promises about new inputs, by the examples of `calibrate`: nothing else has ever looked at them.

The mixture, its temperature and whatever else decides on a prediction are frozen before, so that these examples and new
inputs of the same kind are alike to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from polyarch.data.likelihood import Classification
from polyarch.data.task import Split
from polyarch.errors import PolyarchError
from polyarch.uncertainty.conformal import class_scores, conformal_quantile, examples_for_coverage, number_scores
from polyarch.uncertainty.coverage import examples_for_risk, threshold_for_risk
from polyarch.uncertainty.ensemble import Ensemble, Said, asked, predictive
from polyarch.uncertainty.predictive import Predictive

if TYPE_CHECKING:
    from polyarch.runs.run import Run


def predicted_classes(run: Run, ensemble: Ensemble, x: Tensor) -> Predictive:
    """What a mixture of the run says about raw inputs [n, ...], after the run's temperature."""
    return predictive(ensemble, x, run.device).tempered(run.temperature)


def numbers_of(said: Said, predicts: str) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [n] of what is predicted; raises where that is not one number per input."""
    if isinstance(said, Predictive) or said.std is None or said.mean.dim() > 1:
        raise PolyarchError(
            f"intervals need a number with a deviation for every input, and this run predicts {predicts}; leave "
            "coverage out"
        )
    return said.mean, said.std


def quantile_for_coverage(run: Run, ensemble: Ensemble, coverage: float) -> float:
    """The quantile of calibration scores by which sets of a mixture hold the truth as often as asked."""
    held_out = _examples(run, f"a coverage of {coverage:g}", examples_for_coverage(coverage))
    if isinstance(ensemble.likelihood, Classification):
        scores = class_scores(predicted_classes(run, ensemble, held_out.x).log_probs, held_out.y)
    else:
        scores = number_scores(*numbers_of(asked(ensemble, held_out.x, run.device), run.predicts), held_out.y)
    return conformal_quantile(scores, coverage)


def threshold_for(run: Run, ensemble: Ensemble, risk: float) -> float:
    """The confidence above which answers of a mixture are wrong no more often than `risk`."""
    held_out = _examples(run, f"a risk of {risk:g}", examples_for_risk(risk), " if none is answered wrongly, else more")
    said = predicted_classes(run, ensemble, held_out.x)
    return threshold_for_risk(said.confidence, said.log_probs.argmax(-1) == held_out.y, risk)


def _examples(run: Run, wanted: str, least: int, more: str = " or more") -> Split:
    """The calibration examples; raises where there are too few, before any data is read."""
    there_are = run.config.data["examples"].get("calibrate", 0)
    if there_are < least:
        raise PolyarchError(
            f"{wanted} needs at least {least} examples that nothing else has looked at, and this run set "
            f"{there_are or 'none'} aside; search again with --set calibrate={least}{more}"
        )
    held_out = run.task(sample=True).calibrate
    assert held_out is not None
    return held_out
