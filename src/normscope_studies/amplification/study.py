"""Small changes over depth, measured beside predicted, and singular values of Jacobians."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np

from normscope.placement import named
from normscope.placement.printing import formula
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import Update, predict

from ..engine.estimates import Floats, plain_estimate
from ..engine.page import Findings
from ..engine.pieces import Pieces
from ..engine.study import Study
from .claims import UPDATE_TITLES, DepthGrowth, Spectra, claims, near_one, vanished
from .config import HEADS, SCALES, AmplificationConfig
from .measure import MATRICES, RANDOM, SMALL_RATES, changes, singular_values
from .page import QUANTILES, figures, tables


def run(config: AmplificationConfig, pieces: Pieces) -> Findings:
    """One piece a placement, depth and draw, of changes and of Jacobians."""
    grown, refused = growths(config, _changes(config, pieces))
    spectra = _spectra(config, pieces)
    return Findings(
        conditions=_conditions(config) | _left_out(refused),
        claims=claims(config, grown, spectra),
        figures=figures(config, grown, spectra),
        tables=tables(config, grown, spectra),
        data=_data(grown, spectra),
    )


_DrawnChanges = Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]
"""Each draw's `measure.changes`, by placement and depth."""


def _changes(config: AmplificationConfig, pieces: Pieces) -> _DrawnChanges:
    """The first draw of all stacks first."""
    sizes = list(product(config.placements, config.depths))
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = {size: [] for size in sizes}
    asked_of = [(draw, *size) for draw in range(1, config.draws + 1) for size in sizes]
    for draw, placement, blocks in pieces.each("changes", asked_of):
        shape = config.shape(blocks)
        settings = {
            "initialisation": config.initialisation,
            "tokens": config.tokens,
            "vocabulary": config.vocabulary,
            "seed": draw,
        }
        asked = {
            **settings,
            "formula": formula(named(placement), shape),
            "shape": asdict(shape),
            "rates": {update: SMALL_RATES[update] for update in config.updates},
            "moves": config.moves,
        }
        name = f"changes-{placement}/blocks-{blocks}_draw-{draw}"
        piece = pieces.get(
            name, asked, changes, placement, shape, config.updates, config.moves, **settings
        )
        found[placement, blocks].append(piece)
    return found


def _spectra(config: AmplificationConfig, pieces: Pieces) -> Spectra:
    sizes = list(product(config.placements, config.jacobian_depths))
    found: dict[tuple[str, int], list[Floats]] = {size: [] for size in sizes}
    asked_of = [(draw, *size) for draw in range(1, config.jacobian_draws + 1) for size in sizes]
    for draw, placement, blocks in pieces.each("Jacobians", asked_of):
        shape = config.jacobian_shape(blocks)
        settings = {
            "initialisation": config.jacobian_initialisation,
            "tokens": config.jacobian_tokens,
            "seed": draw,
        }
        asked = {
            **settings,
            "formula": formula(named(placement), shape),
            "shape": asdict(shape),
        }
        name = f"jacobian-{placement}/blocks-{blocks}_draw-{draw}"
        values = pieces.get(name, asked, singular_values, placement, shape, **settings)
        found[placement, blocks].append(np.asarray(values, dtype=np.float64))
    return found


def growths(
    config: AmplificationConfig, found: _DrawnChanges
) -> tuple[list[DepthGrowth], dict[str, str]]:
    """Returns the growth of every placement, what is moved and update, in the order of the
    settings; and why theory does not follow a placement's updates, by its name.
    """
    grown, refused = [], dict[str, str]()
    for placement, moved, update in product(config.placements, config.moves, config.updates):
        predictions = None
        # What is predicted is the change by the matrices, and by the formula's own numbers.
        if moved == MATRICES:
            try:
                predictions = _predicted(config, placement, update)
            except Unpredictable as reason:
                refused[placement] = str(reason)
        output = []
        for blocks in config.depths:
            draws = [one[moved][update] for one in found[placement, blocks]]
            output.append([one["output"] for one in draws])
        deepest = found[placement, config.depths[-1]]
        grown.append(
            DepthGrowth(
                placement=placement,
                update=update,
                moved=moved,
                depths=config.depths,
                output=np.array(output, dtype=np.float64).T,
                stream=np.array(
                    [one[moved][update]["stream"][1:] for one in deepest], dtype=np.float64
                ),
                predicted=predictions[0] if predictions else None,
                predicted_stream=predictions[1] if predictions else None,
            )
        )
    return grown, refused


