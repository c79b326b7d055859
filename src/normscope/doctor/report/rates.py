"""The learning rate on a page: its rows, and pictures of what becomes of a training at each rate."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ...report.svg import HUES, INK, PAPER, Picture, house_style, inlined, to_svg
from ...report.words import learning_rate, percentage
from ..result import Advice, Record, ShortTraining
from .advice_words import ADVICE_TERMS, OUTCOMES, advice_facts, advice_rows, source_words
from .words import figures

_WIDTH_INCHES = 5.2
_LEFT, _RIGHT, _BOTTOM, _TOP, _GAP = 1.3, 0.15, 0.62, 0.12, 0.22
"""Inches around the axes and between them."""
_ROW_INCHES, _LOSS_INCHES, _LEGEND_INCHES = 0.34, 1.5, 0.34
_ROOM = 3.0
"""Factor between the rates that the advice speaks of and the ends of the axis."""
_GOOD, _BEST, _STUCK = HUES[2], HUES[0], HUES[1]
_MARKS = {
    "learns": ("o", _BEST, _BEST),
    "unsettled": ("o", PAPER, _BEST),
    "stuck": ("X", _STUCK, _STUCK),
    "not finite": ("^", _STUCK, _STUCK),
}
"""Marker, face and edge by what became of a short training."""


_LEGEND: Mapping[str, Any] = {
    "fontsize": 11, "handlelength": 1.0, "handletextpad": 0.3, "columnspacing": 1.0, "borderaxespad": 0.2
}  # fmt: skip
"""So that what may become of a training stands in one line."""


@house_style()
def rates_picture(advice: Advice) -> str:
    """Draw the good rates, the best with its interval and the user's own above the losses of short trainings, where
    there are any, all over one axis of rates.

    Raises ValueError without any rate to draw.
    """
    low, high = _window(advice)
    rows = _rows(advice)
    parts = [("rows", _ROW_INCHES * len(rows))]
    parts += [("losses", _LOSS_INCHES)] if _last_losses(advice) else []
    figure, axes = _panels(parts, _LEGEND_INCHES if _last_losses(advice) else 0.0)
    for one in axes.values():
        _shared(one, advice, low, high)
    _draw_rows(axes["rows"], rows)
    if "losses" in axes:
        _draw_losses(axes["losses"], advice)
        figure.legend(loc="lower center", ncols=len(_MARKS), **_LEGEND)
    lowest = list(axes.values())[-1]
    lowest.set_xlabel("learning rate (logarithmic)")
    lowest.tick_params(labelbottom=True)
    return to_svg(figure, title="Learning rates and what becomes of a training at each", desc=_told(advice, rows))


_Row = tuple[str, float, float, float | None, str]
"""Name, ends, mark and colour of a line of the uppermost panel."""


def _rows(advice: Advice) -> list[_Row]:
    rows: list[_Row] = []
    good = advice.good_range
    probed = advice.source == "probe"
    if good is not None and probed:
        rows.append(("good", good.low, good.high, None, _GOOD))
    if advice.best_rate is not None:
        best, interval = advice.best_rate, advice.best_interval
        ends = (best, best) if interval is None else (interval.low, interval.high)
        rows.append(("best" if probed else "usual", *ends, best, _BEST))
    if advice.wanted_rate is not None:
        rows.append(("yours", advice.wanted_rate, advice.wanted_rate, advice.wanted_rate, INK))
    return rows


def _window(advice: Advice) -> tuple[float, float]:
    """The ends of the axis: around every rate that the advice speaks of."""
    spoken = [rate for _, low, high, _, _ in _rows(advice) for rate in (low, high)]
    spoken += [training.rate for training in advice.probed]
    if not spoken:
        raise ValueError("the advice speaks of no rate, so there is nothing to draw")
    return min(spoken) / _ROOM, max(spoken) * _ROOM


def _panels(parts: Sequence[tuple[str, float]], below: float = 0.0) -> tuple[Figure, dict[str, Axes]]:
    """Axes below each other, each as many inches high as it says, and inches left free below all of them."""
    height = _TOP + sum(inches for _, inches in parts) + _GAP * (len(parts) - 1) + _BOTTOM + below
    figure = Figure(figsize=(_WIDTH_INCHES, height))
    axes, top = {}, height - _TOP
    width = _WIDTH_INCHES - _LEFT - _RIGHT
    for name, inches in parts:
        top -= inches
        where = (_LEFT / _WIDTH_INCHES, top / height, width / _WIDTH_INCHES, inches / height)
        axes[name] = figure.add_axes(where)
        top -= _GAP
    return figure, axes


def _shared(axes: Axes, advice: Advice, low: float, high: float) -> None:
    """The axis of rates with the band of good ones and a line at the user's own."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"1e{math.log10(value):.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelbottom=False)
    good = advice.good_range
    if good is not None:
        axes.axvspan(good.low, good.high, color=_GOOD, alpha=0.15, lw=0, zorder=0.5)
    if advice.wanted_rate is not None:
        axes.axvline(advice.wanted_rate, color=INK, ls=(0, (1.5, 1.3)), lw=1.8, zorder=2)


