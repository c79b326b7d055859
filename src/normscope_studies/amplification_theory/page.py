"""Claims, figures and tables of the study of changes."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from normscope.placement import named
from normscope.report.chart import Panel
from normscope.report.words import counted, number

from ..engine.claims import judged
from ..engine.deviation import Compared, spread_of
from ..engine.figures import line, measured
from ..engine.page import Claim, StudyFigure, StudyTable
from .config import AmplificationTheoryConfig

PUBLISHED = {
    ("post-ln", "random"): "O(N)",
    ("pre-ln", "random"): "O(log N)",
    ("admin", "random"): "O(log N)",
    ("deepnorm", "sgd"): "O(1)",
}
"""Of the output's change: Liu et al. 2020, section 4.2 (random updates); Wang et al. 2022, section 4 (SGD)."""


class Found(NamedTuple):
    """One placement, depth and update."""

    own: Compared
    """Measured over predicted, the mean over sub-layers."""
    amplified: Compared
    output: Compared
    loss: Compared
    stream: Compared
    own_curve: Compared
    amplified_curve: Compared


class Order(NamedTuple):
    """The exponent of depth: fitted, and between neighbouring depths the least, the greatest and the last."""

    fitted: float
    least: float
    greatest: float
    last: float


Key = tuple[str, int, str]
_WHAT = {
    "own": "what the update of a sub-layer's own matrices moves, the mean over sub-layers",
    "amplified": "what sub-layers make of the change at their inputs, the mean over sub-layers",
    "output": "the change of the output",
}


def claims_of(found: Mapping[Key, Found], config: AmplificationTheoryConfig) -> tuple[list[Claim], dict[str, Any]]:
    """A claim for every update and part of the change."""
    claims, data = [], {}
    for update in config.updates:
        for what, words in _WHAT.items():
            limit = config.own_limit_percent if what == "own" else config.limit_percent
            curves = {
                f"{named(name).title} at {blocks}": [getattr(one, what)]
                for (name, blocks, of), one in found.items()
                if of == update
            }
            spread = spread_of(curves, limit_percent=limit)
            data[f"{update}, {what}"] = asdict(spread)
            claims.append(
                judged(
                    name=f"{what}, {update}",
                    statement=f"The prediction from a placement's formula gives {words}, within {limit:g} %.",
                    source="corrected: normscope predict --update",
                    found=f"{counted(len(curves), 'stack')}: at most {number(spread.largest, 2)} % off "
                    f"({spread.where} blocks; standard error {number(spread.standard_error, 2)} %), "
                    f"{number(spread.root_mean_square, 2)} % root mean square; {len(spread.within)} surely within the "
                    f"limit, {len(spread.beyond)} surely beyond it",
                    holds=spread.holds,
                )
            )
    return claims, data


def figures(found: Mapping[Key, Found], config: AmplificationTheoryConfig) -> list[StudyFigure]:
    """The stream's change over depth in the deepest stacks, a panel an update."""
    deepest = max(config.blocks)
    panels = []
    for update in config.updates:
        series = []
        for hue, name in enumerate(config.placements):
            stream = found[name, deepest, update].stream
            # An embedding does not move.
            depths = range(1, len(stream.measured))
            title = named(name).title
            series.append(measured(f"{title}, measured", hue, depths, stream.measured[1:], 2 * stream.error[1:]))
            series.append(line(f"{title}, predicted", "predicted", hue, depths, stream.predicted[1:]))
        panels.append(
            Panel(
                title=update, xlabel="completed blocks", ylabel="E‖δx_l‖² / d at a rate of 1", series=series, log_y=True
            )
        )
    title = "Change of the stream by the first update"
    caption = f"Stacks of {deepest} blocks: means over draws with a band of two standard errors, and the prediction."
    return [
        StudyFigure.of_panels(
            name="amplification_theory", title=title, caption=caption, panels=panels, told=title, wide=True
        )
    ]


def tables(
    found: Mapping[Key, Found], orders: Mapping[tuple[str, str], Order], config: AmplificationTheoryConfig
) -> list[StudyTable]:
    """How far every prediction is off, and exponents of depth beside the papers' orders."""
    columns = ["placement", "blocks"]
    for update in config.updates:
        columns += [f"{update}: own off by %", "± s.e.", "amplified", "± s.e.", "output", "± s.e."]
    rows: list[list[str | float | None]] = []
    for name in config.placements:
        for blocks in config.blocks:
            row: list[str | float | None] = [named(name).title, str(blocks)]
            for update in config.updates:
                one = found[name, blocks, update]
                for curve in (one.own, one.amplified, one.output):
                    row += [100 * float(curve.deviation[0]), 100 * float(curve.relative_error[0])]
            rows.append(row)
    of_depth: list[list[str | float | None]] = []
    for (name, update), order in orders.items():
        of_depth.append(
            [
                named(name).title,
                update,
                order.fitted,
                f"{order.least + 0.0:.2f} to {order.greatest + 0.0:.2f}",
                order.last,
                _measured_exponent(name, update, found, config),
                PUBLISHED.get((name, update), ""),
            ]
        )
    ends = f"{min(config.predicted_depths)} to {max(config.predicted_depths)}"
    low, high = min(config.blocks), max(config.blocks)
    return [
        StudyTable(title="Measured over predicted, in per cent above 1", columns=columns, rows=rows),
        StudyTable(
            title="The output's change over depth: exponents",
            columns=[
                "placement",
                "update",
                f"predicted, {ends} blocks",
                "between neighbouring depths",
                "at the deepest",
                f"measured, {low} to {high} blocks",
                "published order",
            ],
            rows=of_depth,
        ),
    ]


def _measured_exponent(name: str, update: str, found: Mapping[Key, Found], config: AmplificationTheoryConfig) -> str:
    """From the shallowest to the deepest stack, with two standard errors; beside it what is predicted for these."""
    if update not in config.updates:
        return ""
    low, high = (found[name, blocks, update].output for blocks in (min(config.blocks), max(config.blocks)))
    way = math.log(max(config.blocks) / min(config.blocks))
    slope, predicted = (
        float(np.log(getattr(high, what)[0] / getattr(low, what)[0])) / way for what in ("measured", "predicted")
    )
    error = math.hypot(*(float(one.error[0] / one.measured[0]) for one in (low, high))) / way
    return f"{slope:.2f} ± {2 * error:.2f} (predicted {predicted:.2f})"
