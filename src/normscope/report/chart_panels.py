"""What pictures draw of curves over many updates and seeds: few points of each, and a chart as panels of means.

Where a chart has more placements than there are hues, each has a panel of its own.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .chart import PLACEMENT, Chart, ChartLine, CurveSwitch, Panel, Series
from .svg import HUES

# S = seeds, U = updates, X = points of a curve

_CEILING = 1.5
"""In panels side by side losses above so many times the level are cut off: a diverged run must not flatten them all."""
_MARGIN = 0.06
_MOST_POINTS = 60
"""About so many are drawn a curve: the lowest and the highest of every stretch."""
_MOST_NAMES = 4
"""Of curves that share a line, by which it is called."""


def kept(values_SU: NDArray[np.float64], most: int) -> list[int]:
    """Rising indices of about `most` points: the ends and, of every stretch, where any seed is lowest and highest.

    A seed's last finite value is kept with what follows it, because there its mean and its band change; so is the
    first point of a stretch's gap, which no seed has a value in. All are kept where there are no more than `most`.
    """
    seeds, updates = values_SU.shape
    if updates <= most or not seeds:
        return list(range(updates))
    here_SU = np.isfinite(values_SU)
    found = {0, updates - 1}
    for end in (int(np.flatnonzero(row)[-1]) for row in here_SU if row.any()):
        found |= {end, min(end + 1, updates - 1)}
    low_U = np.where(here_SU, values_SU, np.inf).min(0)
    high_U = np.where(here_SU, values_SU, -np.inf).max(0)
    empty_U = np.asarray(here_SU.sum(0) == 0)
    for stretch in np.array_split(np.arange(updates), max(1, most // 2)):
        empty = empty_U[stretch]
        if empty.any():
            found.add(int(stretch[empty.argmax()]))
        if not empty.all():
            found |= {int(stretch[low_U[stretch].argmin()]), int(stretch[high_U[stretch].argmax()])}
    return sorted(found)


def seed_table(rows: Sequence[Sequence[float]], length: int) -> NDArray[np.float64]:
    """(S, U) with NaN for whatever is not finite or not there."""
    table_SU = np.full((len(rows), length), np.nan)
    for table_U, row in zip(table_SU, rows, strict=True):
        table_U[: len(row)] = row
    return np.where(np.isfinite(table_SU), table_SU, np.nan)


def seed_mean(values_SU: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the seeds that have a value; NaN where none has, without the warning of `numpy.nanmean`."""
    here_SU = np.isfinite(values_SU)
    total_U, count_U = np.where(here_SU, values_SU, 0).sum(0), here_SU.sum(0)
    return np.where(count_U > 0, total_U / np.maximum(count_U, 1), np.nan)


def chart_panels(chart: Chart, arms: Sequence[CurveSwitch]) -> list[Panel]:
    """One panel with the curves of all arms that are on, or one for each placement if these are more than the hues.

    The panels of placements have the same ends, and their variants are told by dash and marker.
    """
    lines = [line for line in chart.lines if arms[line.arm].shown]
    groups: dict[str, list[ChartLine]] = {}
    for line in lines:
        groups.setdefault(_group(arms[line.arm]), []).append(line)
    if not too_many(groups):
        looks = {line.arm: (arms[line.arm].label, arms[line.arm].hue, arms[line.arm].variant) for line in lines}
        return [_chart_panel(chart, chart.title, lines, looks, log_y=chart.log_y, ends=chart.y_range)]
    names = {i: arm.label.removeprefix(_group(arm)).removeprefix(", ") for i, arm in enumerate(arms)}
    variants = list(dict.fromkeys(names[line.arm] for line in lines))
    looks = {line.arm: (names[line.arm] or "runs", -1, variants.index(names[line.arm])) for line in lines}
    log = chart.log_y and chart.level is None
    ends = _common_ends(chart, lines, log=log)
    return [_chart_panel(chart, group, own, looks, log_y=log, ends=ends) for group, own in groups.items()]


def too_many(groups: Collection[str]) -> bool:
    """Whether one picture would have to give two groups the same hue."""
    return len(groups) > len(HUES)


def _group(arm: CurveSwitch) -> str:
    return arm.facets.get(PLACEMENT, arm.label)


def _chart_panel(
    chart: Chart,
    title: str,
    lines: Sequence[ChartLine],
    looks: Mapping[int, tuple[str, int, int]],
    *,
    log_y: bool,
    ends: tuple[float, float] | None,
) -> Panel:
    """Curves that coincide are one, in ink where their hues differ; looks: label, hue and variant by arm."""
    alike: dict[tuple[Any, ...], list[ChartLine]] = {}
    for line in lines:
        same = tuple(map(tuple, (next(iter(line.over.by_name.values())), *line.rows)))
        alike.setdefault((same, looks[line.arm][2]), []).append(line)
    series = [_mean_and_range(several, looks) for several in alike.values()]
    if chart.level is not None and any(value is not None for one in series for value in one.y):
        x = [at for one in series for at in one.x]
        name, level = chart.level
        series.append(Series(label=name, kind="claimed", hue=-1, x=[min(x), max(x)], y=[level, level]))
    return Panel(
        title=title,
        xlabel=chart.xlabel,
        ylabel=chart.ylabel,
        series=series,
        log_x=chart.log_x,
        log_y=log_y,
        y_range=ends,
        ticks=chart.ticks,
        crossed=chart.crossed,
    )


def _mean_and_range(lines: Sequence[ChartLine], looks: Mapping[int, tuple[str, int, int]]) -> Series:
    """The mean over the seeds that have a value, in a band from the lowest to the highest."""
    line, several = lines[0], [looks[line.arm] for line in lines]
    labels = list(dict.fromkeys(label for label, _, _ in several))
    more = f" and {len(labels) - 1} others" if len(labels) > _MOST_NAMES else ""
    values_SX = np.array(line.rows, dtype=np.float64)
    places = kept(values_SX, _MOST_POINTS)
    x, values_SX = next(iter(line.over.by_name.values())), values_SX[:, places]
    here_SX = np.isfinite(values_SX)
    low = high = list[float | None]()
    if len(values_SX) > 1:
        low = [_finite(value) for value in np.where(here_SX, values_SX, np.inf).min(0)]
        high = [_finite(value) for value in np.where(here_SX, values_SX, -np.inf).max(0)]
    return Series(
        label=f"{labels[0]}{more}" if more else "; ".join(labels),
        kind=line.kind,
        hue=several[0][1] if len({hue for _, hue, _ in several}) == 1 else -1,
        variant=several[0][2],
        x=[x[i] for i in places],
        y=[_finite(value) for value in seed_mean(values_SX)],
        low=low,
        high=high,
        crosses=line.crosses,
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _common_ends(chart: Chart, lines: Sequence[ChartLine], *, log: bool) -> tuple[float, float] | None:
    values = [value for line in lines for row in line.rows for value in row if value is not None]
    if len(set(values)) < 2:
        return None
    low, high = min(values), max(values)
    if chart.level is not None:
        high = max(chart.level[1], min(high, _CEILING * chart.level[1]))
    if log:
        wider = (high / low) ** _MARGIN
        return low / wider, high * wider
    wider = (high - low) * _MARGIN
    return low - wider, high + wider
