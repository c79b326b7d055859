"""Figures, tables, data and conditions of the study of conditioning."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from normscope.evidence.estimates import estimate, plain_estimate
from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.chart import Panel, Series
from normscope.report.svg import HUES
from normscope.report.words import joined

from ..engine.figures import scatter
from ..engine.page import StudyFigure, StudyTable, TableCell, table
from .courses import POST, ConditioningConfig, PlacementCourses

Telling = Mapping[str, Sequence[PlacementCourses]]
"""By placement, one for each rate."""
_Column = tuple[str, Callable[[PlacementCourses], TableCell | Estimate]]
_PANELS = {
    "gradient_spread": ("Gradient norms", "largest over smallest"),
    "update_spread": ("Update norms", "largest over smallest"),
    "off_isometry": ("Block Jacobians", "farthest from 1, as a factor"),
    "peak": ("Their largest singular value", "over the root mean square"),
}


def best(placed: Sequence[PlacementCourses]) -> PlacementCourses:
    """At the rate whose mean loss is lowest."""
    return min(placed, key=lambda one: one.mean_nats)


def less_post(one: PlacementCourses, telling: Telling) -> Estimate:
    """How far it ends above Post-LN, each at its own best rate; over seeds in pairs."""
    return estimate([a - b for a, b in zip(one.finals, best(telling[POST]).finals, strict=True)])


def spread_and_loss(registry: Sequence[PlacementCourses]) -> dict[str, tuple[float, float]]:
    """Of placements whose training stayed finite: the largest spread of gradients, and the last loss in nats."""
    kept = [one for one in registry if one.finite]
    return {one.placement: (math.exp(float(one.worst("gradient_spread").mean)), one.mean_nats) for one in kept}


def figures(config: ConditioningConfig, telling: Telling, registry: Sequence[PlacementCourses]) -> list[StudyFigure]:
    """Courses of the telling placements, as many in a figure as there are hues; every placement's spread and loss."""
    at = [best(placed) for placed in telling.values()]
    count = -(-len(at) // len(HUES))
    size = -(-len(at) // count)
    groups = [at[start : start + size] for start in range(0, len(at), size)]
    made = []
    for number, group in enumerate(groups, 1):
        title = f"Spread over the blocks, throughout training: {joined([one.title for one in group])}"
        made.append(
            StudyFigure.of_panels(
                name=f"courses_{number}",
                title=title,
                caption="Each placement at its best rate: geometric mean over seeds, in the range of the seeds. "
                "Gradients and updates: largest over smallest norm of a block.",
                panels=[_over_updates(what, group) for what in _PANELS],
                told=title,
                wide=True,
            )
        )
    return [*made, _scatter(config, registry)]


def _over_updates(what: str, at: Sequence[PlacementCourses]) -> Panel:
    series = []
    for hue, one in enumerate(at):
        kept = [getattr(course, what) for course in one.courses if course.finite]
        if kept and not np.isnan(kept).all():
            y, low, high = map(_gaps, (one.mean(what), np.min(kept, 0), np.max(kept, 0)))
            series.append(Series(label=one.title, kind="measured", hue=hue, x=list(one.looks), y=y, low=low, high=high))
    title, ylabel = _PANELS[what]
    return Panel(title=title, xlabel="update", ylabel=ylabel, series=series, log_y=True)


def _gaps(values: ArrayLike) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in np.asarray(values, np.float64)]


def _scatter(config: ConditioningConfig, registry: Sequence[PlacementCourses]) -> StudyFigure:
    places = {name: (loss, spread) for name, (spread, loss) in spread_and_loss(registry).items()}
    names = [name for name in config.telling if name in places][: len(HUES)]
    others = [place for name, place in places.items() if name not in names]
    points = {"other placements": others} if others else {}
    title = "The largest spread of gradients beside the last loss"
    return StudyFigure.of_panels(
        name="spread_and_loss",
        title=title,
        caption=f"Every placement at the common rate of {config.common_lr:g}; those of several seeds are means. A "
        "spread of 1 is the same gradient norm in every block, throughout.",
        panels=[
            scatter(
                "",
                points | {named(name).title: [places[name]] for name in names},
                xlabel="last validation loss, nats",
                ylabel="largest spread of gradient norms",
                log_y=True,
            )
        ],
        told=title,
    )


def tables(config: ConditioningConfig, telling: Telling, registry: Sequence[PlacementCourses]) -> list[StudyTable]:
    """The telling placements by their last loss, and all of them by their largest spread."""
    limit = config.stated_factor
    placement: _Column = ("placement", lambda one: one.title)
    seen: list[_Column] = [
        ("spread stated", lambda one: _finite(one.stated)),
        ("at first", lambda one: _finite(one.mean("gradient_spread")[0])),
        ("largest", lambda one: _largest(one, "gradient_spread")),
        ("leaves at", lambda one: str(one.left(limit) or "never")),
        ("is back at", lambda one: str(one.back(limit) or "–")),
        ("updates", lambda one: _largest(one, "update_spread")),
        ("off isometry", lambda one: _largest(one, "off_isometry")),
        ("peak", lambda one: _largest(one, "peak")),
    ]
    return [
        table(
            f"The placements that the claims are about, {config.seeds} seeds, the lowest loss first",
            sorted((one for placed in telling.values() for one in placed), key=lambda one: one.mean_nats),
            [
                placement,
                ("rate", lambda one: f"{one.lr:g}"),
                ("last loss", lambda one: one.mean_nats),
                ("less Post-LN's best", lambda one: float(less_post(one, telling).mean)),
                ("±", lambda one: float(less_post(one, telling).half_width)),
                *seen,
            ],
        ),
        table(
            f"Every placement at a rate of {config.common_lr:g}, the smallest spread of gradients first",
            sorted(registry, key=lambda one: _largest(one, "gradient_spread") or math.inf),
            [placement, ("seeds", lambda one: str(len(one.courses))), ("last loss", lambda one: one.mean_nats), *seen],
        ),
    ]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _largest(one: PlacementCourses, what: str) -> float | None:
    return _finite(float(np.exp(one.worst(what).mean)))


def data(config: ConditioningConfig, telling: Telling, registry: Sequence[PlacementCourses]) -> dict[str, Any]:
    """Every course, and what the claims quote."""
    return {
        "telling": [_plain_courses(config, one, telling) for placed in telling.values() for one in placed],
        "registry": [_plain_courses(config, one, telling) for one in registry],
    }


def _plain_courses(config: ConditioningConfig, one: PlacementCourses, telling: Telling) -> dict[str, Any]:
    same = len(one.courses) == len(best(telling[POST]).courses)
    return {
        "placement": one.placement,
        "title": one.title,
        "lr": one.lr,
        "stated_spread": one.stated,
        "looks": one.looks,
        "mean_nats": one.mean_nats,
        "last_loss_nats": one.finals,
        "finite": [course.finite for course in one.courses],
        "less_post_ln_nats": plain_estimate(less_post(one, telling)) if same else None,
        "largest": {what: _largest(one, what) for what in _PANELS},
        "leaves_at": one.left(config.stated_factor),
        "back_at": one.back(config.stated_factor),
        **{
            what: [getattr(course, what) for course in one.courses]
            for what in ("gradient_spread", "update_spread", "isometry", "peak")
        },
        "mean_final": plain_estimate(estimate(one.finals)),
    }


def conditions(config: ConditioningConfig, unigram_nats: float, vocabulary: int) -> dict[str, str]:
    """How it was measured."""
    rates = ", ".join(f"{lr:g}" for lr in config.peak_lrs)
    return {
        "models": f"decoders of {config.blocks} blocks, width {config.width}, feed-forward {config.ffn_width}, "
        f"{config.heads} heads, ReLU, no dropout; weights and embedding drawn as in Xiong et al. 2020 (Glorot, N(0, "
        "1/d) times √d, sinusoids), times the gains of the placement",
        "text": f"{config.batch_sequences} sequences of {config.sequence_length} tokens an update, {vocabulary} "
        f"entries; unigram baseline {unigram_nats:.3f} nats",
        "training": f"{config.updates:,} updates of Adam, betas 0.9 and 0.98, not clipped; a warm-up of "
        f"{config.warmup_updates} updates, then in a straight line to 0; rates {rates}. Numbers that follow a schedule "
        "(BranchNorm, Pre to Post) go from 0 to 1 in the first half",
        "gradient norms": "of the mean loss per target token, in nats; of all matrices of a block together",
        "Jacobians": f"of a block's whole state after by its whole state before, on {config.jacobian_sequences} "
        f"sequences; {config.products} products with it and as many with its transpose. None for placements whose "
        "state grows over depth",
        "spread": "largest over smallest of the blocks. Where matrices have no gradient before the first update the "
        "theory states no spread; these are held to 1",
        "seeds": f"{config.seeds} of the placements that claims are about, one of the others; intervals are of 95 %, "
        "Student's t over seeds, of logarithms where factors are quoted",
    }
