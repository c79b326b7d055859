"""Figures and tables of the study of the hidden state."""

from collections.abc import Mapping, Sequence

import numpy as np

from normscope.placement import named
from normscope.report.chart import Panel, Series

from ..engine.deviation import Compared, spread_of
from ..engine.figures import line, measured
from ..engine.page import StudyFigure, StudyTable
from .config import Case

MATRIX_NAMES = {"value": "W_V", "ffn_in": "W₁", "ffn_out": "W₂"}
Curves = dict[str, dict[str, dict[str, Compared]]]
"""By placement, stack ("encoder" or "decoder"), and what: q, or a matrix's gradient."""


def root_of(matrix: str) -> str:
    """The name of the root mean square of a matrix's gradient norms; the matrix's own is that of their mean."""
    return f"{matrix}_root_mean_square"


_MOVES_BY = 0.1
"""A predicted q that leaves 1 by more is worth a curve in the figure."""


def figures(cases: Sequence[Case], found: Mapping[str, Curves]) -> list[StudyFigure]:
    deep, pair = cases[0], cases[-1]
    moving = [name for name in deep.placements if _moves(found[deep.name][name]["encoder"]["q"])][:6] or [
        deep.placements[0]
    ]
    hues = {name: hue for hue, name in enumerate(dict.fromkeys((*moving, *pair.placements)))}
    panels = [
        _stream_panel(deep, found[deep.name], moving, hues, "encoder"),
        _deviation_panel(deep, found[deep.name], moving, hues),
    ]
    for case, kind in ((cases[2], "encoder"), (pair, "decoder")):
        shown = [name for name in moving if name in found[case.name]]
        if shown:
            panels.append(_stream_panel(case, found[case.name], shown, hues, kind))
    still = ", ".join(named(name).title for name in deep.placements if name not in moving)
    title = "Size of the hidden state over depth"
    figures = [
        StudyFigure.of_panels(
            name="hidden_state",
            title=title,
            caption="Mean over draws with a band of two standard errors, and the prediction. "
            + (f"Not drawn, as their hidden state stays at 1: {still}." if still else ""),
            panels=panels,
            told=title,
            wide=True,
        )
    ]
    loud = [name for name in deep.placements if _has_gradient(found[deep.name][name]["encoder"])]
    if loud:
        title = "Gradient norms over depth"
        silent = ", ".join(named(name).title for name in deep.placements if name not in loud)
        figures.append(
            StudyFigure.of_panels(
                name="gradients",
                title=f"{title}: {deep.title.lower()}",
                caption="Root mean square of the norms over draws, which is what is predicted, with a band of two "
                "standard errors, and the prediction. "
                + (f"Not drawn, as every gradient is 0 at first: {silent}." if silent else ""),
                panels=[_gradient_panel(name, found[deep.name][name]) for name in loud],
                told=title,
                wide=True,
            )
        )
    return figures


def _moves(q: Compared) -> bool:
    return bool(np.abs(q.predicted - 1).max() > _MOVES_BY)


def _has_gradient(stack: Mapping[str, Compared]) -> bool:
    return any(bool(stack[matrix].predicted.any()) for matrix in MATRIX_NAMES)


def _pair(label: str, curve: Compared, hue: int, first: int) -> list[Series]:
    depths = range(first, first + len(curve.measured))
    return [
        measured(f"{label}, measured", hue, depths, curve.measured, 2 * curve.error),
        line(f"{label}, predicted", "predicted", hue, depths, curve.predicted),
    ]


def _stream_panel(case: Case, curves: Curves, names: Sequence[str], hues: Mapping[str, int], kind: str) -> Panel:
    series = [s for name in names for s in _pair(named(name).title, curves[name][kind]["q"], hues[name], 0)]
    of = "decoder" if case.model.stack == "encoder-decoder" else ""
    return Panel(
        title=f"{case.title}{', ' + of if of else ''}",
        xlabel="completed blocks",
        ylabel="E‖x_l‖² / d",
        series=series,
        log_y=True,
    )


def _deviation_panel(case: Case, curves: Curves, names: Sequence[str], hues: Mapping[str, int]) -> Panel:
    series = []
    for name in names:
        q = curves[name]["encoder"]["q"]
        off, error = 100 * q.deviation, 200 * q.relative_error
        series.append(measured(f"{named(name).title}, measured", hues[name], range(len(off)), off, error))
    return Panel(title="The same, off the prediction", xlabel="completed blocks", ylabel="per cent", series=series)


def _gradient_panel(name: str, stacks: Mapping[str, Mapping[str, Compared]]) -> Panel:
    series = [
        s for hue, m in enumerate(MATRIX_NAMES) for s in _pair(MATRIX_NAMES[m], stacks["encoder"][root_of(m)], hue, 1)
    ]
    return Panel(title=named(name).title, xlabel="block", ylabel="‖∂L/∂W‖", series=series, from_zero=True)


def tables(cases: Sequence[Case], found: Mapping[str, Curves]) -> list[StudyTable]:
    deep = cases[0]
    columns = ["placement", "q measured", "predicted", "q off by %", "± s.e."]
    rows: list[list[str | float | None]] = []
    for name, stacks in found[deep.name].items():
        row = _q_cells(stacks["encoder"]["q"])
        for matrix in MATRIX_NAMES:
            one = spread_of({name: [stacks["encoder"][root_of(matrix)]]}, limit_percent=1.0)
            row += [one.largest, one.standard_error]
        rows.append([named(name).title, *row])
    gradient_columns = [c for m in MATRIX_NAMES for c in (f"{MATRIX_NAMES[m]} off by %", "± s.e.")]
    tables = [
        StudyTable(
            title=f"{deep.title}: q at the last depth, and the largest deviations",
            columns=columns + gradient_columns,
            rows=rows,
        )
    ]
    for case in cases[1:]:
        many = case.model.stack == "encoder-decoder"
        tables.append(
            StudyTable(
                title=f"{case.title}: q at the last depth, and its largest deviation",
                columns=["placement", "stack", *columns[1:]] if many else columns,
                rows=[
                    [named(name).title, *([kind] if many else []), *_q_cells(stack["q"])]
                    for name, stacks in found[case.name].items()
                    for kind, stack in stacks.items()
                ],
            )
        )
    return tables


def _q_cells(q: Compared) -> list[str | float | None]:
    one = spread_of({"": [q]}, limit_percent=1.0)
    return [float(q.measured[-1]), float(q.predicted[-1]), one.largest, one.standard_error]
