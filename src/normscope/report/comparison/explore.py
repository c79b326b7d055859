"""The charts that the page of a comparison lets its readers explore, made of the values that its
pictures show.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ..chart import PLACEMENT, Panel, Series
from ..chart_panels import finite, kept, of_seeds, seed_table
from ..svg import HUES
from ..words import learning_rate
from .contents import ComparisonPage, GradientProfile, Name, RateCurve, RunCurve

_Value = TypeVar("_Value", bound=Hashable)
_RATE = "learning rate"
_ALL_POINTS = 640
_LEAST_POINTS = 20
_MOST_POINTS = 120
"""Points of one quantity that all configurations share, and the least and the most that one of them
has.
"""
_LOG_RATIO = 20.0
"""Largest over smallest value from which a loss is drawn on a log scale: a diverged run must not
flatten the rest.
"""


def explorer(comparison: ComparisonPage) -> dict[str, list[Panel]]:
    """Returns the charts of each figure; those of what has no value yet have no curves."""
    curves = (
        comparison.valid_curves,
        comparison.train_curves,
        comparison.gradient_curves,
        comparison.schedules,
    )
    names = [configuration.name for configuration in comparison.configurations]
    names += [curve.name for some in (*curves, comparison.undrawn_curves) for curve in some]
    looks = _looks(comparison, list(dict.fromkeys(names)))
    return {
        **_over_updates(comparison, looks, max(len(curves[0]), len(curves[1]), 1)),
        "gradient-norms": list(_profiles(comparison, looks)),
        "loss-by-rate": [_rates(comparison.rate_curves, comparison, looks)],
    }


def _looks(comparison: ComparisonPage, names: Sequence[Name]) -> dict[Name, Series]:
    """Returns a curve without points for each configuration; those that the pictures leave out are
    off at first.
    """
    settings = {one.name: one for one in comparison.configurations}
    undrawn = {curve.name for curve in comparison.undrawn_curves}
    groups = _places(name.group for name in names)
    variants = _places(name.variant for name in names)
    looks = {}
    for name in names:
        facets = {PLACEMENT: name.group}
        if name in settings:
            one = settings[name]
            warmup = f"{one.warmup_updates:,} updates" if one.warmup_updates else "none"
            facets |= {
                "Warm-up": warmup,
                "Peak learning rate": learning_rate(one.peak_lr),
                "Optimiser": one.optimizer,
            }
        looks[name] = Series(
            label=str(name),
            facets=facets,
            hue=groups[name.group] % len(HUES),
            variant=variants[name.variant] + groups[name.group] // len(HUES),
            shown=name not in undrawn,
        )
    return looks


def _places(values: Iterable[_Value]) -> dict[_Value, int]:
    """Returns the place of each value among the different ones, in their order."""
    return {value: place for place, value in enumerate(dict.fromkeys(values))}


def _over_updates(
    comparison: ComparisonPage, looks: Mapping[Name, Series], arms: int
) -> dict[str, list[Panel]]:
    """Losses, gradient norm and learning rate, of which the points are few."""
    most = max(_LEAST_POINTS, min(_MOST_POINTS, _ALL_POINTS // arms))
    # A configuration's long curves are drawn at the same updates: the peaks and troughs of each of
    # them.
    shared: dict[Name, set[int]] = {}
    for curve in [*comparison.train_curves, *comparison.gradient_curves]:
        peaks = kept(seed_table(curve.seeds_values, len(curve.updates)), most)
        shared.setdefault(curve.name, set()).update(curve.updates[i] for i in peaks)

    def series(curves: Sequence[RunCurve], most: int) -> list[Series]:
        found = []
        for curve in curves:
            values_SU = seed_table(curve.seeds_values, len(curve.updates))
            updates, wanted = sorted(shared.get(curve.name, ())), kept(values_SU, most)
            places = np.flatnonzero(np.isin(curve.updates, updates)).tolist()
            places = places if set(wanted) <= set(places) else wanted
            clock = comparison.clocks.get(curve.name)
            # Where a run was stopped, no seed may have a value, nor an update that the clock knows.
            places = [i for i in places if clock is None or np.isfinite(values_SU[:, i]).any()]
            if not places:
                continue  # a run that has not begun, or was stopped at its first update
            at = [curve.updates[i] for i in places]
            rows = []
            for row in values_SU:
                rows.append([finite(row[i]) for i in places])
            one = of_seeds(looks[curve.name], at, rows)
            crosses = []
            for seed_values in curve.seeds_values:
                crosses += _crosses(curve.updates, seed_values)
            found.append(replace(one, crosses=crosses, further=_further(at, clock)))
        return found

    def chart(
        title: str, ylabel: str, curves: Sequence[RunCurve], most: int = most, *, log: bool = False
    ) -> Panel:
        undrawn = comparison.undrawn_curves if curves is comparison.valid_curves else ()
        return Panel(
            title=title,
            xlabel="update",
            ylabel=ylabel,
            series=series([*curves, *undrawn], most),
            log_y=ylabel != _RATE and _reaches_far(curves, log=log),
            level=_level(comparison) if ylabel == comparison.words.unit else None,
            crossed="stopped at a non-finite value",
        )

    return {
        "valid-loss": [chart("Validation loss", comparison.words.unit, comparison.valid_curves)],
        "train-loss": [chart("Training loss", comparison.words.unit, comparison.train_curves)],
        "gradient-over-updates": [
            chart("Gradient norm", "gradient norm", comparison.gradient_curves, log=True)
        ],
        "learning-rate": [chart("Learning rate", _RATE, comparison.schedules, _LEAST_POINTS)],
    }


def _level(comparison: ComparisonPage) -> tuple[str, float] | None:
    level = comparison.unigram_loss_nats
    return None if level is None or not np.isfinite(level) else (comparison.words.baseline, level)


def _reaches_far(curves: Sequence[RunCurve], *, log: bool = False) -> bool:
    """Tells whether curves are drawn on a log scale: where all values allow it, and they span a
    wide range or `log` asks for it.
    """
    rows = [np.asarray(row) for curve in curves for row in curve.seeds_values]
    finite = [row[np.isfinite(row)] for row in rows]
    known = [row for row in finite if len(row)]
    if not known:
        return False
    low = min(float(row.min()) for row in known)
    high = max(float(row.max()) for row in known)
    return low > 0 and (log or high / low > _LOG_RATIO)


def _further(
    updates: Sequence[int], clock: Mapping[str, Sequence[float]] | None
) -> dict[str, Sequence[float]]:
    """Returns the other quantities that had gone by then, where the clock knows all of the updates
    but 0.
    """
    columns = dict(clock or {})
    known, asked = np.asarray(columns.pop("update", ())), np.asarray(updates)
    if not len(known):
        return {}
    places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    if not ((known[places] == asked) | (asked == 0)).all():
        return {}
    return {
        name: np.where(asked > 0, np.asarray(column)[places], 0.0).tolist()
        for name, column in columns.items()
    }


def _crosses(updates: Sequence[int], row: Sequence[float]) -> list[tuple[float, float | None]]:
    """Returns the last finite value of a run that a non-finite one stopped."""
    if not row or np.isfinite(row[-1]):
        return []
    finite = np.flatnonzero(np.isfinite(row)).tolist()
    return [(updates[finite[-1]], row[finite[-1]]) if finite else (updates[0], None)]


def _rates(
    curves: Sequence[RateCurve], comparison: ComparisonPage, looks: Mapping[Name, Series]
) -> Panel:
    """Final losses over the rate: a look of its own for each curve, and the run of each point."""
    variants = _places(curve.name.variant for curve in curves)
    series = list[Series]()
    for curve in curves:
        same = next((looks[name] for name in curve.configurations if name in looks), None)
        facets = {PLACEMENT: curve.name.group}
        if same is not None:
            facets |= {
                name: value for name, value in same.facets.items() if name != "Peak learning rate"
            }
        look = Series(
            label=str(curve.name),
            facets=facets,
            hue=same.hue if same else len(series) % len(HUES),
            variant=variants[curve.name.variant],
            seeds=curve.seeds,
            crosses=[
                (curve.peak_lrs[i], losses[i])
                for losses, marks in zip(curve.seeds_losses, curve.seeds_replaced, strict=True)
                for i, mark in enumerate(marks)
                if mark
            ],
            lights=[str(name) for name in curve.configurations],
        )
        rows = []
        for losses in curve.seeds_losses:
            rows.append([finite(value) for value in losses])
        series.append(of_seeds(look, curve.peak_lrs, rows))
    return Panel(
        title="Validation loss at the end",
        xlabel="peak learning rate",
        ylabel=comparison.words.unit,
        series=series,
        log_x=True,
        crossed="counts as the loss at initialisation",
        level=_level(comparison),
    )


def _profiles(comparison: ComparisonPage, looks: Mapping[Name, Series]) -> Iterator[Panel]:
    """Gradient norms over blocks: before the first update and, where they were recorded, while the
    runs trained.
    """
    before = "Gradient norm by block, before the first update"
    yield _depth(before, comparison.gradient_profiles, looks, ())
    updates = sorted({profile.update for profile in comparison.later_profiles})
    later = "Gradient norm of the matrices of each block, while training"
    yield _depth(later, comparison.later_profiles, looks, updates)


def _depth(
    title: str,
    profiles: Sequence[GradientProfile],
    looks: Mapping[Name, Series],
    updates: Sequence[int],
) -> Panel:
    blocks = _places(block for profile in profiles for block in profile.blocks)
    frames = _places(updates)
    series = []
    for profile in profiles:
        if not (profile.blocks and profile.seeds_norms):
            continue
        at = list[float]()
        rows = [list[float | None]() for _ in profile.seeds_norms]
        stack = profile.blocks[0].stack
        for place, block in enumerate(profile.blocks):
            if block.stack != stack:
                at.append(at[-1] + 0.5)  # no line is drawn across stacks
                for row in rows:
                    row.append(None)
            stack = block.stack
            at.append(float(blocks[block]))
            for row, norms in zip(rows, profile.seeds_norms, strict=True):
                row.append(_positive(norms[place]))
        frame = frames[profile.update] if updates else None
        series += [
            replace(of_seeds(looks[name], at, rows), frame=frame)
            for name in profile.names
            if name in looks
        ]
    return Panel(
        title=title,
        xlabel="block",
        ylabel="gradient norm",
        series=series,
        log_y=True,
        ticks=[str(block) for block in blocks],
        frames=[f"update {update:,}" for update in updates],
    )


def _positive(value: float) -> float | None:
    """Returns the value, or None where a logarithmic axis cannot show it."""
    return value if np.isfinite(value) and value > 0 else None
