"""Exponents of depth from formulas alone, beside those that are measured."""

import math
from dataclasses import replace

from normscope.theory.moments import Unpredictable
from normscope.theory.predict import Update, fitted, output_changes

from .config import AmplificationConfig


def predicted_exponent(config: AmplificationConfig, placement: str, update: str) -> float | None:
    """Of the output's change by a first update over the study's depths, for one sequence and infinitely wide stacks.

    None where theory does not follow.
    """
    model = replace(config.model(config.depths[0]), sequences=1)
    try:
        values = output_changes(placement, model, config.depths, Update(optimizer=update, rate=1.0)).get("encoder", [])
    except Unpredictable:
        return None
    found = fitted(config.depths, values).exponent if len(values) == len(config.depths) else math.nan
    return found if math.isfinite(found) else None
