"""The change by one update over depth: what formulas predict, and stacks that were drawn and updated."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np

from normscope.placement import named
from normscope.report.chart import Panel
from normscope.report.words import counted
from normscope.theory.predict import ModelSetting, Update, fitted, output_changes, predict

from ..engine.claims import foretold
from ..engine.deviation import Compared, as_data, mean_over_draws, spread_of
from ..engine.figures import beside_prediction
from ..engine.page import Claim, StudyFigure, StudyTable, table
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study, scales
from . import ABOUT
from .measure import AmplificationTheoryConfig, changes_of

PUBLISHED = {
    ("post-ln", "random"): "O(N)",
    ("pre-ln", "random"): "O(log N)",
    ("admin", "random"): "O(log N)",
    ("deepnorm", "sgd"): "O(1)",
}
"""Of the output's change: Liu et al. 2020, section 4.2 (random updates); Wang et al. 2022, section 4 (SGD)."""


_Draws = Sequence[Mapping[str, Mapping[str, Any]]]
_Curves = Mapping[tuple[str, int, str], Mapping[str, Compared]]
"""By placement, depth and update: what `compared` gives."""
_Columns = list[tuple[str, Callable[[Any], Any]]]
_OWN = "own"
_WHAT = {
    _OWN: "what the update of a sub-layer's own matrices moves, the mean over sub-layers",
    "amplified": "what sub-layers make of the change at their inputs, the mean over sub-layers",
    "output": "the change of the output",
}


def claims_of(found: _Curves, config: AmplificationTheoryConfig) -> tuple[list[Claim], dict[str, Any]]:
    """A claim for every update and part of the change, and the deviations that they quote."""
    claims, data = [], {}
    for update, (what, words) in product(config.updates, _WHAT.items()):
        limit = config.own_limit_percent if what == _OWN else config.limit_percent
        curves = {
            f"{named(name).title} at {blocks}": [one[what]] for (name, blocks, of), one in found.items() if of == update
        }
        spread = spread_of(curves, limit_percent=limit)
        data[f"{update}, {what}"] = asdict(spread)
        claims.append(
            foretold(
                name=f"{what}, {update}",
                statement=f"The prediction from a placement's formula gives {words}, within {limit:g} %.",
                source="corrected: normscope predict --update",
                of=counted(len(curves), "stack"),
                spread=spread,
                place="",
            )
        )
    return claims, data


def figures(found: _Curves, config: AmplificationTheoryConfig) -> list[StudyFigure]:
    """The stream's change over depth in the deepest stacks, a panel an update."""
    deepest = max(config.blocks)
    panels = []
    for update in config.updates:
        streams = {name: found[name, deepest, update]["stream"] for name in config.placements}
        series = [
            one
            for hue, (name, stream) in enumerate(streams.items())
            # An embedding does not move.
            for one in beside_prediction(named(name).title, hue, stream.since(1), first=1)
        ]
        ylabel = "E‖δx_l‖² / d at a rate of 1"
        panels.append(Panel(title=update, xlabel="completed blocks", ylabel=ylabel, series=series, log_y=True))
    caption = f"Stacks of {deepest} blocks: means over draws with a band of two standard errors, and the prediction."
    title = "Change of the stream by the first update"
    return [StudyFigure.of_panels(name="amplification_theory", title=title, caption=caption, panels=panels, wide=True)]


def tables(
    found: _Curves, orders: Mapping[tuple[str, str], Mapping[str, float]], config: AmplificationTheoryConfig
) -> list[StudyTable]:
    """How far every prediction is off, and exponents of depth beside the papers' orders."""

    def percent(update: str, what: str, of: str) -> Callable[[Any], float]:
        return lambda row: 100 * float(getattr(found[*row, update][what], of)[0])

    off: _Columns = [("placement", lambda row: named(row[0]).title), ("blocks", lambda row: str(row[1]))]
    for update, what in product(config.updates, _WHAT):
        heading = f"{update}: own off by %" if what == _OWN else what
        off += [(heading, percent(update, what, "deviation")), ("± s.e.", percent(update, what, "relative_error"))]
    ends, depths = config.predicted_depths, config.blocks
    return [
        table("Measured over predicted, in per cent above 1", product(config.placements, config.blocks), off),
        table(
            "The output's change over depth: exponents",
            orders,
            [
                ("placement", lambda row: named(row[0]).title),
                ("update", lambda row: row[1]),
                (f"predicted, {min(ends)} to {max(ends)} blocks", lambda row: orders[row]["fitted"]),
                (
                    "between neighbouring depths",
                    lambda row: f"{orders[row]['least'] + 0.0:.2f} to {orders[row]['greatest'] + 0.0:.2f}",
                ),
                ("at the deepest", lambda row: orders[row]["last"]),
                (
                    f"measured, {min(depths)} to {max(depths)} blocks",
                    lambda row: _measured_exponent(*row, found, config),
                ),
                ("published order", lambda row: PUBLISHED.get(row, "")),
            ],
        ),
    ]


