"""One chart as plain values: curves, their axes, and what a page lets its readers switch on and off.

`chart_svg` draws it as a picture, `explorer` writes it for the script of a page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["measured", "predicted", "claimed", "points"]
"""How a curve was come by, and so how it looks: a line, dashed, dotted, or points without an order."""


PLACEMENT = "Placement"
"""The facet by which a picture has panels where there are too many curves for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSwitch:
    """What is switched on and off as one: a configuration, or a curve of a figure."""

    label: str
    facets: Mapping[str, str] = field(default_factory=dict)
    """By what a reader may choose, such as {"Placement": "Post-LN"}; empty where only its legend switches it."""
    hue: int
    """Index into the house's hues; -1 is the text's colour."""
    variant: int = 0
    """Which dash and marker it has."""
    shown: bool = True
    """Whether it is drawn at first."""


@dataclass(frozen=True, slots=True, eq=False)
class ChartColumns:
    """What points may stand over: columns of one length by quantity, the first being the one drawn at first.

    Curves with the same points share one object, which the page holds once. Raises ValueError for unequal lengths, and
    where there is no point.
    """

    by_name: Mapping[str, Sequence[float]]

    def __post_init__(self) -> None:
        lengths = {len(column) for column in self.by_name.values()}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"columns of one length, and not of none, got {sorted(lengths)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """A curve of an arm: a row for each seed, whose mean is drawn with a band from the lowest to the highest.

    Where `low` and `high` are given they are the band. None is a gap.
    """

    arm: int
    """Index into the page's arms."""
    over: ChartColumns
    rows: Sequence[Sequence[float | None]]
    seeds: Sequence[int] = ()
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    kind: Kind = "measured"
    crosses: Sequence[tuple[float, float | None]] = ()
    """Where a run was stopped by a value that is not finite, over the first column; None in y is the upper edge."""
    frame: int | None = None
    """The position of the chart's slider that it is drawn at; None at each."""
    lights: Sequence[int] = ()
    """For each point, the arm whose curves a click lights; empty where points are of no run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One pair of axes, in the figure of the page whose element has the id `figure`."""

    figure: str
    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[ChartLine]
    log_x: bool = False
    log_y: bool = False
    y_range: tuple[float, float] | None = None
    """The ends of the y axis before anything is zoomed, in place of those that fit."""
    level: tuple[str, float] | None = None
    """A horizontal line and its name, such as the unigram baseline."""
    ticks: Sequence[str] = ()
    """Names for x = 0, 1, 2, …, in place of numbers."""
    frames: Sequence[str] = ()
    """Positions of a slider, such as "update 0"; those of `ChartLine.frame`."""
    crossed: str = "stopped at a non-finite value"
    """What a cross means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explorer:
    """All that the script of one page draws."""

    arms: Sequence[CurveSwitch] = ()
    charts: Sequence[Chart] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve. `hue` says what it is of, its kind how it was come by; None in `y` is a gap."""

    label: str
    kind: Kind
    hue: int
    """Index into the house's hues, so that measurement and prediction of one thing share a colour; -1 is the text's."""
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    """With `high` a band: a confidence interval or a range, which the caption names."""
    high: Sequence[float | None] = ()
    variant: int = 0
    """Which dash and marker a measured one has."""
    crosses: Sequence[tuple[float, float | None]] = ()
    """Points to be marked; None in y is the upper edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = False
    """The y axis starts at 0; not together with `log_y`."""
    y_range: tuple[float, float] | None = None
    """The ends of the y axis, in place of those that fit the curves and of `from_zero`."""
    ticks: Sequence[str] = ()
    """Names for x = 0, 1, 2, …, in place of numbers."""
    crossed: str = ""
    """What crosses mean, where there are some."""
