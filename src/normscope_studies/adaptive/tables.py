"""The tables of the page, and the data."""

from collections.abc import Mapping, Sequence
from typing import Any

from normscope.evidence.estimates import plain_estimate, with_interval

from ..engine.page import StudyTable
from ..ladders.showing import plain_ladder, plain_sensitivity
from .arms import Arm
from .config import AdaptiveStudyConfig, Kind
from .families import title
from .moving import Course, courses
from .standing import Standing


def tables(config: AdaptiveStudyConfig, found: Sequence[Standing]) -> list[StudyTable]:
    """Where the runs end, one a task, and how the controllers moved."""
    made = [_ends(standing) for standing in found]
    return [*made, _controllers(config, found)] if config.controlled else made


def _ends(standing: Standing) -> StudyTable:
    rows = []
    for kind in standing.kinds:
        without, warm = standing.without(kind), standing.warm(kind)
        rows.append(
            (
                title(*kind),
                *(cell for arm in (without, warm) for cell in (arm.mean_nats, _rate(arm), arm.sensitivity.value)),
                with_interval(standing.warmup_gain(kind)),
                *(with_interval(standing.above(kind, other)) for other in (standing.pre, standing.post)),
                with_interval(standing.above(kind, standing.best_fixed)),
            )
        )
    best = title(standing.best_fixed.key.placement, "fixed")
    return StudyTable(
        title=f"{standing.words.capitalize()}: mean last loss in nats at the best rate of the ladder (* its first or "
        "last), and sensitivity over the ladder, without warm-up and with; what warm-up is worth; and the better of "
        f"both less Pre-LN's, less Post-LN's with warm-up, and less the best fixed placement's ({best})",
        columns=(
            "placement",
            *("loss, no warm-up", "rate", "sensitivity"),
            *("loss, warm-up", "rate", "sensitivity"),
            *("warm-up gains", "less Pre-LN's", "less Post-LN's", "less the best fixed"),
        ),
        rows=rows,
    )


def _controllers(config: AdaptiveStudyConfig, found: Sequence[Standing]) -> StudyTable:
    rows = []
    for standing in found:
        for name in config.controlled:
            for arm in (standing.without((name, "controller")), standing.warm((name, "controller"))):
                seen = courses(arm.best)
                warmup = "warm-up" if arm.key.warmup_updates else "no warm-up"
                rows.append(
                    (
                        f"{title(name, 'fixed')}, {standing.words}, {warmup}",
                        arm.best_lr,
                        _mean([one.median_change for one in seen]),
                        *(_reached(seen, value) for value in (0.5, 1.0)),
                        _mean([one.end for one in seen]),
                    )
                )
    return StudyTable(
        title="The controllers at the best rate: the median change of the output by an update, means over seeds; the "
        "first update at which the number is half-way and at its end, from the fastest seed to the slowest; and where "
        "it stands at the end",
        columns=("placement", "rate", "median change", "half-way", "at its end", "last value"),
        rows=rows,
    )


def _reached(seen: Sequence[Course], value: float) -> str:
    at = [one.first_at(value) for one in seen]
    updates = [update for update in at if update is not None]
    if not updates:
        return "never"
    span = f"{min(updates)}" if min(updates) == max(updates) else f"{min(updates)} to {max(updates)}"
    return span if len(updates) == len(at) else f"{span}, {len(at) - len(updates)} never"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _rate(arm: Arm) -> str:
    return f"{arm.best_lr:g}{'*' if arm.at_an_end else ''}"


def data(found: Sequence[Standing], trained_by: Mapping[str, Any]) -> dict[str, Any]:
    """Every loss and difference."""
    return {
        "trials": {
            standing.task: {
                "unigram_nats": standing.unigram_nats,
                "best_fixed": standing.best_fixed.key.placement,
                "arms": [_kind(standing, kind) for kind in standing.kinds],
            }
            for standing in found
        },
        "runs": dict(trained_by),
    }


def _kind(standing: Standing, kind: Kind) -> dict[str, Any]:
    return {
        "placement": kind[0],
        "drive": kind[1],
        "title": title(*kind),
        "warmup_gain_nats": plain_estimate(standing.warmup_gain(kind)),
        "less_pre_ln_nats": plain_estimate(standing.above(kind, standing.pre)),
        "less_post_ln_nats": plain_estimate(standing.above(kind, standing.post)),
        "less_best_fixed_nats": plain_estimate(standing.above(kind, standing.best_fixed)),
        "without_warmup": _arm(standing.without(kind)),
        "with_warmup": _arm(standing.warm(kind)),
    }


def _arm(arm: Arm) -> dict[str, Any]:
    made: dict[str, Any] = {
        "warmup_updates": arm.key.warmup_updates,
        "peak_lrs": list(arm.peak_lrs),
        **plain_ladder(arm.ladder),
        "best_lr": arm.best_lr,
        "best_at_an_end": arm.at_an_end,
        "last_loss_nats": arm.finals,
        "last_finite": [run.finite for run in arm.best],
        "mean_nats": arm.mean_nats,
        **plain_sensitivity(arm.sensitivity),
    }
    if arm.key.drive == "controller":
        made["courses"] = [
            {
                "median_change": one.median_change,
                "half_way_update": one.first_at(0.5),
                "end_update": one.first_at(1.0),
                "last_value": one.end,
            }
            for one in courses(arm.best)
        ]
    return made
