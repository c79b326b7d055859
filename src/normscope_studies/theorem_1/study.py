"""Theorem 1: how large the gradient of the last W₂ is over depth and over width, beside its
bounds.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np

from normscope.report.chart import Panel

from ..engine.estimates import Floats, plain_estimate
from ..engine.page import Findings, StudyFigure, line, measured
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from .claims import claims
from .measure import Theorem1Config, sweeps_of_seed
from .sweeps import LONG, SHORT, SIDES, Half, Sweep

_INK = -1
_GREEN = 2
_PINK = 3
_LINES: dict[str, tuple[str, int]] = {
    "paper's order, d√(ln d) or d√(ln d / L)": ("paper_order", _INK),
    "paper's bound with its constants": ("paper_bound", _PINK),
    "corrected bound, O(√d) or O(√(d/L))": ("corrected_bound", _GREEN),
}


_CAPTIONS = {
    "blocks": (
        "Measured with its 95 % interval, predicted, and the bounds, which take ‖∂L/∂x‖ to be 1; "
        "of the paper there is its order with constant 1, and the bound with the constants of its "
        "proof."
    ),
    "width": (
        "Above with output rows of length 1, as the theorem needs them; below with rows from N(0, "
        "1): ‖∂L/∂x‖ grows as √(2d) and brings the gradient of W₂ to order d."
    ),
}


def figures(sweeps: Sequence[Sweep]) -> list[StudyFigure]:
    """Draws the figures over depth, and over width for both kinds of output rows."""
    shown: dict[tuple[str, str, str], list[Sweep]] = {}
    for sweep in sorted(sweeps, key=lambda one: one.rows == LONG):
        shown.setdefault((sweep.over, sweep.side.title, sweep.rows), []).append(sweep)
    made = []
    for over, name in (("blocks", "depth"), ("width", "width")):
        panels = [_panel(several) for (one, _, _), several in shown.items() if one == over]
        made.append(
            StudyFigure.of_panels(
                name=name,
                title=f"The last W₂'s gradient over {name}",
                caption=_CAPTIONS[over],
                panels=panels,
            )
        )
    return made


def _panel(sweeps: Sequence[Sweep]) -> Panel:
    first = sweeps[0]
    deep = first.over == "blocks"
    where = (
        f"d = {first.shapes[0][1]}" if deep else f"{first.shapes[0][0]} blocks, rows {first.rows}"
    )
    series = []
    for hue, sweep in enumerate(sweeps):
        label, found = f"measured, {sweep.name}", sweep.mean
        series.append(measured(label, hue, sweep.x, found.mean, found.half_width))
        if np.isfinite(sweep.predicted_X).all():
            series.append(
                line(f"predicted, {sweep.name}", "predicted", hue, sweep.x, sweep.predicted_X)
            )
    for label, (kind, hue) in _LINES.items():
        if kind == "paper_order" or first.rows == SHORT:
            series.append(line(label, "claimed", hue, first.x, first.bounds(kind)))
    return Panel(
        title=f"{first.side.title}, {where}",
        xlabel="blocks L" if deep else "width d",
        ylabel="‖∂L/∂W₂‖",
        series=series,
        log_x=True,
        log_y=True,
    )


def run(config: Theorem1Config, pieces: Pieces) -> Findings:
    """Measure what is missing, predict, and judge."""
    sweeps = [sweep for side in SIDES.values() for sweep in _sweeps(side, config, pieces)]
    return Findings(
        conditions=_conditions(config),
        claims=claims(sweeps),
        figures=figures(sweeps),
        data={"sweeps": [_data(sweep) for sweep in sweeps]},
    )


def _sweeps(side: Half, config: Theorem1Config, pieces: Pieces) -> Iterator[Sweep]:
    """Yields them in both directions, for both numbers of tokens, and over width for both kinds of
    rows; a piece a seed.
    """
    vocabulary = config.vocabulary
    sizes: dict[str, Any] = {
        "tokens": [1, config.tokens],
        "sequences": config.sequences,
        "vocabulary": vocabulary,
    }
    places = {over: config.shapes(over) for over in ("blocks", "width")}
    seeds = []
    for seed in pieces.each(side.title, range(1, config.seeds + 1)):
        asked = {"placement": side.placement, "seed": seed, "shapes": places, **sizes}
        name = f"{side.placement}/seed-{seed}"
        seeds.append(pieces.get(name, asked, sweeps_of_seed, side.placement, places, seed, **sizes))
    choices: list[tuple[Literal["blocks", "width"], str]] = [
        ("blocks", SHORT),
        ("width", SHORT),
        ("width", LONG),
    ]
    for (over, rows), tokens in product(choices, (1, config.tokens)):
        entries = []
        for seed in seeds:
            entries.append([place[f"{tokens}, {rows}"] for place in seed[over]])
        yield Sweep(
            side=side,
            over=over,
            tokens=tokens,
            rows=rows,
            shapes=places[over],
            gradients_SXQ=_every(entries, "gradient_norms"),
            elements_SXQ=_every(entries, "greatest_elements"),
            loss_gradients_SXQ=_every(entries, "loss_gradient_norms"),
            least_powers_SXQ=_every(entries, "least_powers"),
            mean_powers_SXQ=_every(entries, "mean_powers"),
            predicted_X=np.array(
                [
                    side.predicted(*shape, tokens=tokens, rows=rows, vocabulary=vocabulary)
                    for shape in places[over]
                ]
            ),
        )


def _every(entries: Sequence[Sequence[Mapping[str, Any]]], what: str) -> Floats:
    """Returns one number of all entries, (S, X, Q)."""
    rows = []
    for seed in entries:
        rows.append([place[what] for place in seed])
    return np.array(rows, dtype=np.float64)


def _conditions(config: Theorem1Config) -> dict[str, str]:
    return {
        "gradient": (
            "Frobenius norm of the gradient of the mean cross-entropy per token, one sequence at a "
            "time"
        ),
        "logarithm": "natural; losses are in nats",
        "tokens": f"1 and {config.tokens} of each sequence, independent and from N(0, 1)",
        "seeds and spread": (
            f"{config.seeds} draws of weights, {config.sequences} sequences of each "
            f"({config.seeds * config.sequences:,} gradients a point); ± and bands are 95 % "
            "intervals of the mean over seeds (Student's t)"
        ),
        "model": (
            "encoder before any update, one head, square matrices from N(0, 1/d), W_Q = W_K = 0, "
            f"no output projection in attention, LayerNorm; d = {config.width} over depth, "
            f"{config.blocks} blocks over width"
        ),
        "loss's gradient": (
            "the paper takes ‖∂L/∂x‖ to be O(1): output rows are drawn from N(0, 1/d), over "
            f"{config.vocabulary:,} words, targets at random; where said so, rows from N(0, 1)"
        ),
    }


def _data(sweep: Sweep) -> dict[str, Any]:
    found = {
        "placement": sweep.side.placement,
        "over": sweep.over,
        "tokens": sweep.tokens,
        "rows": sweep.rows,
        "blocks": [blocks for blocks, _ in sweep.shapes],
        "width": [width for _, width in sweep.shapes],
        "gradient_norm": plain_estimate(sweep.mean),
        "exponent": plain_estimate(sweep.exponent),
        "claimed_exponent": sweep.claimed_exponent,
        "loss_gradient_norm": sweep.loss_gradients_X,
        "predicted": sweep.predicted_X,
        "measured_over_predicted": plain_estimate(sweep.ratio),
    }
    for kind, _ in _LINES.values():
        found[kind] = sweep.bounds(kind)
        found[f"{kind}_over_measured"] = sweep.slack(kind)
    found["element_bound_over_measured"] = sweep.slack("element_bound")
    for kind in ("paper_bound", "corrected_bound", "element_bound"):
        found[f"above_{kind}"] = int(sweep.above_SXQ(kind).sum())
    return found | {"least_share_of_mean_power": float(sweep.least_shares_SXQ.min())}


_SMOKE = {
    "depths": (2, 4, 8),
    "width": 32,
    "widths": (16, 32, 64),
    "blocks": 2,
    "seeds": 3,
    "tokens": 4,
    "sequences": 2,
    "vocabulary": 256,
}
STUDY = Study(
    title="Theorem 1: the gradient of the last layer",
    question=(
        "How large is the gradient of the last W₂ before the first update, how does it change with "
        "depth and width, and how near do the paper's bound and the corrected one come to it?"
    ),
    help="How large is the gradient of the last layer's W2?",
    scales=scales(Theorem1Config, smoke=_SMOKE, paper={"seeds": 64}),
    run=run,
)
