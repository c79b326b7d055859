"""Figures, tables and conditions of the study of conditioning."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from normscope.evidence.estimates import estimate, plain_estimate
from normscope.report.chart import Panel, Series
from normscope.report.svg import HUES
from normscope.report.words import joined

from ..engine.page import StudyFigure, StudyTable
from .claims import Telling, best, less_post, spread_and_loss
from .config import POST, ConditioningConfig
from .courses import Placed


def figures(config: ConditioningConfig, telling: Telling, registry: Sequence[Placed]) -> list[StudyFigure]:
    at = [best(placed) for placed in telling.values()]
    # A hue for each placement of a figure.
    count = -(-len(at) // len(HUES))
    size = -(-len(at) // count)
    groups = [at[start : start + size] for start in range(0, len(at), size)]
    return [_courses(f"courses_{number}", group) for number, group in enumerate(groups, 1)] + [
        _scatter(config, registry)
    ]


def _courses(name: str, at: Sequence[Placed]) -> StudyFigure:
    title = f"Spread over the blocks, throughout training: {joined([one.title for one in at])}"
    return StudyFigure.of_panels(
        name=name,
        title=title,
        caption="Each placement at its best rate: geometric mean over seeds, in the range of the seeds. "
        "Gradients and updates: largest over smallest norm of a block.",
        panels=[
            _over_updates("Gradient norms", "largest over smallest", "gradient_spread", at),
            _over_updates("Update norms", "largest over smallest", "update_spread", at),
            _over_updates("Block Jacobians", "farthest from 1, as a factor", "off_isometry", at),
            _over_updates("Their largest singular value", "over the root mean square", "peak", at),
        ],
        told=title,
        wide=True,
    )


def _over_updates(title: str, ylabel: str, what: str, at: Sequence[Placed]) -> Panel:
    return Panel(
        title=title,
        xlabel="update",
        ylabel=ylabel,
        series=[line for hue, one in enumerate(at) if (line := _series(hue, what, one)) is not None],
        log_y=True,
    )


def _series(hue: int, what: str, one: Placed) -> Series | None:
    kept = [getattr(course, what) for course in one.courses if course.finite]
    if not kept or np.isnan(kept).all():
        return None
    low, high = np.min(kept, 0), np.max(kept, 0)
    return Series(
        label=one.title,
        kind="measured",
        hue=hue,
        x=list(one.looks),
        y=_gaps(one.mean(what)),
        low=_gaps(low),
        high=_gaps(high),
    )


def _gaps(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]


def _scatter(config: ConditioningConfig, registry: Sequence[Placed]) -> StudyFigure:
    kept = [one for one in registry if all(course.finite for course in one.courses)]
    names = [name for name in config.telling if name in {one.placement for one in kept}][: len(HUES)]
    spreads, finals = spread_and_loss(registry)
    series = [
        Series(label="other placements", kind="points", hue=-1, x=ys, y=xs)
        for xs, ys in [_others(kept, spreads, finals, names)]
        if xs
    ]
    for hue, name in enumerate(names):
        place = [one.placement for one in kept].index(name)
        series.append(Series(label=kept[place].title, kind="points", hue=hue, x=[finals[place]], y=[spreads[place]]))
    title = "The largest spread of gradients beside the last loss"
    return StudyFigure.of_panels(
        name="spread_and_loss",
        title=title,
        caption=f"Every placement at the common rate of {config.common_lr:g}; those of several seeds are means. A "
        "spread of 1 is the same gradient norm in every block, throughout.",
        panels=[
            Panel(
                title="",
                xlabel="last validation loss, nats",
                ylabel="largest spread of gradient norms",
                series=series,
                log_y=True,
            )
        ],
        told=title,
    )


def _others(
    kept: Sequence[Placed], spreads: Sequence[float], finals: Sequence[float], names: Sequence[str]
) -> tuple[list[float], list[float]]:
    places = [place for place, one in enumerate(kept) if one.placement not in names]
    return [spreads[place] for place in places], [finals[place] for place in places]


def tables(config: ConditioningConfig, telling: Telling, registry: Sequence[Placed]) -> list[StudyTable]:
    return [_telling(config, telling), _registry(config, registry)]


def _telling(config: ConditioningConfig, telling: Telling) -> StudyTable:
    rows = []
    for one in sorted((one for placed in telling.values() for one in placed), key=lambda one: one.mean_nats):
        less = less_post(one, telling)
        rows.append(
            [one.title, f"{one.lr:g}", one.mean_nats, float(less.mean), float(less.half_width), *_row(config, one)]
        )
    return StudyTable(
        title=f"The placements that the claims are about, {config.seeds} seeds, the lowest loss first",
        columns=("placement", "rate", "last loss", "less Post-LN's best", "±", *_COLUMNS),
        rows=rows,
    )


_COLUMNS = ("spread stated", "at first", "largest", "leaves at", "is back at", "updates", "off isometry", "peak")


def _row(config: ConditioningConfig, one: Placed) -> list[str | float | None]:
    limit = config.stated_factor
    return [
        None if math.isnan(one.stated) else one.stated,
        _value(float(one.mean("gradient_spread")[0])),
        _largest(one, "gradient_spread"),
        _update(one.left(limit), "never"),
        _update(one.back(limit), "–"),
        _largest(one, "update_spread"),
        _largest(one, "off_isometry"),
        _largest(one, "peak"),
    ]


def _value(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _largest(one: Placed, what: str) -> float | None:
    return _value(float(np.exp(one.worst(what).mean)))


def _update(update: int | None, otherwise: str) -> str:
    return otherwise if update is None else str(update)


def _registry(config: ConditioningConfig, registry: Sequence[Placed]) -> StudyTable:
    return StudyTable(
        title=f"Every placement at a rate of {config.common_lr:g}, the smallest spread of gradients first",
        columns=("placement", "seeds", "last loss", *_COLUMNS),
        rows=[
            [one.title, str(len(one.courses)), one.mean_nats, *_row(config, one)]
            for one in sorted(registry, key=lambda one: _largest(one, "gradient_spread") or math.inf)
        ],
    )


def conditions(config: ConditioningConfig, unigram_nats: float, vocabulary: int) -> list[tuple[str, str]]:
    """How it was measured."""
    rates = ", ".join(f"{lr:g}" for lr in config.peak_lrs)
    return [
        (
            "models",
            f"decoders of {config.blocks} blocks, width {config.width}, feed-forward {config.ffn_width}, "
            f"{config.heads} heads, ReLU, no dropout; weights and embedding drawn as in Xiong et al. 2020 (Glorot, "
            "N(0, 1/d) times √d, sinusoids), times the gains of the placement",
        ),
        (
            "text",
            f"{config.batch_sequences} sequences of {config.sequence_length} tokens an update, {vocabulary} entries; "
            f"unigram baseline {unigram_nats:.3f} nats",
        ),
        (
            "training",
            f"{config.updates:,} updates of Adam, betas 0.9 and 0.98, not clipped; a warm-up of "
            f"{config.warmup_updates} updates, then in a straight line to 0; rates {rates}. Numbers that follow a "
            "schedule (BranchNorm, Pre to Post) go from 0 to 1 in the first half",
        ),
        ("gradient norms", "of the mean loss per target token, in nats; of all matrices of a block together"),
        (
            "Jacobians",
            "of a block's whole state after by its whole state before, on "
            f"{config.jacobian_sequences} sequences; {config.products} products with it and as many with its "
            "transpose. None for placements whose state grows over depth",
        ),
        (
            "spread",
            "largest over smallest of the blocks. Where matrices have no gradient before the first update the theory "
            "states no spread; these are held to 1",
        ),
        (
            "seeds",
            f"{config.seeds} of the placements that claims are about, one of the others; intervals are of 95 %, "
            "Student's t over seeds, of logarithms where factors are quoted",
        ),
    ]


def data(config: ConditioningConfig, telling: Telling, registry: Sequence[Placed]) -> dict[str, Any]:
    """Every course, and what the claims quote."""
    return {
        "telling": [_placed(config, one, telling) for placed in telling.values() for one in placed],
        "registry": [_placed(config, one, telling) for one in registry],
    }


def _placed(config: ConditioningConfig, one: Placed, telling: Telling) -> dict[str, Any]:
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
        "largest": {what: _largest(one, what) for what in ("gradient_spread", "update_spread", "off_isometry", "peak")},
        "leaves_at": one.left(config.stated_factor),
        "back_at": one.back(config.stated_factor),
        "gradient_spread": [course.gradient_spread for course in one.courses],
        "update_spread": [course.update_spread for course in one.courses],
        "isometry": [course.isometry for course in one.courses],
        "peak": [course.peak for course in one.courses],
        "mean_final": plain_estimate(estimate(one.finals)),
    }
