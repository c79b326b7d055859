"""Figures and tables of the study of amplification."""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.chart import Panel, Series
from normscope.report.words import significant

from ..engine.estimates import Floats
from ..engine.page import StudyFigure, StudyTable, line, measured, table
from .claims import (
    ORDERS,
    UPDATE_TITLES,
    DepthGrowth,
    Spectra,
    near_one,
    vanished,
)
from .config import AmplificationConfig
from .measure import MATRICES


def figures(
    config: AmplificationConfig, grown: Sequence[DepthGrowth], spectra: Spectra
) -> list[StudyFigure]:
    """The output's change over depth, the stream's within the deepest stacks, and Jacobians."""
    of_matrices = [one for one in grown if one.moved == MATRICES]
    made = []
    if of_matrices:
        made = [_growth_figure(config, of_matrices), _stream_figure(config, of_matrices)]
    return [*made, _jacobian_figure(config, spectra)]


def _growth_figure(config: AmplificationConfig, grown: Sequence[DepthGrowth]) -> StudyFigure:
    panels = []
    for placement in config.placements:
        series = []
        for hue, one in enumerate(one for one in grown if one.placement == placement):
            series += _over_depth(one, hue)
        if placement in ORDERS and series:
            order = ORDERS[placement]
            claimed = series[0].y[0] * order.growth(config.depths)  # type: ignore[operator]
            series.append(line(f"O({order.words})", "claimed", -1, config.depths, claimed))
        panels.append(
            Panel(
                title=named(placement).title,
                xlabel="blocks",
                ylabel="E‖δy‖² / d at a rate of 1",
                series=series,
                log_x=True,
                log_y=True,
            )
        )
    return StudyFigure.of_panels(
        name="growth",
        title="The output's change by one update over the depth",
        caption=(
            "Means over draws with a band of two standard errors, at most half the mean, the "
            "prediction, and the order that a paper states, through the first measured point."
        ),
        panels=panels,
        told="The output's change over depth, a panel a placement, a line an update",
    )


def _over_depth(one: DepthGrowth, hue: int) -> list[Series]:
    found = [_banded(f"{one.title}, measured", hue, one.depths, one.output)]
    if one.predicted is not None:
        found.append(line(f"{one.title}, predicted", "predicted", hue, one.depths, one.predicted))
    return found


def _banded(label: str, hue: int, x: Sequence[float], draws: Floats) -> Series:
    """Means over draws, (draws, X), in a band of two standard errors that a logarithmic axis can
    show: where it would come near 0, it ends at half the mean.
    """
    mean, error = draws.mean(0), draws.std(0, ddof=1) / math.sqrt(len(draws))
    return measured(label, hue, x, mean, np.minimum(2 * error, mean / 2))


def _stream_figure(config: AmplificationConfig, grown: Sequence[DepthGrowth]) -> StudyFigure:
    panels = []
    for update in config.updates:
        series = []
        known = [one for one in grown if one.update == update and one.predicted is not None]
        for hue, one in enumerate(known):
            assert one.predicted_stream is not None
            blocks, title = range(1, config.depths[-1] + 1), named(one.placement).title
            series += [
                _banded(f"{title}, measured", hue, blocks, one.stream),
                line(f"{title}, predicted", "predicted", hue, blocks, one.predicted_stream),
            ]
        panels.append(
            Panel(
                title=UPDATE_TITLES[update],
                xlabel="completed blocks",
                ylabel="E‖δx_l‖² / d at a rate of 1",
                series=series,
                log_y=True,
            )
        )
    return StudyFigure.of_panels(
        name="stream",
        title="The stream's change by one update, block by block",
        caption=(
            f"Stacks of {config.depths[-1]} blocks: means over draws with a band of two standard "
            "errors, at most half the mean, and the prediction from the formula alone."
        ),
        panels=[panel for panel in panels if panel.series],
    )