def _predicted(config: AmplificationConfig, placement: str, update: str) -> tuple[Floats, Floats]:
    """Predicts the change of the output at every depth, and of the stream of the deepest stack
    after 1 … L blocks. Raises Unpredictable.

    Raises Unpredictable.
    """
    asked, found = Update(optimizer=update, rate=1.0), []
    for blocks in config.depths:
        change = predict(placement, config.model(blocks), update=asked)["encoder"].change
        assert change is not None
        found.append(change)
    return np.array([one.output for one in found]), found[-1].stream[1:]


def _left_out(refused: Mapping[str, str]) -> dict[str, str]:
    lines = [f"{named(name).title}, as {why}" for name, why in refused.items()]
    return {"Not predicted": "; ".join(lines)} if lines else {}


def _data(grown: Sequence[DepthGrowth], spectra: Spectra) -> dict[str, Any]:
    return {
        "growth": [
            {
                "placement": one.placement,
                "update": one.update,
                "moved": one.moved,
                "depths": one.depths,
                "changes": one.output,
                "predicted_changes": one.predicted,
                "exponent": plain_estimate(one.exponent),
                "predicted_exponent": one.predicted_exponent,
                "stream": one.stream.mean(0),
                "predicted_stream": one.predicted_stream,
            }
            for one in grown
        ],
        "jacobians": [
            _jacobian_data(placement, blocks, draws)
            for (placement, blocks), draws in spectra.items()
        ],
    }


def _jacobian_data(placement: str, blocks: int, draws: Sequence[Floats]) -> dict[str, Any]:
    return {
        "placement": placement,
        "blocks": blocks,
        "near_one": [near_one(one) for one in draws],
        "vanished": [vanished(one) for one in draws],
        "quantiles": [np.quantile(one, (0, *QUANTILES, 1)).tolist() for one in draws],
    }


def _conditions(config: AmplificationConfig) -> dict[str, str]:
    rates = ", ".join(f"{UPDATE_TITLES[one]} {SMALL_RATES[one]:g}" for one in config.updates)
    return {
        "Models": (
            f"encoders of {', '.join(map(str, config.depths))} blocks of two sub-layers, width and "
            f"feed-forward {config.width}, one head, in float64; initial weights: setting "
            f"{config.initialisation} of `normscope predict`; inputs from N(0, 1)"
        ),
        "What moves": (
            "matrices: those of F and the placement's own numbers, as proofs have it and as "
            "predictions do; all: gains of norms and all shifts too. The output projection stays"
        ),
        "Updates": (
            f"the first of each optimiser, at rates of {rates}: so small that changes go as their "
            f"square, over which they are given; {UPDATE_TITLES[RANDOM]}: every entry from "
            "N(0, rate²), independent of weights and inputs"
        ),
        "Gradient normalisation": (
            f"mean cross-entropy per token over {config.vocabulary:,} classes, random targets"
        ),
        "Logarithm": "natural: losses in nats, and the exponents' logarithms",
        "Tokens": f"one sequence of {config.tokens}, on which the change is measured too",
        "Draws": f"{config.draws} of weights, inputs and targets, seeds from 1",
        "Spread": (
            "intervals are of 95 %, Student's t over draws; exponents are those of the mean over "
            "draws, their intervals by leaving out one draw at a time"
        ),
        "Jacobians": (
            f"of all outputs by all inputs: {config.jacobian_tokens} tokens of width "
            f"{config.jacobian_width}, {HEADS} heads, feed-forward twice as wide, initial weights "
            f"{config.jacobian_initialisation}; {config.jacobian_draws} draws; float64"
        ),
    }


STUDY = Study(
    title="How small changes of the weights grow with depth",
    question=(
        "How far does the output of a stack move when all its weights do, at random or by one "
        "update, does that grow with the depth as papers state and as formulas predict, and whose "
        "Jacobian is an isometry before training?"
    ),
    help="How do small changes of weights grow with depth?",
    scales=SCALES,
    run=run,
)
