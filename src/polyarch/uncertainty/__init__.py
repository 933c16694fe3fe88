"""How belief is used: what it predicts, and whether the prediction's confidence can be trusted."""

from __future__ import annotations

from polyarch.uncertainty.attack import image_range, pgd
from polyarch.uncertainty.calibration import (
    Reliability,
    accuracy,
    brier,
    ece,
    ece_all_classes,
    log_likelihood,
    regression_summary,
    reliability,
    summary,
)
from polyarch.uncertainty.classes import Confusion, auc
from polyarch.uncertainty.conformal import (
    class_scores,
    class_sets,
    conformal_quantile,
    examples_for_coverage,
    intervals,
    number_scores,
)
from polyarch.uncertainty.coverage import RiskCoverage, examples_for_risk, risk_coverage, threshold_for_risk
from polyarch.uncertainty.detection import auroc, detection, fpr95
from polyarch.uncertainty.early_exit import EarlyExit, ExitCurve, Exits, exit_curve
from polyarch.uncertainty.ensemble import Ensemble
from polyarch.uncertainty.gaussians import Gaussians
from polyarch.uncertainty.members import Members, members_of
from polyarch.uncertainty.mixtures import Mixtures
from polyarch.uncertainty.predictive import Predictive
from polyarch.uncertainty.temperature import fit_temperature

__all__ = [
    "Confusion",
    "EarlyExit",
    "Ensemble",
    "ExitCurve",
    "Exits",
    "Gaussians",
    "Members",
    "Mixtures",
    "Predictive",
    "Reliability",
    "RiskCoverage",
    "accuracy",
    "auc",
    "auroc",
    "brier",
    "class_scores",
    "class_sets",
    "conformal_quantile",
    "detection",
    "ece",
    "ece_all_classes",
    "examples_for_coverage",
    "examples_for_risk",
    "exit_curve",
    "fit_temperature",
    "fpr95",
    "image_range",
    "intervals",
    "log_likelihood",
    "members_of",
    "number_scores",
    "pgd",
    "regression_summary",
    "reliability",
    "risk_coverage",
    "summary",
    "threshold_for_risk",
]
