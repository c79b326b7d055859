"""The change by one update over depth: what formulas predict, and stacks that were drawn and updated."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from normscope.placement import named
from normscope.report.chart import Panel
from normscope.report.words import counted, number
from normscope.theory.predict import ModelSetting, Update, fitted, output_changes, predict

from ..engine.claims import judged
from ..engine.deviation import Compared, as_data, mean_over_draws, spread_of
from ..engine.figures import line, measured
from ..engine.page import Claim, StudyFigure, StudyTable
from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from . import ABOUT
from .measure import AmplificationTheoryConfig, EncoderSize, changes_of

PUBLISHED = {
    ("post-ln", "random"): "O(N)",
    ("pre-ln", "random"): "O(log N)",
    ("admin", "random"): "O(log N)",
    ("deepnorm", "sgd"): "O(1)",
}
"""Of the output's change: Liu et al. 2020, section 4.2 (random updates); Wang et al. 2022, section 4 (SGD)."""


class Changes(NamedTuple):
    """One placement, depth and update."""

    own: Compared
    """Measured over predicted, the mean over sub-layers."""
    amplified: Compared
    output: Compared
    loss: Compared
    stream: Compared
    own_curve: Compared
    amplified_curve: Compared


class DepthExponent(NamedTuple):
    """The exponent of depth: fitted, and between neighbouring depths the least, the greatest and the last."""

    fitted: float
    least: float
    greatest: float
    last: float


_Key = tuple[str, int, str]
_WHAT = {
    "own": "what the update of a sub-layer's own matrices moves, the mean over sub-layers",
    "amplified": "what sub-layers make of the change at their inputs, the mean over sub-layers",
    "output": "the change of the output",
}


def claims_of(found: Mapping[_Key, Changes], config: AmplificationTheoryConfig) -> tuple[list[Claim], dict[str, Any]]:
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


def figures(found: Mapping[_Key, Changes], config: AmplificationTheoryConfig) -> list[StudyFigure]:
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
    found: Mapping[_Key, Changes], orders: Mapping[tuple[str, str], DepthExponent], config: AmplificationTheoryConfig
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


def _measured_exponent(name: str, update: str, found: Mapping[_Key, Changes], config: AmplificationTheoryConfig) -> str:
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


_Draws = Sequence[Mapping[str, Mapping[str, Any]]]


def run(config: AmplificationTheoryConfig, pieces: Pieces) -> Findings:
    """One piece a placement and depth: all its draws, under every update."""
    cases = config.cases()
    found: dict[tuple[str, int, str], Changes] = {}
    for done, (drawn, draws) in enumerate(cases):
        pieces.watch("draws", done, len(cases))
        asked = {"drawn": asdict(drawn), "updates": list(config.updates), "draws": draws}
        name = f"{drawn.blocks}/{drawn.placement}"
        measured = pieces.get(name, asked, changes_of, drawn, config.updates, draws)
        for update in config.updates:
            found[drawn.placement, drawn.blocks, update] = compared(drawn, update, measured)
    pieces.watch("draws", len(cases), len(cases))
    orders = {
        (name, update): order_of(name, update, config)
        for name in config.placements
        for update in (*config.updates, "random")
    }
    claims, spreads = claims_of(found, config)
    return Findings(
        conditions=_conditions(config),
        claims=claims,
        figures=figures(found, config),
        tables=tables(found, orders, config),
        data={
            "spreads": spreads,
            "curves": {
                f"{name}, {blocks} blocks, {update}": {what: as_data(curve) for what, curve in one._asdict().items()}
                for (name, blocks, update), one in found.items()
            },
            "orders": {f"{name}, {update}": order._asdict() for (name, update), order in orders.items()},
        },
    )


def compared(drawn: EncoderSize, update: str, draws: _Draws) -> Changes:
    """Everything that was measured under one update, beside the prediction."""
    model = ModelSetting(
        blocks=drawn.blocks,
        width=drawn.width,
        ffn_width=drawn.width,
        tokens=drawn.tokens,
        vocabulary=drawn.vocabulary,
    )
    change = predict(drawn.placement, model, update=Update(optimizer=update, rate=1.0))["encoder"].change
    assert change is not None

    def curve(what: str, predicted: Any) -> Any:
        return mean_over_draws([np.atleast_1d(draw[update][what]) for draw in draws], np.atleast_1d(predicted))

    def in_order(by_kind: Mapping[str, Any]) -> Any:
        return np.stack([by_kind["attention"], by_kind["feed_forward"]], 1).ravel()

    own, amplified = in_order(change.own), in_order(change.amplified)

    def mean_share(what: str, predicted: Any) -> Any:
        """Measured over predicted, the mean over all sub-layers where something is predicted."""
        there = predicted > 0
        return mean_over_draws(
            [[float(np.mean(np.array(draw[update][what])[there] / predicted[there]))] for draw in draws], [1.0]
        )

    return Changes(
        own=mean_share("own", own),
        amplified=mean_share("amplified", amplified),
        output=curve("output", change.output),
        loss=curve("loss", change.loss),
        stream=curve("stream", change.stream),
        own_curve=curve("own", own),
        amplified_curve=curve("amplified", amplified),
    )


def order_of(placement: str, update: str, config: AmplificationTheoryConfig) -> DepthExponent:
    """How the predicted change of the output grows with depth."""
    model = ModelSetting(width=config.width, ffn_width=config.width, tokens=config.tokens, vocabulary=config.vocabulary)
    depths = config.predicted_depths
    values = output_changes(placement, model, depths, Update(optimizer=update, rate=1.0))["encoder"]
    local = np.diff(np.log(values)) / np.diff(np.log(depths))
    return DepthExponent(fitted(depths, values).exponent, float(local.min()), float(local.max()), float(local[-1]))


def _conditions(config: AmplificationTheoryConfig) -> list[tuple[str, str]]:
    draws = ", ".join(f"{n} at {blocks} blocks" for blocks, n in zip(config.blocks, config.draws, strict=True))
    return [
        ("Models", f"encoders, d = {config.width}, feed-forward {config.width}, {config.tokens} tokens, float64"),
        ("Theory's setting", "Xiong et al. 2020, section 3.3: one head, W_Q = W_K = 0, no W_O, N(0, 1 / fan-in)"),
        ("Loss", f"mean cross-entropy of one sequence at random targets, {config.vocabulary:,} entries, in nats"),
        (
            "Update",
            "the first, of W_V, W₁, W₂ and the formula's own numbers; Adam's is the gradient's sign, Muon's its exact "
            "orthogonal factor times 0.2 √width; differences at a rate of 1e-7, over the rate",
        ),
        ("Draws", f"{draws}; seeds from 1"),
        ("Spread", "intervals are of 95 %, Student's t over draws; bands are two standard errors"),
        ("Placements", ", ".join(named(name).title for name in config.placements)),
    ]


_SMOKE = AmplificationTheoryConfig(
    placements=("post-ln", "pre-ln"), blocks=(1, 2), draws=(2, 2), updates=("sgd", "adam"), width=32, tokens=4,
    vocabulary=100, predicted_depths=(1, 2, 4),
)  # fmt: skip
STUDY = Study(
    about=ABOUT,
    scales={
        "smoke": Scale(config=_SMOKE, decides=False),
        "cpu": Scale(config=AmplificationTheoryConfig()),
        "paper": Scale(config=AmplificationTheoryConfig(width=512, draws=(64, 64, 64))),
    },
    run=run,
)
