"""The change by one update over depth: what formulas predict, and stacks that were drawn and updated."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.placement import named
from normscope.theory.predict import ModelSetting, Update, fitted, output_changes, predict

from ..engine.deviation import as_data, mean_over_draws
from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from . import ABOUT
from .config import AmplificationTheoryConfig
from .measure import Drawn, changes_of
from .page import Found, Order, claims_of, figures, tables

_Draws = Sequence[Mapping[str, Mapping[str, Any]]]


def run(config: AmplificationTheoryConfig, pieces: Pieces) -> Findings:
    """One piece a placement and depth: all its draws, under every update."""
    cases = config.cases()
    found: dict[tuple[str, int, str], Found] = {}
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


def compared(drawn: Drawn, update: str, draws: _Draws) -> Found:
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

    return Found(
        own=mean_share("own", own),
        amplified=mean_share("amplified", amplified),
        output=curve("output", change.output),
        loss=curve("loss", change.loss),
        stream=curve("stream", change.stream),
        own_curve=curve("own", own),
        amplified_curve=curve("amplified", amplified),
    )


def order_of(placement: str, update: str, config: AmplificationTheoryConfig) -> Order:
    """How the predicted change of the output grows with depth."""
    model = ModelSetting(width=config.width, ffn_width=config.width, tokens=config.tokens, vocabulary=config.vocabulary)
    depths = config.predicted_depths
    values = output_changes(placement, model, depths, Update(optimizer=update, rate=1.0))["encoder"]
    local = np.diff(np.log(values)) / np.diff(np.log(depths))
    return Order(fitted(depths, values).exponent, float(local.min()), float(local.max()), float(local[-1]))


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
