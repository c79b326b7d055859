"""Changes by updates over depth: measured stack by stack, beside the orders that papers state."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from normscope.evidence.estimates import plain_estimate, with_interval
from normscope.placement import named
from normscope.placement.printing import formula
from normscope.report.chart import Panel, Series
from normscope.report.words import number, significant

from ..engine.figures import line
from ..engine.page import StudyFigure, StudyTable, table
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study, scales
from . import ABOUT
from .claims import ORDERS, TITLES, Growth, claims, growths
from .measure import PARTS, RANDOM, SMALL_RATES, AmplificationConfig, ChangesBySize, changes


def measured(config: AmplificationConfig, pieces: Pieces) -> ChangesBySize:
    """One piece a placement, depth and seed."""
    sizes = list(product(config.placements, config.depths))
    found: dict[tuple[str, int], list[dict[str, Any]]] = {size: [] for size in sizes}
    asked_of = [(seed, *size) for seed in range(1, config.seeds + 1) for size in sizes]
    for seed, placement, blocks in pieces.each("stacks", asked_of):
        model = config.model(blocks)
        alone_of = config.alone_of if blocks == config.alone_blocks else ()
        asked = {
            "formula": formula(named(placement), model.shape("encoder")),
            "model": asdict(model),
            "small_rates": {kind: SMALL_RATES[kind] for kind in config.updates},
            "alone_of": alone_of,
            "seed": seed,
        }
        name = f"{placement}/blocks-{blocks}_seed-{seed}"
        piece = pieces.get(name, asked, changes, placement, model, config.updates, alone_of, seed)
        found[placement, blocks].append(piece)
    return found


_INSIDE = "adam"
"""The update whose changes are drawn sub-layer by sub-layer, where it was measured."""
_LEAST = 1e-6
"""A part is drawn as far down as this share of the largest: below stands what rounding leaves of 0."""


def tables(config: AmplificationConfig, grown: Sequence[Growth]) -> list[StudyTable]:
    """Exponents beside the papers' orders; sizes at both ends; what blocks do alone."""
    by_arm = {(one.placement, one.update): one for one in grown}

    def columns(cell_of: Callable[[Growth, int], str], updates: Sequence[str]) -> list[tuple[str, Any]]:
        """Of rows of a placement and an end of the depths: a column for each update."""
        return [(TITLES[one], lambda row, one=one: cell_of(by_arm[row[0], one], row[1])) for one in updates]

    titled: tuple[str, Any] = ("placement", lambda row: named(row[0]).title)
    once = [(placement, -1) for placement in config.placements]
    made = [
        table(
            "How the output's change by one update grows with the depth: exponents",
            once,
            [titled, *columns(_exponent, config.updates), ("the paper's", lambda row: _papers(row[0], config))],
        ),
        table(
            "The output's change over its own square and the rate's, at the smallest and the largest depth",
            product(config.placements, (0, -1)),
            [titled, ("blocks", lambda row: config.depths[row[1]]), *columns(_size, config.updates)],
        ),
    ]
    if config.alone_of:
        title = (
            "What the blocks' changes do to the output alone, summed, over the change of all together, at "
            f"{config.alone_blocks} blocks"
        )
        asked = [update for update in config.updates if update in config.alone_of]
        made.append(table(title, once, [titled, *columns(_alone, asked)]))
    return made


def _exponent(one: Growth, _: int) -> str:
    told = "" if one.predicted is None else f" (predicted {number(one.predicted, 2)})"
    return with_interval(one.exponent, 2) + told


def _size(one: Growth, end: int) -> str:
    return significant(math.exp(float(one.logs[end].mean)), 3)


def _alone(one: Growth, _: int) -> str:
    return "" if one.alone is None else with_interval(one.alone, 2)


def _papers(placement: str, config: AmplificationConfig) -> str:
    order = ORDERS.get(placement)
    return "" if order is None else f"{order.exponent(config.depths):.2f}: O({order.words})"


def figures(config: AmplificationConfig, grown: Sequence[Growth], found: ChangesBySize) -> list[StudyFigure]:
    """Growth over depth, and own and amplified change inside the deepest stacks."""
    made = [
        StudyFigure.of_panels(
            name="growth",
            title="The output's change by one update over the depth",
            caption="E(f* - f)² of the output over what it is at the smallest depth; mean of logarithms over seeds "
            "with its 95 % interval. Dotted: the order that a paper states.",
            panels=[_growth(config, placement, grown) for placement in config.placements],
            told="Growth of the output's change over depth, a panel a placement, a line a kind of update",
            wide=True,
        )
    ]
    if _INSIDE in config.updates:
        made.append(
            StudyFigure.of_panels(
                name="inside",
                title=f"Own and amplified change of every sub-layer by one update of {TITLES[_INSIDE]}",
                caption=f"Of stacks of {config.depths[-1]} blocks, over the sub-layer's own square and the rate's; "
                "mean over seeds. Own: only its weights changed; amplified: only its input changed.",
                panels=[_inside(config, placement, found) for placement in config.placements],
                told="Own and amplified change over the sub-layers, a panel a placement",
                wide=True,
            )
        )
    return made


