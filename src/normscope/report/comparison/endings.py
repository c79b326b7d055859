"""Where every run ended: one row a placement, a mark for each variant, the best at the top."""

import math
import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..lines import Style, styles_for
from ..svg import INK, house_style, to_svg
from ..words import significant
from .contents import ComparedConfiguration, Name

_WIDTH_INCHES, _ROW_INCHES, _LEGEND_ROW_INCHES = 5.6, 0.3, 0.24
_LEGEND_COLUMNS, _LEGEND_ROWS = 2, 2
"""Rows of the legend that the usual height has room for."""
_LABEL_CHARACTERS = 28
_CEILING = 1.3
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
        edge = min(edge, _CEILING * baseline)
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
