"""How a ladder is drawn, and what of it stands in a study's data."""

import math
from collections.abc import Sequence
from typing import Any

from ...measure import Sensitivity
from ...report.panels_svg import Series
from .runs import Run


def series(label: str, hue: int, ladder: Sequence[Sequence[Run]], peak_lrs: Sequence[float]) -> Series:
    """The last loss over the rate: mean over the seeds of the ladder, with their range."""
    columns = [[run.final_nats for run in column] for column in zip(*ladder, strict=True)]
    return Series(
        label=label,
        kind="measured",
        hue=hue,
        x=list(peak_lrs),
        y=[sum(column) / len(column) for column in columns],
        low=[min(column) for column in columns],
        high=[max(column) for column in columns],
    )


def plain_ladder(ladder: Sequence[Sequence[Run]]) -> dict[str, Any]:
    """Of every run, a row a seed."""
    return {
        "ladder_nats": [[run.final_nats for run in row] for row in ladder],
        "ladder_finite": [[run.finite for run in row] for row in ladder],
    }


def plain_sensitivity(found: Sensitivity) -> dict[str, Any]:
    """With its interval, where it has one."""
    return {
        "sensitivity_nats": found.value,
        "sensitivity_low": None if math.isnan(found.low) else found.low,
        "sensitivity_high": None if math.isnan(found.high) else found.high,
    }
