"""Pictures of many configurations: a panel a group, and where every run ended, a row a placement."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..lines import Style, draw_line, log_scale, points_each, rate_scale, seed_table, styles_for
from ..svg import INK, house_style, to_svg
from ..words import significant
from .contents import ComparedConfiguration, GradientProfile, Name, RateCurve, RunCurve

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


_WIDTH_INCHES, _ROW_INCHES, _LEGEND_ROW_INCHES = 5.6, 0.3, 0.24
_LEGEND_COLUMNS, _LEGEND_ROWS = 2, 2
"""Rows of the legend that the usual height has room for."""
_LABEL_CHARACTERS = 28
_ENDS_CEILING = 1.3
"""Losses above so many times the unigram baseline, and runs that stopped at a non-finite value, stand at the edge."""
_BASELINE_DASH = (0, (7, 4))


@house_style()
def endings_svg(
    configurations: Sequence[ComparedConfiguration],
    *,
    baseline: float | None,
    title: str = "Validation loss at the end",
    styles: Mapping[Name, Style] | None = None,
) -> str:
    """Draw the last validation loss of each configuration: a large mark for the mean of its seeds, small ones for them.

    baseline: the loss of the unigram baseline, drawn as a dashed line.
    """
    names = [configuration.name for configuration in configurations]
    looks = styles or styles_for(names)
    groups = sorted(
        {name.group for name in names}, key=lambda group: min(map(_ending, _in_group(configurations, group)))
    )
    variants = list(dict.fromkeys(name.variant for name in names))
    # Beside the variants there may stand the baseline and what lies beyond the edge.
    more = max(0, -(-(len(variants) + 2) // _LEGEND_COLUMNS) - _LEGEND_ROWS)
    height = 1.3 + _ROW_INCHES * len(groups) + _LEGEND_ROW_INCHES * more
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
    axes = figure.add_subplot()
    finite = [loss for configuration in configurations for loss in _losses(configuration) if math.isfinite(loss)]
    edge = max(finite, default=1.0)
    if baseline is not None and math.isfinite(baseline):
        edge = min(edge, _ENDS_CEILING * baseline)
        axes.axvline(baseline, color=INK, lw=1.2, ls=_BASELINE_DASH, zorder=1.5)
    for row, group in enumerate(groups):
        for configuration in _in_group(configurations, group):
            place = variants.index(configuration.name.variant)
            # Variants side by side: where they end at the same loss both can be seen.
            y = row + 0.18 * (place - (len(variants) - 1) / 2) / max(1, len(variants) - 1)
            _mark(axes, configuration, y, edge, looks[configuration.name])
    _label(axes, groups, empty=not finite)
    beyond = any(not loss <= edge for configuration in configurations for loss in _losses(configuration))
    _legend(figure, looks, names, baseline, beyond=beyond)
    words = ". ".join(f"{configuration.name}: {_described(configuration)}" for configuration in configurations)
    return to_svg(figure, title=title, desc=words)


def _label(axes: Axes, groups: Sequence[str], *, empty: bool) -> None:
    for label in axes.set_yticks(range(len(groups)), labels=list(map(_beside, groups))):
        label.label1.set_parse_math(False)  # a label may hold a dollar sign
    axes.set_ylim(max(1, len(groups)) - 0.5, -0.5)
    # Long names leave narrow axes: in their middle the label would run off the picture.
    axes.set_xlabel("cross-entropy (nats per target token)", loc="right")
    axes.grid(axis="y", visible=False)
    if empty:
        axes.text(0.5, 0.5, "no values yet", ha="center", va="center", transform=axes.transAxes)


def _beside(group: str) -> str:
    """A row's name in at most two lines, which leave the axes room."""
    most = 2 * _LABEL_CHARACTERS
    return textwrap.fill(group if len(group) <= most else f"{group[: most - 1]}…", _LABEL_CHARACTERS)


def _legend(
    figure: Figure, looks: Mapping[Name, Style], names: Sequence[Name], baseline: float | None, *, beyond: bool
) -> None:
    """One entry a variant. Its marks have the hues of their rows, and so the entry has none."""
    first = {name.variant: looks[name] for name in reversed(names)}
    handles = [
        Line2D([], [], ls="", marker=look.marker, ms=7, color=INK, label=variant or "runs")
        for variant, look in reversed(first.items())
    ]
    if baseline is not None and math.isfinite(baseline):
        handles.append(Line2D([], [], color=INK, lw=1.2, ls=_BASELINE_DASH, label="unigram baseline"))
    if beyond:
        handles.append(Line2D([], [], ls="", marker="x", ms=8, mew=2, color=INK, label="beyond the edge"))
    if handles:
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=_LEGEND_COLUMNS, columnspacing=1.6)
        for text in legend.get_texts():
            text.set_parse_math(False)  # a label may hold a dollar sign


def _mark(axes: Axes, configuration: ComparedConfiguration, y: float, edge: float, look: Style) -> None:
    losses = _losses(configuration)
    inside = [loss for loss in losses if loss <= edge]
    axes.plot(inside, [y] * len(inside), ls="", marker=look.marker, ms=3.5, color=look.color, alpha=0.55)
    if inside:
        mean = math.fsum(inside) / len(inside)
        axes.plot([mean], [y], ls="", marker=look.marker, ms=7, color=look.color, zorder=3)
    if len(inside) < len(losses):
        axes.plot([edge], [y], ls="", marker="x", ms=8, mew=2, color=look.color, zorder=4, clip_on=False)


def _losses(configuration: ComparedConfiguration) -> list[float]:
    return [seed.valid_loss_nats for seed in configuration.seeds if seed.valid_loss_nats is not None]


def _ending(configuration: ComparedConfiguration) -> float:
    """The mean over seeds by which groups are put in order; infinite where a seed did not get there."""
    losses = _losses(configuration)
    return math.fsum(losses) / len(losses) if losses and all(map(math.isfinite, losses)) else math.inf


def _in_group(configurations: Sequence[ComparedConfiguration], group: str) -> list[ComparedConfiguration]:
    return [configuration for configuration in configurations if configuration.name.group == group]


def _described(configuration: ComparedConfiguration) -> str:
    return ", ".join(significant(loss) for loss in _losses(configuration)) or "no value"
