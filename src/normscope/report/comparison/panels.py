"""Small multiples: one panel a group, where more groups were compared than hues can tell apart."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..lines import Style, draw_line, log_scale, points_each, rate_scale, seed_table, styles_for
from ..svg import INK
from .contents import GradientProfile, Name, RateCurve, RunCurve

_COLUMNS, _PANEL_WIDTH_INCHES, _PANEL_HEIGHT_INCHES = 4, 1.9, 1.45
_TITLE_CHARACTERS = 24
"""That stand beside each other above a panel."""
_MOST_POINTS = 80
"""Points drawn a curve: a panel is a fifth as wide as a picture."""
_CEILING = 1.5
"""Losses above so many times the baseline are cut off: a diverged run must not flatten every other panel."""

_Drawn = TypeVar("_Drawn", RunCurve, GradientProfile, RateCurve)


def curve_panels(
    curves: Sequence[RunCurve],
    *,
    ylabel: str,
    baseline: float | None,
    log: bool = False,
    styles: Mapping[Name, Style] | None = None,
) -> Figure:
    """Curves by group, on the same axes; in each the variants of the group, which differ in dash and marker."""

    def draw(axes: Axes, curve: RunCurve, look: Style) -> Line2D:
        values_SU = seed_table(curve.seeds_values, len(curve.updates))
        return draw_line(
            axes, str(curve.name), curve.updates, values_SU, look, points=min(_MOST_POINTS, points_each(len(curves)))
        )

    figure, panels, handles = _panels(curves, ylabel, "update", draw, styles)
    values = [v for curve in curves for row in curve.seeds_values for v in row if np.isfinite(v)]
    if baseline is not None and np.isfinite(baseline) and values:
        for axes in panels:
            axes.axhline(baseline, color=INK, lw=0.9, ls=(0, (7, 4)), zorder=1.5)
        handles.append(Line2D([], [], color=INK, lw=0.9, ls=(0, (7, 4)), label="unigram baseline"))
        low, high = min(values), max(baseline, min(max(values), _CEILING * baseline))
        panels[0].set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    if log and values and min(values) > 0:
        log_scale(panels[0])
    _name_variants(figure, handles)
    return figure


def profile_panels(
    profiles: Sequence[GradientProfile], *, ylabel: str, styles: Mapping[Name, Style] | None = None
) -> Figure:
    """Gradient norms by group on shared logarithmic axes; blocks are numbered through all stacks."""

    def draw(axes: Axes, profile: GradientProfile, look: Style) -> Line2D:
        norms_SU = seed_table(profile.seeds_norms, len(profile.blocks))
        norms_SU = np.where(norms_SU > 0, norms_SU, np.nan)  # a log axis has no zero
        return draw_line(axes, profile.label, range(1, len(profile.blocks) + 1), norms_SU, look)

    figure, panels, handles = _panels(profiles, ylabel, "block", draw, styles)
    log_scale(panels[0])
    _name_variants(figure, handles)
    return figure


def rate_panels(curves: Sequence[RateCurve], *, ylabel: str) -> Figure:
    """Final losses over the rate by group, on shared axes."""

    def draw(axes: Axes, curve: RateCurve, look: Style) -> Line2D:
        values_SR = seed_table(curve.seeds_losses, len(curve.peak_lrs))
        return draw_line(axes, str(curve.name), curve.peak_lrs, values_SR, look)

    figure, panels, handles = _panels(curves, ylabel, "peak learning rate", draw, None)
    rate_scale(panels[0])
    _name_variants(figure, handles)
    return figure


def _panels(
    drawn: Sequence[_Drawn],
    ylabel: str,
    xlabel: str,
    draw: Callable[[Axes, _Drawn, Style], Line2D],
    styles: Mapping[Name, Style] | None,
) -> tuple[Figure, list[Axes], list[Line2D]]:
    groups = list(dict.fromkeys(one.name.group for one in drawn))
    looks = styles or styles_for(one.name for one in drawn)
    rows = -(-len(groups) // _COLUMNS)
    figure = Figure(figsize=(_COLUMNS * _PANEL_WIDTH_INCHES, rows * _PANEL_HEIGHT_INCHES + 0.8), layout="constrained")
    grid = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True, squeeze=False).ravel()
    handles: dict[str, Line2D] = {}
    for axes, group in zip(grid, groups, strict=False):
        axes.set_title(textwrap.fill(group, _TITLE_CHARACTERS), fontsize=10, pad=3).set_parse_math(False)
        axes.tick_params(labelsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
        for one in drawn:
            if one.name.group == group:
                line = draw(axes, one, looks[one.name])
                line.set(linewidth=1.4, markersize=3.5)
                handles.setdefault(one.name.variant, Line2D([], [], **_same(line), label=one.name.variant))
    for axes in grid[len(groups) :]:
        axes.set_axis_off()
    # A panel above an empty place is the lowest of its column.
    for axes in grid[max(0, len(groups) - _COLUMNS) : len(groups)]:
        axes.tick_params(labelbottom=True)
    figure.supylabel(ylabel, fontsize=11)
    figure.supxlabel(xlabel, fontsize=11)
    return figure, list(grid[: len(groups)]), list(handles.values())


def _same(line: Line2D) -> dict[str, Any]:
    return {name: getattr(line, f"get_{name}")() for name in ("color", "linestyle", "marker", "markersize")}


def _name_variants(figure: Figure, handles: Sequence[Line2D]) -> None:
    if handles:
        legend = figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)), fontsize=10.5)
        for text in legend.get_texts():
            text.set_parse_math(False)  # a label may hold a dollar sign
