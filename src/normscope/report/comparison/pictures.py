"""The pictures of a comparison: every chart that its readers explore, and where every run ended, a row a placement."""

import math
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..chart import Panel
from ..chart_panels import too_many
from ..chart_svg import VARIANTS, chart_svg
from ..svg import HUES, INK, house_style, to_svg
from ..words import significant
from .contents import ComparedConfiguration, ComparisonPage

_WIDTH_INCHES, _ROW_INCHES, _LEGEND_ROW_INCHES = 5.6, 0.3, 0.24
_LEGEND_COLUMNS, _LEGEND_ROWS = 2, 2
"""Rows of the legend that the usual height has room for."""
_LABEL_CHARACTERS = 28
_ENDS_CEILING = 1.3
"""Losses above so many times the unigram baseline, and runs that stopped at a non-finite value, stand at the edge."""
_BASELINE_DASH = (0, (7, 4))


def pictures(comparison: ComparisonPage, explored: Mapping[str, Sequence[Panel]]) -> dict[str, str]:
    """Name to SVG text, those over rates where there are rates; a configuration has one hue in all of them.

    What readers explore by a slider has no picture.
    """
    charts = {figure: next(panel for panel in panels if not panel.frames) for figure, panels in explored.items()}
    drawn = {
        figure.replace("-", "_"): chart_svg(panel)
        for figure, panel in charts.items()
        if panel.series or not panel.log_x
    }
    return drawn | {"final_loss": endings_svg(comparison)}


@house_style()
def endings_svg(comparison: ComparisonPage) -> str:
    """Draw the last validation loss of each configuration: a large mark for the mean of its seeds, small ones for them.

    The loss of the unigram baseline is a dashed line.
    """
    configurations, baseline = comparison.drawn, comparison.unigram_loss_nats
    hues = list(dict.fromkeys(configuration.name.group for configuration in comparison.configurations))
    by_group = defaultdict[str, list[ComparedConfiguration]](list)
    for configuration in configurations:
        by_group[configuration.name.group].append(configuration)
    groups = sorted(by_group, key=lambda group: min(map(_ending, by_group[group])))
    variants = list(dict.fromkeys(configuration.name.variant for configuration in configurations))
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
        for configuration in by_group[group]:
            place = variants.index(configuration.name.variant)
            # Variants side by side: where they end at the same loss both can be seen.
            y = row + 0.18 * (place - (len(variants) - 1) / 2) / max(1, len(variants) - 1)
            color = INK if too_many(hues) else HUES[hues.index(group)]
            _mark(axes, configuration, y, edge, (color, VARIANTS[place % len(VARIANTS)][1]))
    _label(axes, groups, empty=not finite)
    beyond = any(not loss <= edge for configuration in configurations for loss in _losses(configuration))
    _legend(figure, variants, baseline, beyond=beyond)
    words = ". ".join(
        f"{one.name}: {', '.join(map(significant, _losses(one))) or 'no value'}" for one in configurations
    )
    return to_svg(figure, title="Validation loss at the end", desc=words)


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


def _legend(figure: Figure, variants: Sequence[str], baseline: float | None, *, beyond: bool) -> None:
    """One entry a variant. Its marks have the hues of their rows, and so the entry has none."""
    handles = [
        Line2D([], [], ls="", marker=VARIANTS[place % len(VARIANTS)][1], ms=7, color=INK, label=variant or "runs")
        for place, variant in enumerate(variants)
    ]
    if baseline is not None and math.isfinite(baseline):
        handles.append(Line2D([], [], color=INK, lw=1.2, ls=_BASELINE_DASH, label="unigram baseline"))
    if beyond:
        handles.append(Line2D([], [], ls="", marker="x", ms=8, mew=2, color=INK, label="beyond the edge"))
    if handles:
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=_LEGEND_COLUMNS, columnspacing=1.6)
        for text in legend.get_texts():
            text.set_parse_math(False)  # a label may hold a dollar sign


def _mark(
    axes: Axes, configuration: ComparedConfiguration, y: float, edge: float, color_and_marker: tuple[str, str]
) -> None:
    color, marker = color_and_marker
    losses = _losses(configuration)
    inside = [loss for loss in losses if loss <= edge]
    axes.plot(inside, [y] * len(inside), ls="", marker=marker, ms=3.5, color=color, alpha=0.55)
    if inside:
        mean = math.fsum(inside) / len(inside)
        axes.plot([mean], [y], ls="", marker=marker, ms=7, color=color, zorder=3)
    if len(inside) < len(losses):
        axes.plot([edge], [y], ls="", marker="x", ms=8, mew=2, color=color, zorder=4, clip_on=False)


def _losses(configuration: ComparedConfiguration) -> list[float]:
    return [seed.valid_loss_nats for seed in configuration.seeds if seed.valid_loss_nats is not None]


def _ending(configuration: ComparedConfiguration) -> float:
    """The mean over seeds by which groups are put in order; infinite where a seed did not get there."""
    losses = _losses(configuration)
    return math.fsum(losses) / len(losses) if losses and all(map(math.isfinite, losses)) else math.inf
