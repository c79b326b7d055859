"""How a ladder is drawn, and what of it stands in a study's data."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from normscope.measure import Sensitivity
from normscope.report.chart import Series
from normscope.report.svg import HUES, INK, house_style, to_svg

from .arms import Climbed
from .runs import Run

_ROW_INCHES, _EDGES_INCHES, _WIDTH_INCHES = 0.3, 1.5, 9.0
_DASHES = ((0, (1, 2)), (0, (4, 2)))


def series(label: str, hue: int, ladder: Sequence[Sequence[Run]], peak_lrs: Sequence[float]) -> Series:
    """The last loss over the rate: mean over the seeds of the ladder, with their range."""
    columns = [[run.final_nats for run in column] for column in zip(*ladder, strict=True)]
    return Series(
        label=label,
        kind="measured",
        hue=hue,
        x=list(peak_lrs),
        y=[sum(column) / len(column) for column in columns],
        low=[min(column) for column in columns],
        high=[max(column) for column in columns],
    )


def plain_ladder(ladder: Sequence[Sequence[Run]]) -> dict[str, Any]:
    """Of every run, a row a seed."""
    return {
        "ladder_nats": [[run.final_nats for run in row] for row in ladder],
        "ladder_finite": [[run.finite for run in row] for row in ladder],
    }


def plain_sensitivity(found: Sensitivity) -> dict[str, Any]:
    """With its interval, where it has one."""
    return {
        "sensitivity_nats": found.value,
        "sensitivity_low": None if math.isnan(found.low) else found.low,
        "sensitivity_high": None if math.isnan(found.high) else found.high,
    }


def endings_svg(
    rows: Mapping[str, tuple[Climbed, Climbed]], lines: Mapping[str, float], *, title: str, desc: str
) -> str:
    """The last losses of every seed at the best rate.

    rows: without warm-up and with it, by what stands beside them, from the bottom up. lines: one or two losses to
    compare with, by their names.
    """
    with house_style():
        figure = Figure(figsize=(_WIDTH_INCHES, _ROW_INCHES * len(rows) + _EDGES_INCHES), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        for number, (words, fill) in enumerate((("no warm-up", "none"), ("warm-up", HUES[0]))):
            x = [loss for arms in rows.values() for loss in arms[number].finals]
            y = [place for place, arms in enumerate(rows.values()) for _ in arms[number].finals]
            axes.plot(x, y, ls="", marker="o", ms=5.5, color=HUES[0], markerfacecolor=fill, label=words)
        for dash, (words, nats) in zip(_DASHES[: len(lines)], lines.items(), strict=True):
            axes.axvline(nats, color=INK, lw=1, ls=dash, label=words)
        axes.set_yticks(range(len(rows)), labels=list(rows))
        axes.set_xlabel("last validation loss, nats")
        figure.legend(loc="outside lower center", ncols=2 + len(lines))
        return to_svg(figure, title=title, desc=desc)