def _draw_rows(axes: Axes, rows: Sequence[_Row]) -> None:
    for place, (_, low, high, mark, color) in enumerate(rows):
        if high > low:
            axes.plot([low, high], [place, place], color=color, lw=6 if mark is None else 3, solid_capstyle="butt")
        if mark is not None:
            axes.plot([mark], [place], color=color, marker="o", ms=8, ls="")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def _last_losses(advice: Advice) -> list[tuple[ShortTraining, float]]:
    """The trainings without warm-up that have a finite loss, with the last of them."""
    known = [(one, [loss for loss in one.losses if loss is not None]) for one in advice.probed]
    return [(one, losses[-1]) for one, losses in known if losses]


def _draw_losses(axes: Axes, advice: Advice) -> None:
    """A mark at the last finite loss of each short training without warm-up, by what became of it."""
    several = _last_losses(advice)
    for outcome, (marker, face, edge) in _MARKS.items():
        at = [(one.rate, loss) for one, loss in several if one.outcome == outcome]
        if at:
            x, y = zip(*at, strict=True)
            axes.plot(
                x, y, ls="", marker=marker, ms=7.5, mfc=face, mec=edge, mew=1.6, label=OUTCOMES[outcome], zorder=3
            )
    axes.margins(y=0.15)
    axes.set_ylabel("last loss\n(nats per token)")


def _told(advice: Advice, rows: Sequence[_Row]) -> str:
    """The picture in words, for those who do not see it."""
    words = [
        f"{name} {learning_rate(low)}" + (f" to {learning_rate(high)}" if high > low else "")
        for name, low, high, _, _ in rows
    ]
    words += [
        f"trained at {learning_rate(one.rate)}: {figures(loss)}, {one.outcome}" for one, loss in _last_losses(advice)
    ]
    return "; ".join(words)


def advised(diagnosis: Record) -> dict[str, Any]:
    """By name in the template; nothing without advice."""
    advice = diagnosis.advice
    if advice is None:
        return {}
    return {
        "advised": advice_rows(advice),
        "advice_source": source_words(advice),
        "advice_facts": advice_facts(advice),
        "advice_terms": ADVICE_TERMS,
        "trainings": _trainings(advice),
        "rates_picture": _rates_picture(advice),
    }


def _rates_picture(advice: Advice) -> Picture | None:
    """None where no rate is named."""
    if advice.best_rate is None:
        return None
    dots = " Marks are short trainings of this model, at the last loss of each." if advice.probed else ""
    yours = "" if advice.wanted_rate is None else " The dotted line is your learning rate."
    caption = (
        f"The band holds the good rates, and the bar the best one with its {percentage(advice.confidence, 0)} range."
        if advice.source == "probe"
        else "The bar is the usual rate with its range."
    )
    return Picture(svg=inlined(rates_picture(advice), "advice-rates"), caption=caption + dots + yours)


def _trainings(advice: Advice) -> tuple[ShortTraining, ...]:
    """Those without warm-up by rising rate, then those with one."""
    warmed = () if advice.warmup is None else advice.warmup.tried
    wanted = () if advice.wanted_training is None else (advice.wanted_training,)
    return (*sorted((*advice.probed, *wanted), key=lambda one: one.rate), *warmed)
