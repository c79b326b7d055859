"""The pictures of a report as SVG: losses and rates over updates, gradient norms over blocks, losses over the rate."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..lines import (
    Style,
    described,
    draw_cross,
    draw_line,
    log_scale,
    points_each,
    rate_scale,
    reaches_far,
    seed_mean,
    seed_table,
    short,
    styles_for,
    too_many,
)
from ..svg import INK, house_style, to_svg
from ..words import learning_rate
from .contents import BlockPlace, GradientProfile, Name, RateCurve, RunCurve
from .panels import curve_panels, profile_panels, rate_panels

# S = seeds, U = updates or blocks
_WIDTH_INCHES, _HEIGHT_INCHES, _LEGEND_ROW_INCHES = 5.6, 3.5, 0.24
_LINE_CHARACTERS = 48


def curves_svg(
    curves: Sequence[RunCurve],
    *,
    ylabel: str,
    title: str = "Loss over updates",
    baseline: float | None = None,
    log: bool = False,
    styles: Mapping[Name, Style] | None = None,
) -> str:
    """As `curves_figure`, as SVG text that is described in words."""
    figure = curves_figure(curves, ylabel=ylabel, baseline=baseline, log=log, styles=styles)
    with house_style():
        return to_svg(figure, title=title, desc=described(curves))


@house_style()
def curves_figure(
    curves: Sequence[RunCurve],
    *,
    ylabel: str,
    baseline: float | None = None,
    log: bool = False,
    styles: Mapping[Name, Style] | None = None,
) -> Figure:
    """Draw the mean over the seeds still running, a band from their smallest to their largest value, and crosses.

    A cross stands where a run stopped at a non-finite value.

    baseline: the loss of the unigram baseline, drawn as a thin dashed line. log: on a log scale, whatever the values;
    else one that reaches far is.
    """
    if too_many(curve.name for curve in curves):
        return curve_panels(curves, ylabel=ylabel, baseline=baseline, log=log, styles=styles)
    styles = styles or styles_for(curve.name for curve in curves)
    handles: list[Line2D] = []
    figure, axes = canvas(ylabel)
    stopped = False
    for i, curve in enumerate(curves):
        values_SU = seed_table(curve.seeds_values, len(curve.updates))
        look = styles[curve.name]
        points = points_each(len(curves))
        handles.append(draw_line(axes, str(curve.name), curve.updates, values_SU, look, first_marker=i, points=points))
        for row in curve.seeds_values:
            stopped |= draw_cross(axes, curve.updates, row, look.color)
    if baseline is not None and np.isfinite(baseline):
        handles.append(axes.axhline(baseline, color=INK, lw=1.2, ls=(0, (7, 4)), label="unigram baseline", zorder=1.5))
    if stopped:
        handles.append(
            Line2D([], [], ls="", marker="x", ms=9, mew=2.5, color=INK, label="stopped at a non-finite value")
        )
    if reaches_far(curves, log=log):
        axes.set_ylabel(f"{ylabel}, log scale")
        log_scale(axes)
    finish(figure, axes, handles, empty=not any(np.isfinite(row).any() for c in curves for row in c.seeds_values))
    return figure


@house_style()
def schedule_svg(schedules: Sequence[RunCurve], *, styles: Mapping[Name, Style] | None = None) -> str:
    """Draw the learning rate over updates. Configurations with one schedule share a line, in ink where hues differ."""
    styles = styles or styles_for(curve.name for curve in schedules)
    figure, axes = canvas("learning rate")
    handles = []
    shared: dict[tuple[object, ...], list[RunCurve]] = {}
    for curve in schedules:
        same = (tuple(curve.updates), tuple(map(tuple, curve.seeds_values)), curve.name.variant)
        shared.setdefault(same, []).append(curve)
    for i, group in enumerate(shared.values()):
        look = styles[group[0].name]
        if len({styles[curve.name].color for curve in group}) > 1:
            look = replace(look, color=INK)
        label = _joint_label([curve.name for curve in group])
        values_SU = seed_table(group[0].seeds_values, len(group[0].updates))
        points = points_each(len(shared))
        handles.append(draw_line(axes, label, group[0].updates, values_SU, look, first_marker=i, points=points))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
    axes.set_ylim(bottom=0)
    finish(figure, axes, handles, empty=not handles)
    return to_svg(figure, title="Learning rate over updates", desc=described(schedules))


@house_style()
def gradient_svg(profiles: Sequence[GradientProfile], *, styles: Mapping[Name, Style] | None = None) -> str:
    """Draw the mean over seeds with a band from smallest to largest on a log scale, blocks in order of appearance."""
    title = "Gradient norm per block before the first update"
    if too_many(profile.name for profile in profiles):
        figure = profile_panels(profiles, ylabel="gradient norm, log scale", styles=styles)
        return to_svg(figure, title=title, desc=". ".join(map(_described_profile, profiles)))
    styles = styles or styles_for(profile.name for profile in profiles)
    figure, axes = canvas("gradient norm, log scale")
    place = {block: i for i, block in enumerate(dict.fromkeys(block for p in profiles for block in p.blocks))}
    handles = []
    for profile in profiles:
        norms_SU = seed_table(profile.seeds_norms, len(profile.blocks))
        norms_SU = np.where(norms_SU > 0, norms_SU, np.nan)  # a log axis has no zero
        columns = range(len(profile.blocks))
        for _, part in groupby(columns, key=lambda column: profile.blocks[column].stack):
            at = list(part)
            x = [place[profile.blocks[column]] for column in at]
            line = draw_line(axes, profile.label, x, norms_SU[:, at], styles[profile.name])
        handles.append(line)
    log_scale(axes)
    _name_blocks(axes, list(place))
    finish(figure, axes, handles, empty=not handles)
    return to_svg(figure, title=title, desc=". ".join(map(_described_profile, profiles)))


def canvas(ylabel: str) -> tuple[Figure, Axes]:
    """One pair of axes over updates."""
    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel="update", ylabel=ylabel)
    axes.yaxis.labelpad = 7
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.margins(x=0.03)
    return figure, axes


def finish(figure: Figure, axes: Axes, handles: list[Line2D], *, empty: bool) -> None:
    """Put the legend below the axes, where it covers no data; the figure grows by its rows."""
    labels = [textwrap.fill(str(handle.get_label()), _LINE_CHARACTERS) for handle in handles]
    columns = 2 if max((len(label) for label in labels), default=0) <= 22 else 1
    rows = -(-sum(label.count("\n") + 1 for label in labels) // columns)
    figure.set_size_inches(_WIDTH_INCHES, _HEIGHT_INCHES + _LEGEND_ROW_INCHES * rows)
    if empty:
        axes.text(0.5, 0.5, "no values yet", ha="center", va="center", transform=axes.transAxes)
    if handles:
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, columnspacing=1.6)
        for text in legend.get_texts():
            text.set_parse_math(False)  # a label may hold a dollar sign


def _name_blocks(axes: Axes, blocks: Sequence[BlockPlace]) -> None:
    """Write block numbers on the axis and, once below each stack, its name."""
    every = -(-len(blocks) // 16)
    shown = range(0, len(blocks), max(1, every))
    for label in axes.set_xticks(list(shown), labels=[str(blocks[i].number) for i in shown]):
        label.label1.set_parse_math(False)
    axes.set_xlabel("block")
    stacks = [(name, list(part)) for name, part in groupby(range(len(blocks)), key=lambda i: blocks[i].stack)]
    for _, part in stacks[1:]:
        axes.axvline(part[0] - 0.5, color=INK, lw=0.8)
    if any(name for name, _ in stacks):
        axes.xaxis.remove_overlapping_locs = False
        centres = [(part[0] + part[-1]) / 2 for _, part in stacks]
        for label in axes.set_xticks(centres, labels=[name for name, _ in stacks], minor=True):
            label.label1.set_parse_math(False)
        axes.tick_params(axis="x", which="minor", length=0, pad=22)


def _joint_label(names: Sequence[Name]) -> str:
    """The names of configurations that share a line; of many, what they have in common beside the placement."""
    if len(names) <= 4:
        return "; ".join(map(str, names))
    variants = list(dict.fromkeys(name.variant for name in names))
    return f"{'; '.join(variants)} ({len(names)} configurations)"


def _described_profile(profile: GradientProfile) -> str:
    norms_SU = seed_table(profile.seeds_norms, len(profile.blocks))
    means = seed_mean(np.where(norms_SU > 0, norms_SU, np.nan))
    return f"{profile.label}: " + ", ".join(f"{b} {short(m)}" for b, m in zip(profile.blocks, means, strict=True))


# S = seeds, R = rates
_YLABEL = "nats per target token"


@house_style()
def rates_svg(
    curves: Sequence[RateCurve],
    *,
    baseline: float | None = None,
    title: str = "Validation loss at the end over the learning rate",
) -> str:
    """Draw the mean over seeds, a band from the lowest to the highest, and a cross where a run counts as at its start.

    baseline: the loss of the unigram baseline, drawn as a dashed line. Of more placements than there are hues each has
    a panel, without baseline or crosses.
    """
    words = ". ".join(map(_described, curves))
    names = [curve.name for curve in curves]
    if too_many(names):
        return to_svg(rate_panels(curves, ylabel=_YLABEL), title=title, desc=words)
    styles, handles, crossed = styles_for(names), list[Line2D](), False
    figure, axes = canvas(_YLABEL)
    axes.set_xlabel("peak learning rate, log scale")
    for curve in curves:
        look, values_SR = styles[curve.name], seed_table(curve.seeds_losses, len(curve.peak_lrs))
        handles.append(draw_line(axes, str(curve.name), curve.peak_lrs, values_SR, look))
        replaced_SR = np.asarray(curve.seeds_replaced, dtype=bool)
        if replaced_SR.any():
            rates_SR = np.broadcast_to(curve.peak_lrs, values_SR.shape)
            axes.plot(rates_SR[replaced_SR], values_SR[replaced_SR], ls="", marker="x", ms=9, mew=2, color=look.color)
            crossed = True
    empty = not any(np.isfinite(row).any() for curve in curves for row in curve.seeds_losses)
    # A line alone would leave the axis of rates without a number above 0.
    if baseline is not None and np.isfinite(baseline) and not empty:
        handles.append(axes.axhline(baseline, color=INK, lw=1.2, ls=(0, (7, 4)), label="unigram baseline", zorder=1.5))
    if crossed:
        label = "counts as the loss at initialisation"
        handles.append(Line2D([], [], ls="", marker="x", ms=9, mew=2, color=INK, label=label))
    rate_scale(axes)
    finish(figure, axes, handles, empty=empty)
    return to_svg(figure, title=title, desc=words)


def _described(curve: RateCurve) -> str:
    means_R = seed_mean(seed_table(curve.seeds_losses, len(curve.peak_lrs)))
    points = [f"{short(mean)} at {learning_rate(rate)}" for rate, mean in zip(curve.peak_lrs, means_R, strict=True)]
    return f"{curve.name}: {', '.join(points)}"