QUANTILES = (0.05, 0.5, 0.95)
"""The quantiles of the singular values, of which the middle one is drawn in a band of the
others.
"""


def _jacobian_figure(config: AmplificationConfig, spectra: Spectra) -> StudyFigure:
    return StudyFigure.of_panels(
        name="jacobian",
        title="Singular values of the input-output Jacobian before training",
        caption=(
            "The median, in a band from the twentieth part to that of nineteen twentieths; means "
            f"over draws. What is below {_LEAST:g} is drawn there."
        ),
        panels=[
            Panel(
                title=named(placement).title,
                xlabel="blocks",
                ylabel="singular value",
                series=[_spectrum(config, placement, hue, spectra)],
                log_x=True,
                log_y=True,
                y_range=(_LEAST / 2, _MOST),
            )
            for hue, placement in enumerate(config.placements)
        ],
        told="Singular values over depth, a panel a placement",
    )


def _spectrum(config: AmplificationConfig, placement: str, hue: int, spectra: Spectra) -> Series:
    means = []
    for blocks in config.jacobian_depths:
        draws = [np.quantile(one, QUANTILES) for one in spectra[placement, blocks]]
        means.append(np.mean(draws, 0))
    low, middle, high = np.clip(np.transpose(means), _LEAST, None).tolist()
    return Series(
        label=named(placement).title,
        kind="measured",
        hue=hue,
        x=[float(blocks) for blocks in config.jacobian_depths],
        y=middle,
        low=low,
        high=high,
    )


_LEAST, _MOST = 1e-8, 10.0
"""The ends of the axis: far below float32's precision, and above what any stack was seen to do."""


def tables(
    config: AmplificationConfig, grown: Sequence[DepthGrowth], spectra: Spectra
) -> list[StudyTable]:
    """Exponents beside what is predicted and stated, and what became of singular values."""
    return [_exponents(config, grown), _jacobians(spectra)]


def _exponents(config: AmplificationConfig, grown: Sequence[DepthGrowth]) -> StudyTable:
    """A row a placement and what is moved, with a column for each update."""
    by_arm = {(one.placement, one.moved, one.update): one for one in grown}

    def cell_of(update: str) -> Callable[[tuple[str, str]], Estimate]:
        return lambda row: by_arm[*row, update].exponent

    def predicted_of(update: str) -> Callable[[tuple[str, str]], float | None]:
        return lambda row: by_arm[*row, update].predicted_exponent

    columns: list[tuple[str, Callable[[tuple[str, str]], Any]]] = [
        ("placement", lambda row: named(row[0]).title),
        ("moved", lambda row: row[1]),
    ]
    for update in config.updates:
        columns += [
            (UPDATE_TITLES[update], cell_of(update)),
            ("predicted", predicted_of(update)),
        ]
    columns.append(("stated", lambda row: _stated(row[0], config)))
    return table(
        "The output's change goes as the depth to this power",
        product(config.placements, config.moves),
        columns,
    )


def _stated(placement: str, config: AmplificationConfig) -> str:
    if placement not in ORDERS:
        return ""
    order = ORDERS[placement]
    return f"{order.exponent(config.depths):.2f}: O({order.words})"


def _jacobians(spectra: Spectra) -> StudyTable:
    """A row a placement and depth; means over draws."""

    def mean(of: Callable[[Floats], float]) -> Callable[[tuple[str, int]], str]:
        return lambda row: significant(float(np.mean([of(one) for one in spectra[row]])), 3)

    return table(
        "Singular values of the Jacobian",
        spectra,
        [
            ("placement", lambda row: named(row[0]).title),
            ("blocks", lambda row: row[1]),
            ("largest", mean(lambda values: float(values[0]))),
            ("median", mean(lambda values: float(np.median(values)))),
            ("smallest", mean(lambda values: float(values[-1]))),
            ("share within a factor of 2 of 1", mean(near_one)),
            ("share below 2⁻²³ of the largest", mean(vanished)),
        ],
    )
