"""The learning rate on a page: its rows, and a picture of where it lies."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ...report.svg import HUES, INK, Picture, house_style, inlined, to_svg
from ...report.words import learning_rate
from ..result import Advice, Record
from .advice_words import ADVICE_TERMS, advice_rows, source, surer

_WIDTH_INCHES = 5.2
_LEFT = 1.3
_RIGHT = 0.15
_BOTTOM = 0.62
_TOP = 0.12
"""Inches around the axes."""
_ROW_INCHES = 0.34
_ROOM = 3.0
"""Factor between the rates that the advice speaks of and the ends of the axis."""
_DECADES = 3
"""The decades of an axis up to which 3e-4 is labelled beside 1e-4."""
_BAND, _USUAL = HUES[2], HUES[0]


@house_style()
def rates_picture(advice: Advice) -> str:
    """Draw the usual rate with its range, and the user's own, over one axis of rates.

    Raises ValueError without any rate to draw.
    """
    rows = _rows(advice)
    spoken = [rate for _, low, high, _, _ in rows for rate in (low, high)]
    if not spoken:
        raise ValueError("the advice speaks of no rate, so there is nothing to draw")
    height = _TOP + _ROW_INCHES * len(rows) + _BOTTOM
    figure = Figure(figsize=(_WIDTH_INCHES, height))
    width = _WIDTH_INCHES - _LEFT - _RIGHT
    axes = figure.add_axes(
        (
            _LEFT / _WIDTH_INCHES,
            _BOTTOM / height,
            width / _WIDTH_INCHES,
            _ROW_INCHES * len(rows) / height,
        )
    )
    _draw_axis(axes, advice, min(spoken) / _ROOM, max(spoken) * _ROOM)
    _draw_rows(axes, rows)
    # The picture in words, for those who do not see it.
    told = [
        f"{name} {learning_rate(low)}" + (f" to {learning_rate(high)}" if high > low else "")
        for name, low, high, _, _ in rows
    ]
    return to_svg(figure, title="Learning rates", desc="; ".join(told))


_Row = tuple[str, float, float, float, str]
"""Name, ends, mark and colour of a line."""


def _rows(advice: Advice) -> list[_Row]:
    rows: list[_Row] = []
    if advice.best_rate is not None and advice.best_interval is not None:
        rows.append(
            ("usual", advice.best_interval.low, advice.best_interval.high, advice.best_rate, _USUAL)
        )
    if advice.wanted_rate is not None:
        rows.append(("yours", advice.wanted_rate, advice.wanted_rate, advice.wanted_rate, INK))
    return rows


def _draw_axis(axes: Axes, advice: Advice, low: float, high: float) -> None:
    """The axis of rates with the band of usual ones and a line at the user's own."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    # Powers of ten alone would leave an axis of a decade with one label.
    few = math.log10(high / low) < _DECADES
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if few else (1,), numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: learning_rate(value, 1)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("learning rate (logarithmic)")
    span = advice.best_interval
    if span is not None:
        axes.axvspan(span.low, span.high, color=_BAND, alpha=0.15, lw=0, zorder=0.5)
    if advice.wanted_rate is not None:
        axes.axvline(advice.wanted_rate, color=INK, ls=(0, (1.5, 1.3)), lw=1.8, zorder=2)


def _draw_rows(axes: Axes, rows: Sequence[_Row]) -> None:
    for place, (_, low, high, mark, color) in enumerate(rows):
        if high > low:
            axes.plot([low, high], [place, place], color=color, lw=3, solid_capstyle="butt")
        axes.plot([mark], [place], color=color, marker="o", ms=8, ls="")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def advised(diagnosis: Record) -> dict[str, Any]:
    """Returns the advice by the names in the template; empty without advice."""
    advice = diagnosis.advice
    if advice is None:
        return {}
    picture = None
    if advice.best_rate is not None:
        yours = "" if advice.wanted_rate is None else " The dotted line is your learning rate."
        caption = "The bar is the usual rate with its range." + yours
        picture = Picture(svg=inlined(rates_picture(advice), "advice-rates"), caption=caption)
    return {
        "advised": advice_rows(advice),
        "advice_source": source(advice),
        "advice_surer": surer(advice, diagnosis.compared),
        "advice_facts": [("Known rates", advice.basis)] if advice.basis else [],
        "advice_terms": ADVICE_TERMS,
        "rates_picture": picture,
    }
