"""The hidden state and gradients over depth, drawn beside their predictions."""

from collections.abc import Mapping, Sequence

import numpy as np

from normscope.placement import named
from normscope.report.chart import Panel

from ..engine.claims import Compared, beside_prediction
from ..engine.page import StudyFigure, measured
from .claims import MATRIX_NAMES, PlacementCurves, root_of
from .config import ModelCase

_MOVES_BY = 0.1
"""A predicted q that leaves 1 by more is worth a curve in the figure."""
_MOST_DRAWN = 6


def figures(cases: Sequence[ModelCase], found: Mapping[str, PlacementCurves]) -> list[StudyFigure]:
    """The stream of the deep placements that move, and of the same in others; the deep ones'
    gradients.
    """
    deep = cases[0]
    encoders = {name: found[deep.name][name]["encoder"] for name in deep.placements}
    moving = [name for name, one in encoders.items() if _moves(one["q"])][:_MOST_DRAWN]
    moving = moving or [deep.placements[0]]

    def panel_of(case: ModelCase, kind: str) -> Panel:
        curves = found[case.name]
        own = {name: curves[name][kind]["q"] if name in curves else None for name in moving}
        return _streams(case, own)

    streams = [
        panel_of(deep, "encoder"),
        _deviations({named(name).title: encoders[name]["q"] for name in moving}),
        panel_of(cases[2], "encoder"),
        panel_of(cases[-1], "decoder"),
    ]
    drawn = "Mean over draws with a band of two standard errors, and the prediction."
    figure = StudyFigure.of_panels(
        name="hidden_state",
        title="Size of the hidden state over depth",
        caption=f"{drawn} {_not_drawn('their hidden state stays at 1', deep, moving)}",
        panels=[panel for panel in streams if panel.series],
    )
    loud = [name for name, one in encoders.items() if _is_loud(one)]
    if not loud:
        return [figure]
    drawn = (
        "Root mean square of the norms over draws, which is what is predicted, with a band of two "
        "standard errors, and the prediction."
    )
    gradients = StudyFigure.of_panels(
        name="gradients",
        title=f"Gradient norms over depth: {deep.title.lower()}",
        caption=f"{drawn} {_not_drawn('every gradient is 0 at first', deep, loud)}",
        panels=[_gradients(name, encoders[name]) for name in loud],
        told="Gradient norms over depth",
    )
    return [figure, gradients]


def _moves(q: Compared) -> bool:
    return bool(np.abs(q.predicted - 1).max() > _MOVES_BY)


def _is_loud(stack: Mapping[str, Compared]) -> bool:
    """Tells whether any gradient is predicted that is not 0."""
    return any(stack[matrix].predicted.any() for matrix in MATRIX_NAMES)


def _not_drawn(why: str, case: ModelCase, drawn: Sequence[str]) -> str:
    titles = ", ".join(named(name).title for name in case.placements if name not in drawn)
    return f"Not drawn, as {why}: {titles}." if titles else ""


def _streams(case: ModelCase, curves: Mapping[str, Compared | None]) -> Panel:
    """Draws the streams of a case; None stands for placements that it has not: the others keep
    their hues.
    """
    series = []
    for hue, (name, q) in enumerate(curves.items()):
        series += beside_prediction(named(name).title, hue, q) if q else []
    title = case.title
    if case.model.stack == "encoder-decoder":
        title += ", decoder"
    return Panel(
        title=title, xlabel="completed blocks", ylabel="E‖x_l‖² / d", series=series, log_y=True
    )


def _deviations(curves: Mapping[str, Compared]) -> Panel:
    series = []
    for hue, (title, q) in enumerate(curves.items()):
        depths = range(len(q.measured))
        off_percent, band_percent = 100 * q.deviation, 200 * q.relative_error
        series.append(measured(f"{title}, measured", hue, depths, off_percent, band_percent))
    return Panel(
        title="The same, off the prediction",
        xlabel="completed blocks",
        ylabel="per cent",
        series=series,
    )


def _gradients(name: str, stack: Mapping[str, Compared]) -> Panel:
    series = []
    for hue, (matrix, letter) in enumerate(MATRIX_NAMES.items()):
        series += beside_prediction(letter, hue, stack[root_of(matrix)], first=1)
    return Panel(
        title=named(name).title, xlabel="block", ylabel="‖∂L/∂W‖", series=series, from_zero=True
    )
