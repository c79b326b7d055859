"""What pictures of runs share: a configuration's look, the points that are drawn, and seeds as line, band and cross."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from .comparison.contents import Name, RunCurve
from .svg import HUES, INK
from .words import learning_rate, significant

# S = seeds, U = updates


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


# S = seeds, U = updates or blocks
_VARIANTS: tuple[tuple[Any, str], ...] = (
    ("-", "o"), ((0, (4, 1.6)), "s"), ((0, (1.2, 1.4)), "^"), ((0, (5, 1.5, 1.2, 1.5)), "D"), ((0, (9, 2)), "v"),
)  # fmt: skip
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
POINTS = 160
"""About so many points are drawn a curve: the lowest and the highest of every stretch; more make the page heavy."""
_ALL_POINTS, _LEAST_POINTS = 720, 24
"""Points that all curves of a picture share, and the least that one of them has."""
_LOG_RATIO = 20.0
"""Largest over smallest value from which a loss is drawn on a log scale: a diverged run must not flatten the rest."""


@dataclass(frozen=True, slots=True)
class Style:
    """How one configuration is drawn in every picture."""

    color: str
    dash: Any
    marker: str


def too_many(names: Iterable[Name]) -> bool:
    """Whether one picture would have to give two groups the same hue."""
    return len({name.group for name in names}) > len(HUES)


def styles_for(names: Iterable[Name]) -> dict[Name, Style]:
    """Hue by group, dash and marker by variant, both in order of first appearance.

    Where there are more groups than hues, each group has a panel or a row of its own, which tells it, and all are ink.
    """
    known = list(dict.fromkeys(names))
    groups = list(dict.fromkeys(name.group for name in known))
    variants = list(dict.fromkeys(name.variant for name in known))
    crowded = too_many(known)
    styles = {}
    for name in known:
        variant = variants.index(name.variant)
        color = INK if crowded else HUES[groups.index(name.group)]
        styles[name] = Style(color, *_VARIANTS[variant % len(_VARIANTS)])
    return styles


def log_scale(axes: Axes) -> None:
    """Plain numbers at 1, 2, 5 within three decades, powers of ten beyond."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 1e3:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power_of_ten(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def rate_scale(axes: Axes) -> None:
    """Learning rates along x, on a log scale: at 1, 2, 5 within a decade, at 1, 3 within two, powers of ten beyond."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    decades = np.log10(high / low)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 1.2 else (1, 3) if decades < 2.2 else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: learning_rate(value, 2)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _power_of_ten(value: float) -> str:
    """ "10⁻⁵" in letters of any font: a formula would be drawn letter by letter."""
    return "10" + str(round(np.log10(value))).translate(_RAISED) if value > 0 else ""


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


def points_each(curves: int) -> int:
    """Points drawn a curve where one picture has so many."""
    return max(_LEAST_POINTS, min(POINTS, _ALL_POINTS // max(1, curves)))


def reaches_far(curves: Sequence[RunCurve], *, log: bool = False) -> bool:
    """Whether curves are drawn on a log scale: where all values allow it, and they reach far or `log` asks for it."""
    finite = [v for curve in curves for row in curve.seeds_values for v in row if np.isfinite(v)]
    return bool(finite) and min(finite) > 0 and (log or max(finite) / min(finite) > _LOG_RATIO)


def draw_line(
    axes: Axes,
    label: str,
    x: Sequence[float],
    values_SU: NDArray[np.float64],
    look: Style,
    first_marker: int = 0,
    points: int = POINTS,
) -> Line2D:
    places = kept(values_SU, points)
    x_U, values_SU = np.asarray(x)[places], values_SU[:, places]
    every = max(1, len(places) // 8) if len(places) > 16 else 1
    if values_SU.shape[0] > 1:
        here_SU = np.isfinite(values_SU)
        low_U = np.where(here_SU, values_SU, np.inf).min(0)
        high_U = np.where(here_SU, values_SU, -np.inf).max(0)
        axes.fill_between(x_U, low_U, high_U, where=here_SU.any(0), color=look.color, alpha=0.18, lw=0)
    # Markers start at different points, so that curves on top of each other can still be seen apart.
    offset = (2 * first_marker) % every if every > 1 else 0
    (line,) = axes.plot(
        x_U,
        seed_mean(values_SU),
        label=label,
        color=look.color,
        ls=look.dash,
        marker=look.marker,
        markevery=(offset, every),
    )
    return line


def draw_cross(axes: Axes, updates: Sequence[int], row: Sequence[float], color: str) -> bool:
    """Marks the last finite value of a run that a non-finite one stopped, or the top edge where there is none."""
    if not row or np.isfinite(row[-1]):
        return False
    finite = [i for i, value in enumerate(row) if np.isfinite(value)]
    x, y = (updates[finite[-1]], row[finite[-1]]) if finite else (updates[0], 1.0)
    where = axes.transData if finite else axes.get_xaxis_transform()
    axes.plot([x], [y], marker="x", ms=11, mew=3, color=color, ls="", transform=where, clip_on=False, zorder=4)
    return True


def described(curves: Sequence[RunCurve]) -> str:
    """The picture in words: the value and the update with which each curve starts and ends."""
    words = []
    for curve in curves:
        means = seed_mean(seed_table(curve.seeds_values, len(curve.updates)))
        known = np.flatnonzero(np.isfinite(means))
        if not known.size:
            words.append(f"{curve.name}: no finite value")
            continue
        first, last = known[0], known[-1]
        ends = [f"{short(means[i])} at update {curve.updates[i]}" for i in (first, last)]
        words.append(f"{curve.name}: " + " to ".join(ends))
    return ". ".join(words)


def short(value: float) -> str:
    """A value for the words that describe a picture; "none" for what is not finite."""
    return significant(value) if np.isfinite(value) else "none"
