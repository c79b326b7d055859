"""The charts that the page of a comparison lets its readers explore, made of the values that its pictures show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..chart import PLACEMENT, Chart, ChartColumns, ChartLine, CurveSwitch, Explorer
from ..chart_panels import kept, seed_table
from ..svg import HUES
from ..words import learning_rate
from .contents import Clock, ComparisonPage, GradientProfile, Name, RateCurve, RunCurve

_NATS = "nats per target token"
_ALL_POINTS, _LEAST_POINTS, _MOST_POINTS = 640, 20, 120
"""Points of one quantity that all configurations share, and the least and the most that one of them has."""
_LOG_RATIO = 20.0
"""Largest over smallest value from which a loss is drawn on a log scale: a diverged run must not flatten the rest."""


def explorer(comparison: ComparisonPage) -> Explorer:
    """All charts of the page; those of what has no value yet have no lines."""
    names = {configuration.name: i for i, configuration in enumerate(comparison.configurations)}
    curves = (comparison.valid_curves, comparison.train_curves, comparison.gradient_curves, comparison.schedules)
    for name in [curve.name for some in curves for curve in some] + [c.name for c in comparison.undrawn_curves]:
        names.setdefault(name, len(names))
    arms = _arms(comparison, list(names))
    over = list(_over_updates(comparison, names, max(len(curves[0]), len(curves[1]), 1)))
    by_rate = list(_rates("loss-by-rate", comparison.rate_curves, comparison, names, arms))
    by_rate += _rates("loss-by-rate-of-trials", comparison.trial_curves, comparison, names, arms)
    return Explorer(arms=arms, charts=[*by_rate, *over, *_profiles(comparison, names)])


def _arms(comparison: ComparisonPage, names: Sequence[Name]) -> list[CurveSwitch]:
    """One for each configuration; those that the pictures leave out are off at first."""
    settings = {one.name: one for one in comparison.configurations}
    undrawn = {curve.name for curve in comparison.undrawn_curves}
    groups = list(dict.fromkeys(name.group for name in names))
    variants = list(dict.fromkeys(name.variant for name in names))
    arms = []
    for name in names:
        facets = {PLACEMENT: name.group}
        if name in settings:
            one = settings[name]
            warmup = f"{one.warmup_updates:,} updates" if one.warmup_updates else "none"
            facets |= {"Warm-up": warmup, "Peak learning rate": learning_rate(one.peak_lr), "Optimiser": one.optimizer}
        hue = groups.index(name.group) % len(HUES)
        arms.append(
            CurveSwitch(
                label=str(name),
                facets=facets,
                hue=hue,
                variant=variants.index(name.variant) + groups.index(name.group) // len(HUES),
                shown=name not in undrawn,
            )
        )
    return arms


def _over_updates(comparison: ComparisonPage, names: Mapping[Name, int], arms: int) -> Iterator[Chart]:
    """Losses, gradient norm and learning rate. Curves of a configuration that have the same updates share columns."""
    most = max(_LEAST_POINTS, min(_MOST_POINTS, _ALL_POINTS // arms))
    clocks = {clock.name: clock for clock in comparison.clocks}
    columns: dict[tuple[Name, tuple[int, ...]], ChartColumns] = {}
    shared = _shared_points(comparison, most)
    level = comparison.unigram_loss_nats
    baseline = None if level is None or not np.isfinite(level) else ("unigram baseline", level)

    def lines(curves: Sequence[RunCurve], most: int) -> list[ChartLine]:
        found = []
        for curve in curves:
            values_SU = seed_table(curve.seeds_values, len(curve.updates))
            updates, wanted = shared.get(curve.name, set()), kept(values_SU, most)
            places = [i for i, update in enumerate(curve.updates) if update in updates]
            places = places if set(wanted) <= set(places) else wanted
            clock = clocks.get(curve.name)
            # Where a run was stopped, no seed may have a value, nor an update that the clock knows.
            places = [i for i in places if clock is None or np.isfinite(values_SU[:, i]).any()]
            if not places:
                continue  # a run that has not begun, or was stopped at its first update
            at = tuple(curve.updates[i] for i in places)
            over = columns.setdefault((curve.name, at), _columns(at, clock))
            rows = [[_known(row[i]) for i in places] for row in values_SU]
            crosses = [cross for row in curve.seeds_values for cross in _crosses(curve.updates, row)]
            found.append(ChartLine(arm=names[curve.name], over=over, rows=rows, crosses=crosses))
        return found

    def chart(
        figure: str,
        title: str,
        ylabel: str,
        curves: Sequence[RunCurve],
        more: Sequence[RunCurve] = (),
        *,
        log: bool = False,
    ) -> Chart:
        return Chart(
            figure=figure,
            title=title,
            xlabel="update",
            ylabel=ylabel,
            lines=lines([*curves, *more], most),
            log_y=_reaches_far(curves, log=log),
            level=baseline if ylabel == _NATS else None,
        )

    yield chart("valid-loss", "Validation loss", _NATS, comparison.valid_curves, comparison.undrawn_curves)
    yield chart("train-loss", "Training loss", _NATS, comparison.train_curves)
    yield chart("gradient-over-updates", "Gradient norm", "gradient norm", comparison.gradient_curves, log=True)
    yield replace(
        chart("learning-rate", "Learning rate", "learning rate", ()), lines=lines(comparison.schedules, _LEAST_POINTS)
    )


def _reaches_far(curves: Sequence[RunCurve], *, log: bool = False) -> bool:
    """Whether curves are drawn on a log scale: where all values allow it, and they reach far or `log` asks for it."""
    finite = [v for curve in curves for row in curve.seeds_values for v in row if np.isfinite(v)]
    return bool(finite) and min(finite) > 0 and (log or max(finite) / min(finite) > _LOG_RATIO)


def _shared_points(comparison: ComparisonPage, most: int) -> dict[Name, set[int]]:
    """The updates at which a configuration's long curves are drawn: the peaks and troughs of each of them."""
    found: dict[Name, set[int]] = {}
    for curve in [*comparison.train_curves, *comparison.gradient_curves]:
        places = kept(seed_table(curve.seeds_values, len(curve.updates)), most)
        found.setdefault(curve.name, set()).update(curve.updates[i] for i in places)
    return found