def _measured_exponent(name: str, update: str, found: _Curves, config: AmplificationTheoryConfig) -> str:
    """From the shallowest to the deepest stack, with two standard errors; beside it what is predicted for these."""
    if update not in config.updates:
        return ""
    low, high = (found[name, blocks, update]["output"] for blocks in (min(config.blocks), max(config.blocks)))
    way = math.log(max(config.blocks) / min(config.blocks))
    slope, predicted = (
        float(np.log(getattr(high, what)[0] / getattr(low, what)[0])) / way for what in ("measured", "predicted")
    )
    error = math.hypot(*(float(one.error[0] / one.measured[0]) for one in (low, high))) / way
    return f"{slope:.2f} ± {2 * error:.2f} (predicted {predicted:.2f})"


def run(config: AmplificationTheoryConfig, pieces: Pieces) -> Findings:
    """One piece a placement and depth: all its draws, under every update."""
    found = {}
    for placement, model, draws in pieces.each("draws", config.cases()):
        asked = {"placement": placement, "model": asdict(model), "updates": list(config.updates), "draws": draws}
        name = f"{model.blocks}/{placement}"
        measured = pieces.get(name, asked, changes_of, placement, model, config.updates, draws)
        for update in config.updates:
            found[placement, model.blocks, update] = compared(placement, model, update, measured)
    kinds = product(config.placements, (*config.updates, "random"))
    orders = {(name, update): order_of(name, update, config) for name, update in kinds}
    claims, spreads = claims_of(found, config)
    return Findings(
        conditions=_conditions(config),
        claims=claims,
        figures=figures(found, config),
        tables=tables(found, orders, config),
        data={
            "spreads": spreads,
            "curves": {
                f"{name}, {blocks} blocks, {update}": {what: as_data(curve) for what, curve in one.items()}
                for (name, blocks, update), one in found.items()
            },
            "orders": {f"{name}, {update}": order for (name, update), order in orders.items()},
        },
    )


def compared(placement: str, model: ModelSetting, update: str, draws: _Draws) -> dict[str, Compared]:
    """Everything that was measured under one update, beside the prediction.

    own and amplified: measured over predicted, the mean over sub-layers; own_curve and amplified_curve: sub-layer by
    sub-layer.
    """
    change = predict(placement, model, update=Update(optimizer=update, rate=1.0))["encoder"].change
    assert change is not None

    def curve(what: str, predicted: Any) -> Compared:
        return mean_over_draws([np.atleast_1d(draw[update][what]) for draw in draws], np.atleast_1d(predicted))

    def mean_share(of: Compared, what: str) -> Compared:
        """Over all sub-layers where something is predicted."""
        there = of.predicted > 0
        shares = [float(np.mean(np.array(draw[update][what])[there] / of.predicted[there])) for draw in draws]
        return mean_over_draws([[share] for share in shares], [1.0])

    own, amplified = (
        curve(what, np.stack([by_kind["attention"], by_kind["feed_forward"]], 1).ravel())
        for what, by_kind in (("own", change.own), ("amplified", change.amplified))
    )
    return {
        "own": mean_share(own, "own"),
        "amplified": mean_share(amplified, "amplified"),
        "output": curve("output", change.output),
        "loss": curve("loss", change.loss),
        "stream": curve("stream", change.stream),
        "own_curve": own,
        "amplified_curve": amplified,
    }


def order_of(placement: str, update: str, config: AmplificationTheoryConfig) -> dict[str, float]:
    """The exponent of depth of the output's predicted change: fitted, and between neighbouring depths."""
    depths = config.predicted_depths
    values = output_changes(placement, config.model(depths[0]), depths, Update(optimizer=update, rate=1.0))["encoder"]
    local = np.diff(np.log(values)) / np.diff(np.log(depths))
    return {
        "fitted": fitted(depths, values).exponent,
        "least": float(local.min()),
        "greatest": float(local.max()),
        "last": float(local[-1]),
    }


def _conditions(config: AmplificationTheoryConfig) -> dict[str, str]:
    draws = ", ".join(f"{n} at {blocks} blocks" for blocks, n in zip(config.blocks, config.draws, strict=True))
    return {
        "Models": f"encoders, d = {config.width}, feed-forward {config.width}, {config.tokens} tokens, float64",
        "Theory's setting": "Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, no W_O, N(0, 1 / fan-in)",
        "Loss": f"mean cross-entropy of one sequence at random targets, {config.vocabulary:,} entries, in nats",
        "Update": "the first, of W_V, W₁, W₂ and the formula's own numbers; Adam's is the gradient's sign, Muon's its "
        "exact orthogonal factor times 0.2 √width; differences at a rate of 1e-7, over the rate",
        "Draws": f"{draws}; seeds from 1",
        "Spread": "intervals are of 95 %, Student's t over draws; bands are two standard errors",
        "Placements": ", ".join(named(name).title for name in config.placements),
    }


STUDY = Study(
    about=ABOUT,
    scales=scales(
        AmplificationTheoryConfig,
        smoke={
            "placements": ("post-ln", "pre-ln"), "blocks": (1, 2), "draws": (2, 2), "updates": ("sgd", "adam"),
            "width": 32, "tokens": 4, "vocabulary": 100, "predicted_depths": (1, 2, 4),
        },
        paper={"width": 512, "draws": (64, 64, 64)},
    ),
    run=run,
)  # fmt: skip
