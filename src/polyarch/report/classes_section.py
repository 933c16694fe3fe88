"""The section of a report on how good a classifier is class by class, and which classes it takes for each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polyarch.report import formatting
from polyarch.report.report_data import ReportData
from polyarch.uncertainty.classes import Confusion

MANY = 20
"""More classes than this are not all shown."""
WORST = 12
"""So many of them are."""


def classes(report: ReportData) -> dict[str, Any] | None:
    """Precision, recall and F1 of every class by the network, and F1 by the mixture; of several seeds, pooled."""
    if not report.classifies or not report.split:
        return None
    names = report.task.classes
    network = _pooled(report.network_log_probs, report.examples.y)
    rows = network.by_class(names)
    if report.has_mixture:
        mixed = _pooled([said.log_probs for said in report.mixture_predictives], report.examples.y)
        rows = [row | {"mixture": own["f1"]} for row, own in zip(rows, mixed.by_class(names), strict=True)]
    count = len(rows)
    if count > MANY:
        rows = sorted(rows, key=lambda row: 2.0 if row["f1"] is None else row["f1"])[:WORST]
    columns = ["precision", "recall", "f1", *(["mixture"] if report.has_mixture else [])]
    titles = {"f1": "F1", "mixture": f"F1, {report.mixture}"}
    return {
        "columns": [titles.get(name, name) for name in columns],
        "rows": [
            {
                "name": row["class"],
                "examples": formatting.whole(row["examples"] / len(report.runs)),
                "cells": ["–" if row[name] is None else formatting.percent(row[name]) for name in columns],
            }
            for row in rows
        ],
        "count": count,
        "confused": network.in_words(names),
        "network": "network" if report.is_point else "selected network",
    }


def _pooled(log_probs: Sequence[Tensor], target: Tensor) -> Confusion:
    """Of all seeds together."""
    return Confusion(torch.stack([Confusion.of(own, target).counts for own in log_probs]).sum(0))
