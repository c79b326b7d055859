"""The four pictures of a report as SVG text: loss over updates (twice), gradient norm per block, learning rate."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from normscope.report.contents import Curve, GradientProfile
from normscope.report.svg import HUES, INK, house_style, to_svg

# S = seeds, U = updates or blocks
_VARIANTS: tuple[tuple[Any, str], ...] = (
    ("-", "o"), ((0, (4, 1.6)), "s"), ((0, (1.2, 1.4)), "^"), ((0, (5, 1.5, 1.2, 1.5)), "D"), ((0, (9, 2)), "v"),
)  # fmt: skip
_WIDTH_INCHES, _HEIGHT_INCHES, _LEGEND_ROW_INCHES = 5.6, 3.5, 0.24
_LINE_CHARACTERS = 48
_POINTS = 400
"""Points drawn a curve; more cannot be told apart at this width and make the page heavy."""
_LOG_RATIO = 20.0
"""Largest over smallest value from which a loss is drawn on a log scale: a diverged run must not flatten the rest."""


@dataclass(frozen=True, slots=True)
class Style:
    """How one arm is drawn in every picture."""

    color: str
    dash: Any
    marker: str


def styles_for(keys: Iterable[str]) -> dict[str, Style]:
    """Hue by group, dash and marker by variant, both in order of first appearance."""
    groups: dict[str, int] = {}
    variants: dict[str, int] = {}
    styles = {}
    for key in keys:
        group, _, variant = key.partition("|")
        hue = groups.setdefault(group, len(groups)) % len(HUES)
        dash, marker = _VARIANTS[variants.setdefault(variant, len(variants)) % len(_VARIANTS)]
        styles[key] = Style(HUES[hue], dash, marker)
    return styles


@house_style()
def curves_svg(
    curves: Sequence[Curve],
    *,
    ylabel: str,
    title: str = "Loss over updates",
    chance: float | None = None,
    styles: Mapping[str, Style] | None = None,
) -> str:
    """Mean over the seeds still running, band from their smallest to their largest value, crosses where runs stopped.

    chance: a level drawn as a thin dashed line, in the unit of the values.
    """
    styles = styles or styles_for(curve.style_key for curve in curves)
    handles: list[Line2D] = []
    figure, axes = _canvas(ylabel)
    stopped = False
    for i, curve in enumerate(curves):
        values_SU = _table(curve.seeds_values, len(curve.updates))
        handles.append(_draw(axes, curve.label, curve.updates, values_SU, styles[curve.style_key], first_marker=i))
        for row in curve.seeds_values:
            stopped |= _cross(axes, curve.updates, row, styles[curve.style_key].color)
    if chance is not None and np.isfinite(chance):
        handles.append(axes.axhline(chance, color=INK, lw=1.2, ls=(0, (7, 4)), label="chance (unigram)", zorder=1.5))
    if stopped:
        handles.append(Line2D([], [], ls="", marker="x", ms=9, mew=2.5, color=INK, label="stopped: non-finite"))
    finite = [v for curve in curves for row in curve.seeds_values for v in row if np.isfinite(v)]
    if finite and min(finite) > 0 and max(finite) / min(finite) > _LOG_RATIO:
        axes.set_ylabel(f"{ylabel}, log scale")
        _log_scale(axes)
    _finish(figure, axes, handles, empty=not finite)
    return to_svg(figure, title=title, desc=_told(curves))


@house_style()
def schedule_svg(
    schedules: Sequence[Curve], *, title: str = "Learning rate over updates", styles: Mapping[str, Style] | None = None
) -> str:
    """Learning rate over updates. Arms with one and the same schedule share a line, in ink where their hues differ."""
    styles = styles or styles_for(curve.style_key for curve in schedules)
    figure, axes = _canvas("learning rate")
    handles = []
    shared: dict[tuple[object, ...], list[Curve]] = {}
    for curve in schedules:
        same = (tuple(curve.updates), tuple(map(tuple, curve.seeds_values)), curve.style_key.partition("|")[2])
        shared.setdefault(same, []).append(curve)
    for i, group in enumerate(shared.values()):
        look = styles[group[0].style_key]
        if len({styles[curve.style_key].color for curve in group}) > 1:
            look = replace(look, color=INK)
        label = "; ".join(curve.label for curve in group)
        values_SU = _table(group[0].seeds_values, len(group[0].updates))
        handles.append(_draw(axes, label, group[0].updates, values_SU, look, first_marker=i))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
    axes.set_ylim(bottom=0)
    _finish(figure, axes, handles, empty=not handles)
    return to_svg(figure, title=title, desc=_told(schedules))


@house_style()
def gradient_svg(
    profiles: Sequence[GradientProfile],
    *,
    title: str = "Gradient norm per block before the first update",
    styles: Mapping[str, Style] | None = None,
) -> str:
    """Mean over seeds with a band from smallest to largest on a log scale, blocks in order of first appearance."""
    styles = styles or styles_for(profile.style_key for profile in profiles)
    figure, axes = _canvas("gradient norm, log scale")
    place = {name: i for i, name in enumerate(dict.fromkeys(name for p in profiles for name in p.blocks))}
    handles, told = [], []
    for profile in profiles:
        norms_SU = _table(profile.seeds_norms, len(profile.blocks))
        norms_SU = np.where(norms_SU > 0, norms_SU, np.nan)  # a log axis has no zero
        columns = range(len(profile.blocks))
        for _, part in groupby(columns, key=lambda column: stack_of(profile.blocks[column])[0]):
            at = list(part)
            x = [place[profile.blocks[column]] for column in at]
            line = _draw(axes, profile.label, x, norms_SU[:, at], styles[profile.style_key])
        handles.append(line)
        means = _mean(norms_SU)
        told.append(
            f"{profile.label}: " + ", ".join(f"{b} {_g(m)}" for b, m in zip(profile.blocks, means, strict=True))
        )
    _log_scale(axes)
    _name_blocks(axes, list(place))
    _finish(figure, axes, handles, empty=not handles)
    return to_svg(figure, title=title, desc=". ".join(told))


def _canvas(ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel="update", ylabel=ylabel)
    axes.yaxis.labelpad = 7
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.margins(x=0.03)
    return figure, axes


def _finish(figure: Figure, axes: Axes, handles: list[Line2D], *, empty: bool) -> None:
    """Legend below the axes, where it covers no data; the figure grows by its rows."""
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


def _log_scale(axes: Axes) -> None:
    """Plain numbers at 1, 2, 5 within three decades, powers of ten beyond."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 1e3:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _table(rows: Sequence[Sequence[float]], length: int) -> NDArray[np.float64]:
    """(S, U) with NaN for whatever is not finite or not there."""
    table_SU = np.full((len(rows), length), np.nan)
    for table_U, row in zip(table_SU, rows, strict=True):
        table_U[: len(row)] = row
    return np.where(np.isfinite(table_SU), table_SU, np.nan)


