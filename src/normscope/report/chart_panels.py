"""The pictures of curves over many updates and seeds: few points of each, and a chart as panels of
means.

Where a chart has more placements than there are hues, each has a panel of its own.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .chart import PLACEMENT, Panel, Series
from .svg import HUES

# S = seeds, U = updates, X = points of a curve

_CEILING = 1.5
"""The factor of the level above which losses in panels side by side are cut off: a diverged run
must not flatten them all.
"""
_MARGIN = 0.06
_LEAST_EXPONENT = -300
"""The least exponent of a logarithmic axis: below it doubles lose their digits."""
_MOST_POINTS = 60
"""About so many are drawn a curve: the lowest and the highest of every stretch."""
_MOST_NAMES = 4
"""The largest number of names by which curves that share a line are called."""


def kept(values_SU: NDArray[np.float64], most: int) -> list[int]:
    """Returns rising indices of about `most` points: the ends and, of every stretch, where any seed
    is lowest and highest.

    A seed's last finite value is kept with what follows it, because there its mean and its band
    change; so is the first point of a stretch's gap, which no seed has a value in. All are kept
    where there are no more than `most`.
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
    """Returns the mean over the seeds that have a value; NaN where none has, without the warning of
    `numpy.nanmean`.
    """
    here_SU = np.isfinite(values_SU)
    total_U, count_U = np.where(here_SU, values_SU, 0).sum(0), here_SU.sum(0)
    return np.where(count_U > 0, total_U / np.maximum(count_U, 1), np.nan)


def of_seeds(look: Series, x: Sequence[float], rows: Sequence[Sequence[float | None]]) -> Series:
    """Returns the curve of these rows of one a seed: the mean of those that have a value, in a band
    from lowest to highest.
    """
    values_SX = np.array(rows, dtype=np.float64).reshape(len(rows), len(x))
    here_SX = np.isfinite(values_SX)
    low = high = list[float | None]()
    if len(rows) > 1:
        # Where no seed has a value, both ends are infinite, which are none.
        low = [finite(value) for value in np.min(np.where(here_SX, values_SX, np.inf), axis=0)]
        high = [finite(value) for value in np.max(np.where(here_SX, values_SX, -np.inf), axis=0)]
    return replace(
        look,
        x=x,
        y=[finite(value) for value in seed_mean(values_SX)],
        low=low,
        high=high,
        rows=rows,
    )


def chart_panels(panel: Panel) -> list[Panel]:
    """Returns one panel with all curves that are shown, or one for each placement if these are more
    than the hues.

    The panels of placements have the same ends, and their variants are told by dash and marker.
    """
    shown = [one for one in panel.series if one.shown]
    groups: dict[str, list[Series]] = {}
    for one in shown:
        groups.setdefault(_group(one), []).append(one)
    if not too_many(groups):
        return [_few_points(panel, shown)]
    names = {one.label: one.label.removeprefix(_group(one)).removeprefix(", ") for one in shown}
    variants = {name: place for place, name in enumerate(dict.fromkeys(names.values()))}
    log = panel.log_y and panel.level is None
    panel = replace(panel, log_y=log, y_range=_common_ends(panel, shown, log=log))

    def by_variant(one: Series) -> Series:
        name = names[one.label]
        return replace(one, label=name or "runs", hue=-1, variant=variants[name])

    several = []
    for group, own in groups.items():
        curves = [by_variant(one) for one in own]
        several.append(_few_points(replace(panel, title=group), curves))
    return several


def too_many(groups: Collection[str]) -> bool:
    """Tells whether one picture would have to give two groups the same hue."""
    return len(groups) > len(HUES)


def _group(one: Series) -> str:
    return one.facets.get(PLACEMENT, one.label)


def _few_points(panel: Panel, shown: Sequence[Series]) -> Panel:
    """Curves that coincide are one, in ink where their hues differ; the level is one more."""
    alike: dict[tuple[object, ...], list[Series]] = {}
    for one in shown:
        alike.setdefault((tuple(one.x), tuple(map(tuple, one.rows)), one.variant), []).append(one)
    series = [_bundle(several) for several in alike.values()]
    if panel.level is not None and any(value is not None for one in series for value in one.y):
        x = [at for one in series for at in one.x]
        name, level = panel.level
        series.append(
            Series(label=name, kind="claimed", hue=-1, x=[min(x), max(x)], y=[level, level])
        )
    return replace(panel, series=series, level=None)


def _bundle(several: Sequence[Series]) -> Series:
    first, labels = several[0], list(dict.fromkeys(one.label for one in several))
    more = f" and {len(labels) - 1} others" if len(labels) > _MOST_NAMES else ""
    places = kept(np.array(first.rows, dtype=np.float64), _MOST_POINTS)
    look = replace(
        first,
        label=f"{labels[0]}{more}" if more else "; ".join(labels),
        hue=first.hue if len({one.hue for one in several}) == 1 else -1,
        further={},
        rows=(),
        x=(),
        y=(),
    )
    rows = []
    for row in first.rows:
        rows.append([row[i] for i in places])
    return of_seeds(look, [first.x[i] for i in places], rows)


def finite(value: float) -> float | None:
    """Returns the value, or None where it is not finite."""
    return float(value) if math.isfinite(value) else None


def _common_ends(panel: Panel, shown: Sequence[Series], *, log: bool) -> tuple[float, float] | None:
    values = [value for one in shown for row in one.rows for value in row if value is not None]
    if len(set(values)) < 2:
        return None
    low, high = min(values), max(values)
    if panel.level is not None:
        high = max(panel.level[1], min(high, _CEILING * panel.level[1]))
    if not low < high:
        return None
    if log:
        # By exponents: the quotient of what doubles hold may be beyond them.
        bottom, top = math.log10(low), math.log10(high)
        wider = (top - bottom) * _MARGIN
        ends = 10.0 ** max(bottom - wider, _LEAST_EXPONENT), 10.0 ** (top + wider)
    else:
        wider = (high - low) * _MARGIN
        ends = low - wider, high + wider
    return ends
