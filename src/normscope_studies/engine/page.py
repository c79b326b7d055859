"""Defines what the page of a study shows, as plain values, and the page: verdicts first, then
pictures, tables, conditions.

Pictures are curves by arm with a band, or points; any other is panels of one's own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from normscope.files import write_over
from normscope.limits.kinds import CHART, PAGE
from normscope.measure import Estimate
from normscope.report.chart import Kind, Panel, Series
from normscope.report.chart_svg import panels_svg
from normscope.report.explorer import environment, scripted
from normscope.report.svg import inlined
from normscope.report.words import Tone, significant

from .estimates import with_interval
from .judging import Verdict, tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One statement, what was found, and whether that bears it out."""

    name: str
    """A short handle, such as "Lemma 2, Pre-LN, lower bound"."""
    statement: str
    source: str
    """The place at which it is made: paper and equation, or "corrected"."""
    found: str
    """The measurement, in numbers that stand in the study's data."""
    verdict: Verdict
    conditions: str = ""
    """The settings in which it holds, in which it does not, and in which the numbers do not decide.
    Raises ValueError where a claim that is reproduced under conditions has none, and where one that
    is reproduced has some.
    """

    def __post_init__(self) -> None:
        allowed = {Verdict.UNDER_CONDITIONS: (True,), Verdict.REPRODUCED: (False,)}.get(
            self.verdict, (True, False)
        )
        if bool(self.conditions) not in allowed:
            raise ValueError(
                f"{self.name}: conditions {self.conditions!r} do not go with verdict "
                f"{self.verdict!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFigure:
    """A picture: `name` is its file's, without the ending; `wide` where it needs the page's whole
    width.
    """

    name: str
    title: str
    caption: str
    svg: str
    wide: bool = True
    panels: Sequence[Panel] = ()
    """The same curves as values, which readers of the page explore; none of a picture that is not
    of curves.
    """

    @classmethod
    def of_panels(
        cls,
        *,
        panels: Sequence[Panel],
        name: str,
        title: str,
        caption: str,
        told: str = "",
        wide: bool = True,
    ) -> Self:
        """Curves, drawn and to be explored; told: its title for those who cannot see it, if
        another.
        """
        svg = panels_svg(panels, title=told or title)
        return cls(
            name=name, title=title, caption=caption, svg=svg, wide=wide, panels=tuple(panels)
        )


def measured(label: str, hue: int, x: ArrayLike, mean: ArrayLike, half_width: ArrayLike) -> Series:
    """Points at the means, in a band of mean ± half width; all (X,)."""
    places = _floats(x)
    y = _floats(mean)
    half = _floats(half_width)
    low = [value - by for value, by in zip(y, half, strict=True)]
    high = [value + by for value, by in zip(y, half, strict=True)]
    return Series(label=label, kind="measured", hue=hue, x=places, y=y, low=low, high=high)


def ranged(label: str, hue: int, x: Sequence[float], rows: Sequence[Sequence[float]]) -> Series:
    """Points at the means over rows of one a seed, (S, X), in a band from the lowest to the
    highest.
    """
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

    hues: by label; without any the arms are counted. beside: drawn first, such as what was
    predicted. axes: as `Panel` has them.
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
    """Points (x, y) by the label of their hue; beside: drawn first, such as the line on which they
    would lie.
    """
    series = list(beside)
    for hue, (label, places) in enumerate(points.items()):
        xs = [x for x, _ in places]
        ys = [y for _, y in places]
        series.append(Series(label=label, kind="points", hue=hue, x=xs, y=ys))
    return Panel(title=title, xlabel=xlabel, ylabel=ylabel, series=series, **axes)


def _floats(values: ArrayLike) -> list[float]:
    return [float(value) for value in np.asarray(values, dtype=np.float64)]


@dataclass(frozen=True, slots=True)
class Link:
    """A cell that leads elsewhere."""

    text: str
    address: str


@dataclass(frozen=True, slots=True)
class Marked:
    """A cell that judges: a coloured dot, the judgement in words, and a note below it where there
    is one.
    """

    text: str
    tone: Tone
    note: str = ""


TableCell = str | float | Link | Marked | None
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """Cells are text or numbers, links or judgements; numbers are aligned and shown with four
    digits.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    prose: bool = False
    """True for cells that hold sentences, and are broken into lines."""


def table(
    title: str,
    rows: Iterable[_Row],
    columns: Sequence[tuple[str, Callable[[_Row], TableCell | Estimate]]],
) -> StudyTable:
    """A row for each record, a column for each pair of a heading and what stands in its cell.

    An estimate is written with its interval.
    """
    written = []
    for row in rows:
        cells = [cell_of(row) for _, cell_of in columns]
        written.append([with_interval(one) if isinstance(one, Estimate) else one for one in cells])
    return StudyTable(title=title, columns=[heading for heading, _ in columns], rows=written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Holds what a study found: its page, and its data."""

    conditions: Mapping[str, str]
    """The conditions of the measurement, by subject. At least: gradient normalisation, logarithm,
    tokens, seeds and spread.
    """
    claims: Sequence[Claim]
    figures: Sequence[StudyFigure]
    tables: Sequence[StudyTable] = ()
    data: Mapping[str, Any]
    """For results.json: plain values; numbers that are not finite become null."""
    lines: Sequence[str] = ()
    """For the terminal, in place of claims where a study makes none."""


def render_study(found: Findings, made: Mapping[str, Any]) -> str:
    """Returns the page as text; the same contents give the same bytes.

    made: `title` and `question` of the study; when it was `created` and `made_by` which program;
    `caution`, what a reader must know before the verdicts, empty where there is nothing;
    `commands`; `environment`, values by name.
    """
    jinja = environment()
    jinja.filters |= {"cell": cell, "number": is_number, "kind": kind}
    names = [figure.name.replace("_", "-") for figure in found.figures]
    pictures = [
        inlined(figure.svg, name) for figure, name in zip(found.figures, names, strict=True)
    ]
    explored = {name: figure.panels for name, figure in zip(names, found.figures, strict=True)}
    return jinja.get_template("study.html.j2").render(
        s=found,
        made=made,
        tally=tally(claim.verdict for claim in found.claims),
        names=names,
        pictures=pictures,
        scripted=scripted(explored),
    )


def write_study(found: Findings, made: Mapping[str, Any], folder: Path) -> Path:
    """Writes `report.html` and every figure's SVG into `folder`, each complete or not at all;
    returns the page.
    """
    for figure in found.figures:
        write_over(folder / f"{figure.name}.svg", figure.svg, CHART)
    file = folder / "report.html"
    write_over(file, render_study(found, made), PAGE)
    return file


def is_number(value: object) -> bool:
    """Returns whether a cell is set flush right."""
    return value is None or isinstance(value, int | float)


def cell(value: str | float | None) -> str:
    """Text as it is, numbers with four significant digits, "–" for what was not measured."""
    return value if isinstance(value, str) else significant(value)


def kind(value: TableCell) -> str:
    """Returns which of the cells' forms a value has."""
    return "link" if isinstance(value, Link) else "marked" if isinstance(value, Marked) else "plain"


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns a table's lines for readers of text; cells are Markdown."""
    heads = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    return [*heads, *(f"| {' | '.join(row)} |" for row in rows)]