def _columns(updates: Sequence[int], clock: Clock | None) -> ChartColumns:
    """The updates and, where the clock knows all of them but 0, what else had gone by then."""
    found: dict[str, Sequence[float]] = {"update": updates}
    if clock is not None:
        place = {update: i for i, update in enumerate(clock.updates)}
        if all(update in place or update == 0 for update in updates):
            further = {
                "target tokens": clock.target_tokens,
                "epoch": clock.epochs,
                "cumulative learning rate": clock.summed_lr,
            }
            for name, column in further.items():
                found[name] = [column[place[update]] if update else 0.0 for update in updates]
    return ChartColumns(found)


def _crosses(updates: Sequence[int], row: Sequence[float]) -> list[tuple[float, float | None]]:
    """The last finite value of a run that a non-finite one stopped."""
    if not row or np.isfinite(row[-1]):
        return []
    finite = [i for i, value in enumerate(row) if np.isfinite(value)]
    return [(updates[finite[-1]], row[finite[-1]]) if finite else (updates[0], None)]


def _rates(
    figure: str,
    curves: Sequence[RateCurve],
    comparison: ComparisonPage,
    names: Mapping[Name, int],
    arms: list[CurveSwitch],
) -> Iterator[Chart]:
    """Final losses over the rate: an arm of its own for each curve, which `arms` gets, and the run of each point."""
    lines = list[ChartLine]()
    for curve in curves:
        same = next((arms[names[name]] for name in curve.configurations if name in names), None)
        facets = {PLACEMENT: curve.name.group}
        if same is not None:
            facets |= {name: value for name, value in same.facets.items() if name != "Peak learning rate"}
        arms.append(
            CurveSwitch(
                label=str(curve.name),
                facets=facets,
                hue=same.hue if same else len(lines) % len(HUES),
                variant=list(dict.fromkeys(c.name.variant for c in curves)).index(curve.name.variant),
            )
        )
        lines.append(_rate_line(curve, len(arms) - 1, names))
    level = comparison.unigram_loss_nats
    yield Chart(
        figure=figure,
        title="Validation loss at the end",
        xlabel="peak learning rate",
        ylabel=_NATS,
        lines=lines,
        log_x=True,
        crossed="counts as the loss at initialisation",
        level=None if level is None or not np.isfinite(level) else ("unigram baseline", level),
    )


def _rate_line(curve: RateCurve, arm: int, names: Mapping[Name, int]) -> ChartLine:
    replaced = [
        (curve.peak_lrs[i], losses[i])
        for losses, marks in zip(curve.seeds_losses, curve.seeds_replaced, strict=True)
        for i, mark in enumerate(marks)
        if mark
    ]
    return ChartLine(
        arm=arm,
        over=ChartColumns({"peak learning rate": curve.peak_lrs}),
        rows=[[_known(value) for value in row] for row in curve.seeds_losses],
        seeds=curve.seeds,
        crosses=replaced,
        lights=[names.get(name, -1) for name in curve.configurations],
    )


def _profiles(comparison: ComparisonPage, names: Mapping[Name, int]) -> Iterator[Chart]:
    """Gradient norms over blocks: before the first update and, where they were recorded, while the runs trained."""
    before = "Gradient norm by block, before the first update"
    yield _depth(before, comparison.gradient_profiles, names, ())
    updates = sorted({profile.update for profile in comparison.later_profiles})
    later = "Gradient norm of the matrices of each block, while training"
    yield _depth(later, comparison.later_profiles, names, updates)


def _depth(title: str, profiles: Sequence[GradientProfile], names: Mapping[Name, int], updates: Sequence[int]) -> Chart:
    blocks = list(dict.fromkeys(block for profile in profiles for block in profile.blocks))
    lines = []
    for profile in profiles:
        if not (profile.blocks and profile.seeds_norms):
            continue
        at: list[float] = []
        for one, following in pairwise([*profile.blocks, None]):
            at.append(float(blocks.index(one)))  # type: ignore[arg-type]
            if following is not None and one is not None and following.stack != one.stack:
                at.append(at[-1] + 0.5)  # no line is drawn across stacks
        over = ChartColumns({"block": at})
        for name in (name for name in profile.names if name in names):
            rows = [
                [_positive(dict(zip(profile.blocks, row, strict=True)), blocks, x) for x in at]
                for row in profile.seeds_norms
            ]
            frame = updates.index(profile.update) if updates else None
            lines.append(ChartLine(arm=names[name], over=over, rows=rows, frame=frame))
    return Chart(
        figure="gradient-norms",
        title=title,
        xlabel="block",
        ylabel="gradient norm",
        lines=lines,
        log_y=True,
        ticks=[str(block) for block in blocks],
        frames=[f"update {update:,}" for update in updates],
    )


def _positive(norms: Mapping[object, float], blocks: Sequence[object], x: float) -> float | None:
    """None between two stacks, and for what a logarithmic axis cannot show."""
    value = norms[blocks[int(x)]] if x.is_integer() else 0.0
    return value if np.isfinite(value) and value > 0 else None


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