def _growth(config: AmplificationConfig, placement: str, grown: Sequence[Growth]) -> Panel:
    depths, series = [float(n) for n in config.depths], []
    for hue, one in enumerate(one for one in grown if one.placement == placement):
        first = float(one.logs[0].mean)
        y, low, high = (
            [math.exp(float(getattr(log, edge)) - first) for log in one.logs] for edge in ("mean", "low", "high")
        )
        series.append(Series(label=TITLES[one.update], kind="measured", hue=hue, x=depths, y=y, low=low, high=high))
    if (order := ORDERS.get(placement)) is not None:
        series.append(line(f"O({order.words})", "claimed", -1, depths, order.growth(config.depths)))
    return Panel(
        title=named(placement).title,
        xlabel="blocks",
        ylabel=f"change over that at {config.depths[0]} blocks",
        series=series,
        log_x=True,
        log_y=True,
    )


def _inside(config: AmplificationConfig, placement: str, found: ChangesBySize) -> Panel:
    several = found[placement, config.depths[-1]]
    means = [_mean([one[_INSIDE]["sublayers"][part] for one in several]) for part in PARTS[1:]]
    least = _LEAST * max((float(v) for mean in means for v in mean if np.isfinite(v)), default=0.0)
    series = [
        Series(
            label=part,
            kind="measured",
            hue=hue,
            x=[float(place) for place in range(1, len(mean) + 1)],
            y=[float(v) if np.isfinite(v) and v > least else None for v in mean],
        )
        for hue, (part, mean) in enumerate(zip(PARTS[1:], means, strict=True))
    ]
    return Panel(
        title=named(placement).title, xlabel="sub-layer", ylabel="change over F² and rate²", series=series, log_y=True
    )


def data(config: AmplificationConfig, grown: Sequence[Growth], found: ChangesBySize) -> dict[str, Any]:
    """Every exponent and change, and those of sub-layers at the largest depth, means over seeds."""
    return {
        "growth": [
            {
                "placement": one.placement,
                "update": one.update,
                "exponent": plain_estimate(one.exponent),
                "predicted": one.predicted,
                "log_changes": [plain_estimate(log) for log in one.logs],
                "changes": [[seed[one.update]["output"] for seed in found[one.placement, n]] for n in config.depths],
                "alone": None if one.alone is None else plain_estimate(one.alone),
            }
            for one in grown
        ],
        "orders": {name: one.exponent(config.depths) for name, one in ORDERS.items() if name in config.placements},
        "sublayers": [
            {"placement": placement, "update": update, **_means(found[placement, config.depths[-1]], update)}
            for placement in config.placements
            for update in config.updates
        ],
    }


def _means(several: Sequence[Mapping[str, Any]], update: str) -> dict[str, Any]:
    """Of every part, over seeds."""
    return {part: _mean([one[update]["sublayers"][part] for one in several]) for part in PARTS}


def _mean(rows: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
    """NaN for a sub-layer whose output is 0 in a seed: a change has no size beside it."""
    plain = [[math.nan if value is None else value for value in row] for row in rows]
    mean: NDArray[np.float64] = np.mean(np.asarray(plain, dtype=np.float64), axis=0)
    return mean


def conditions(config: AmplificationConfig) -> dict[str, str]:
    """How it was measured."""
    rates = ", ".join(f"{TITLES[update]} {SMALL_RATES[update]:g}" for update in config.updates)
    return {
        "models": f"encoders of {', '.join(map(str, config.depths))} blocks of two sub-layers, width {config.width}, "
        f"feed-forward as wide, in float64; initial weights: setting {config.setting} of `normscope predict`; inputs "
        "from N(0, 1)",
        "weights that move": "W_V, W₁, W₂ and the placement's own numbers"
        if config.setting == "theory"
        else "all of the stack; the output projection stays",
        "gradient normalisation": "mean cross-entropy per token; random targets",
        "logarithm": "natural: losses in nats",
        "tokens": f"{config.sequences} sequences of {config.tokens} a batch, {config.vocabulary} classes",
        "rates": f"{rates}: so small that changes go as their square, over which they are given",
        "random update": "every entry from N(0, rate²), independent of weights and inputs",
        "updates": "the first of each optimiser, changes on its own batch; Lion's first is the gradient's sign as "
        "Adam's",
        "seeds and spread": f"{config.seeds} seeds of weights, inputs and targets; intervals of 95 %, Student's t over "
        "exponents or logarithms seed by seed",
    }


def run(config: AmplificationConfig, pieces: Pieces) -> Findings:
    """One piece a placement, depth and seed."""
    found = measured(config, pieces)
    grown = growths(config, found)
    return Findings(
        conditions=conditions(config),
        claims=claims(config, grown),
        figures=figures(config, grown, found),
        tables=tables(config, grown),
        data=data(config, grown, found),
    )


SCALES = scales(
    AmplificationConfig,
    smoke={
        "placements": ("post-ln", "rezero"), "updates": (RANDOM, "adam"), "alone_of": (RANDOM,), "depths": (2, 3),
        "width": 8, "seeds": 2, "tokens": 4, "sequences": 2, "vocabulary": 16, "alone_blocks": 3,
    },
    paper={"width": 512, "seeds": 10, "tokens": 32, "sequences": 16, "vocabulary": 10_000},
)  # fmt: skip
"""Cost: smoke takes seconds; cpu a few minutes of one core; paper hours of one."""
STUDY = Study(about=ABOUT, scales=SCALES, run=run)
