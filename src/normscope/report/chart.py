"""One chart as plain values: curves and their axes.

`chart_svg` draws it as a picture, `explorer` writes it for the script of a page whose readers
switch curves on and off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["measured", "predicted", "claimed", "points"]
"""The origin of a curve, which decides its look: a line, dashed, dotted, or points without an
order.
"""


PLACEMENT = "Placement"
"""The facet by which a picture has panels where there are too many curves for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve. `hue` says what it is of, its kind how it was come by; None in `y` is a gap.

    Raises ValueError where columns differ in length.
    """

    label: str
    kind: Kind = "measured"
    hue: int
    """Index into the house's hues, so that measurement and prediction of one thing share a colour;
    -1 is the text's.
    """
    x: Sequence[float] = ()
    y: Sequence[float | None] = ()
    """The values; where there are `rows`, their mean."""
    low: Sequence[float | None] = ()
    """The lower edge of a band, with `high`: a confidence interval or a range, which the caption
    names.
    """
    high: Sequence[float | None] = ()
    variant: int = 0
    """The number of the dash and marker that a measured one has."""
    crosses: Sequence[tuple[float, float | None]] = ()
    """Points to be marked; None in y is the upper edge."""
    rows: Sequence[Sequence[float | None]] = ()
    """The values of each seed, which a page smooths one by one."""
    seeds: Sequence[int] = ()
    further: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The other quantities that the points may be drawn over, by name."""
    facets: Mapping[str, str] = field(default_factory=dict)
    """The values by which a reader may choose, such as {"Placement": "Post-LN"}: curves of one
    label and the same facets are switched on and off together all over a page, those without any in
    their figure.
    """
    shown: bool = True
    """True where it is drawn at first."""
    frame: int | None = None
    """The position of the chart's slider that it is drawn at; None at each."""
    lights: Sequence[str] = ()
    """For each point, the label of the curves that a click lights; empty where points are of no
    run.
    """

    def __post_init__(self) -> None:
        columns = (self.x, self.y, *self.rows, *self.further.values())
        if len(lengths := {len(column) for column in columns}) > 1:
            raise ValueError(f"{self.label}: columns of one length, got {sorted(lengths)}")


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
    level: tuple[str, float] | None = None
    """A horizontal line and its name, such as the unigram baseline."""
    ticks: Sequence[str] = ()
    """Names for x = 0, 1, 2, …, in place of numbers."""
    frames: Sequence[str] = ()
    """Positions of a slider, such as "update 0"; those of `Series.frame`."""
    crossed: str = ""
    """The meaning of crosses, where there are some."""
