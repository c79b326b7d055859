"""Pictures of studies: curves by arm with a band, points, and ladders of rates; any other is panels of one's own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from normscope.report.chart import Kind, Panel, Series

from .claims import Compared
from .ladders import Ladder


def measured(label: str, hue: int, x: ArrayLike, mean: ArrayLike, half_width: ArrayLike) -> Series:
    """Points at the means, in a band of mean ± half width; all (X,)."""
    places, y, half = _floats(x), _floats(mean), _floats(half_width)
    low, high = ([value + sign * by for value, by in zip(y, half, strict=True)] for sign in (-1, 1))
    return Series(label=label, kind="measured", hue=hue, x=places, y=y, low=low, high=high)


def ranged(label: str, hue: int, x: Sequence[float], rows: Sequence[Sequence[float]]) -> Series:
    """Points at the means over rows of one a seed, (S, X), in a band from the lowest to the highest."""
    columns = list(zip(*rows, strict=True))
    return Series(
        label=label,
        kind="measured",
        hue=hue,
        x=list(x)[: len(columns)],
        y=[sum(column) / len(column) for column in columns],
        low=[min(column) for column in columns],
        high=[max(column) for column in columns],
    )


def line(label: str, kind: Kind, hue: int, x: ArrayLike, y: ArrayLike | float) -> Series:
    """y: (X,), or one value for all places."""
    places = _floats(x)
    values = [float(y)] * len(places) if isinstance(y, int | float) else _floats(y)
    return Series(label=label, kind=kind, hue=hue, x=places, y=values)


def beside_prediction(label: str, hue: int, curve: Compared, *, first: int = 0) -> list[Series]:
    """What was measured over draws, in a band of two standard errors, and its prediction; first: what x starts at."""
    x = range(first, first + len(curve.measured))
    return [
        measured(f"{label}, measured", hue, x, curve.measured, 2 * curve.error),
        line(f"{label}, predicted", "predicted", hue, x, curve.predicted),
    ]


def curves(
    title: str,
    arms: Mapping[str, Sequence[Sequence[float]]],
    *,
    x: Sequence[float],
    xlabel: str,
    ylabel: str,
    hues: Mapping[str, int] | None = None,
    beside: Sequence[Series] = (),
    **axes: Any,
) -> Panel:
    """A curve for each arm, from rows of one a seed, (S, X): the mean in the range of the seeds.

    hues: by label; without any the arms are counted. beside: drawn first, such as what was predicted. axes: as `Panel`
    has them.
    """
    hues = hues or {label: hue for hue, label in enumerate(arms)}
    series = [*beside, *(ranged(label, hues[label], x, rows) for label, rows in arms.items())]
    return Panel(title=title, xlabel=xlabel, ylabel=ylabel, series=series, **axes)


def scatter(
    title: str,
    points: Mapping[str, Sequence[tuple[float, float]]],
    *,
    xlabel: str,
    ylabel: str,
    beside: Sequence[Series] = (),
    **axes: Any,
) -> Panel:
    """Points (x, y) by the label of their hue; beside: drawn first, such as the line on which they would lie."""
    series = [
        Series(label=label, kind="points", hue=hue, x=[x for x, _ in places], y=[y for _, y in places])
        for hue, (label, places) in enumerate(points.items())
    ]
    return Panel(title=title, xlabel=xlabel, ylabel=ylabel, series=[*beside, *series], **axes)


def rates(title: str, ladders: Mapping[str, Ladder]) -> Panel:
    """The last loss over the rate of every ladder: mean over its seeds, with their range."""
    series = [ranged(label, hue, one.peak_lrs, one.nats) for hue, (label, one) in enumerate(ladders.items())]
    return Panel(title=title, xlabel="peak rate", ylabel="last validation loss, nats", series=series, log_x=True)


def _floats(values: ArrayLike) -> list[float]:
    return [float(value) for value in np.asarray(values, dtype=np.float64)]