def _mean(values_SU: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the seeds that have a value; NaN where none has, without the warning of `numpy.nanmean`."""
    here_SU = np.isfinite(values_SU)
    total_U, count_U = np.where(here_SU, values_SU, 0).sum(0), here_SU.sum(0)
    return np.where(count_U > 0, total_U / np.maximum(count_U, 1), np.nan)


def _draw(
    axes: Axes,
    label: str,
    x: Sequence[int],
    values_SU: NDArray[np.float64],
    look: Style,
    first_marker: int = 0,
) -> Line2D:
    step = max(1, -(-len(x) // _POINTS))
    kept = sorted({*range(0, len(x), step), len(x) - 1}) if len(x) else []
    x_U, values_SU = np.asarray(x)[kept], values_SU[:, kept]
    every = max(1, len(kept) // 8) if len(kept) > 16 else 1
    if values_SU.shape[0] > 1:
        here_SU = np.isfinite(values_SU)
        low_U = np.where(here_SU, values_SU, np.inf).min(0)
        high_U = np.where(here_SU, values_SU, -np.inf).max(0)
        axes.fill_between(x_U, low_U, high_U, where=here_SU.any(0), color=look.color, alpha=0.18, lw=0)
    # Markers start at different points, so that curves on top of each other can still be told apart.
    offset = (2 * first_marker) % every if every > 1 else 0
    (line,) = axes.plot(
        x_U,
        _mean(values_SU),
        label=label,
        color=look.color,
        ls=look.dash,
        marker=look.marker,
        markevery=(offset, every),
    )
    return line


def _cross(axes: Axes, updates: Sequence[int], row: Sequence[float], color: str) -> bool:
    """Marks the last finite value of a run that a non-finite one stopped, or the top edge where there is none."""
    if not row or np.isfinite(row[-1]):
        return False
    finite = [i for i, value in enumerate(row) if np.isfinite(value)]
    x, y = (updates[finite[-1]], row[finite[-1]]) if finite else (updates[0], 1.0)
    where = axes.transData if finite else axes.get_xaxis_transform()
    axes.plot([x], [y], marker="x", ms=11, mew=3, color=color, ls="", transform=where, clip_on=False, zorder=4)
    return True


def stack_of(block: str) -> tuple[str, str]:
    """ "encoder 3" -> ("encoder", "3"); a name without a number is a stack of its own kind."""
    stack, _, number = block.rpartition(" ")
    return (stack, number) if stack and number.isdigit() else ("", block)


def _name_blocks(axes: Axes, blocks: Sequence[str]) -> None:
    """Numbers on the axis and, once below each run of them, the name of the stack."""
    every = -(-len(blocks) // 16)
    shown = range(0, len(blocks), max(1, every))
    for label in axes.set_xticks(list(shown), labels=[stack_of(blocks[i])[1] for i in shown]):
        label.label1.set_parse_math(False)
    axes.set_xlabel("block")
    stacks = [(name, list(part)) for name, part in groupby(range(len(blocks)), key=lambda i: stack_of(blocks[i])[0])]
    for _, part in stacks[1:]:
        axes.axvline(part[0] - 0.5, color=INK, lw=0.8)
    if any(name for name, _ in stacks):
        axes.xaxis.remove_overlapping_locs = False
        centres = [(part[0] + part[-1]) / 2 for _, part in stacks]
        for label in axes.set_xticks(centres, labels=[name for name, _ in stacks], minor=True):
            label.label1.set_parse_math(False)
        axes.tick_params(axis="x", which="minor", length=0, pad=22)


def _told(curves: Sequence[Curve]) -> str:
    """The picture in words: where each curve starts and ends."""
    words = []
    for curve in curves:
        means = _mean(_table(curve.seeds_values, len(curve.updates)))
        known = np.flatnonzero(np.isfinite(means))
        if not known.size:
            words.append(f"{curve.label}: no finite value")
            continue
        first, last = known[0], known[-1]
        ends = [f"{_g(means[i])} at update {curve.updates[i]}" for i in (first, last)]
        words.append(f"{curve.label}: " + " to ".join(ends))
    return ". ".join(words)


def _g(value: float) -> str:
    return f"{value:.4g}" if np.isfinite(value) else "none"
