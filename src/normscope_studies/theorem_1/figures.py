"""The pictures and tables of the study of Theorem 1."""

from collections.abc import Iterator, Sequence

import numpy as np

from normscope.evidence.estimates import with_interval
from normscope.report.chart import Kind, Panel, Series

from ..engine.page import StudyFigure, StudyTable
from .claims import SHORT, Sweep, order_exponent

_INK, _GREEN, _PINK = -1, 2, 3


def figures(sweeps: Sequence[Sweep]) -> list[StudyFigure]:
    """Over depth, and over width for both kinds of output rows."""
    sides = list({sweep.side.title: sweep.side for sweep in sweeps}.values())
    deep = [_panel([s for s in sweeps if s.side is side and s.over == "blocks"]) for side in sides]
    wide = [
        _panel([s for s in sweeps if s.side is side and s.over == "width" and s.rows == rows])
        for rows in dict.fromkeys(sweep.rows for sweep in sweeps)
        for side in sides
    ]
    titles = "The last W₂'s gradient over depth", "The last W₂'s gradient over width"
    return [
        StudyFigure.of_panels(
            name="depth",
            title=titles[0],
            caption="Measured with its 95 % interval, predicted, and the bounds, which take ‖∂L/∂x‖ to be 1; of the "
            "paper there is its order with constant 1, and the bound with the constants of its proof.",
            panels=deep,
            told=titles[0],
            wide=True,
        ),
        StudyFigure.of_panels(
            name="width",
            title=titles[1],
            caption="Above with output rows of length 1, as the theorem needs them; below with rows from N(0, 1): "
            "‖∂L/∂x‖ grows as √(2d) and brings the gradient of W₂ to order d.",
            panels=wide,
            told=titles[1],
            wide=True,
        ),
    ]


def _panel(sweeps: Sequence[Sweep]) -> Panel:
    first = sweeps[0]
    where = f"d = {first.shapes[0][1]}" if first.over == "blocks" else f"{first.shapes[0][0]} blocks"
    return Panel(
        title=f"{first.side.title}, {where}" + (f", rows {first.rows}" if first.over == "width" else ""),
        xlabel="blocks L" if first.over == "blocks" else "width d",
        ylabel="‖∂L/∂W₂‖",
        series=list(_series(sweeps)),
        log_x=True,
        log_y=True,
    )


def _series(sweeps: Sequence[Sweep]) -> Iterator[Series]:
    def line(label: str, kind: Kind, hue: int, y: Sequence[float]) -> Series:
        return Series(label=label, kind=kind, hue=hue, x=first.x, y=y)

    first = sweeps[0]
    for hue, sweep in enumerate(sweeps):
        found = sweep.mean
        yield Series(
            label=f"measured, {sweep.name}",
            kind="measured",
            hue=hue,
            x=sweep.x,
            y=found.mean.tolist(),
            low=found.low.tolist(),
            high=found.high.tolist(),
        )
        if np.isfinite(sweep.predicted_X).all():
            yield line(f"predicted, {sweep.name}", "predicted", hue, sweep.predicted_X.tolist())
    yield line("paper's order, d√(ln d) or d√(ln d / L)", "claimed", _INK, first.bounds("paper_order").tolist())
    if first.rows == SHORT:
        yield line("paper's bound with its constants", "claimed", _PINK, first.bounds("paper_bound").tolist())
        yield line("corrected bound, O(√d) or O(√(d/L))", "claimed", _GREEN, first.bounds("corrected_bound").tolist())


def tables(sweeps: Sequence[Sweep]) -> list[StudyTable]:
    """Exponents first, then every sweep's values."""
    return [_exponents(sweeps), *(_values(sweep) for sweep in sweeps)]


def _exponents(sweeps: Sequence[Sweep]) -> StudyTable:
    def claimed(sweep: Sweep) -> float:
        return order_exponent(sweep) if sweep.over == "width" else sweep.side.depth_exponent

    def expected(sweep: Sweep) -> float:
        if sweep.over == "blocks":
            return sweep.side.depth_exponent
        return 0.5 if sweep.rows == SHORT else 1.0

    return StudyTable(
        title="Exponents of the gradient, fitted seed by seed (over depth: the deeper half)",
        columns=["placement", "over", "output rows", "sequence", "measured", "paper", "corrected"],
        rows=[
            [s.side.title, s.over, s.rows, s.name, with_interval(s.exponent), claimed(s), expected(s)] for s in sweeps
        ],
    )


def _values(sweep: Sweep) -> StudyTable:
    found = sweep.mean
    lines = [sweep.bounds("corrected_bound"), sweep.bounds("paper_order"), sweep.bounds("paper_bound")]
    columns = [found.mean, found.half_width, sweep.predicted_X, *lines]
    numbers = np.where(np.isfinite(columns), columns, np.nan).T.tolist()
    return StudyTable(
        title=f"{sweep.side.title} over {sweep.over}, {sweep.name}, rows {sweep.rows}",
        columns=[sweep.over, "measured", "±", "predicted", "corrected bound", "paper's order", "paper's bound"],
        rows=[
            [x, *(value if np.isfinite(value) else None for value in row)]
            for x, row in zip(sweep.x, numbers, strict=True)
        ],
    )
