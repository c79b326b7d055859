"""The page of a study: verdicts first, then pictures, tables, and how it was measured."""

from pathlib import Path

from normscope.evidence.verdict import tally
from normscope.files import write_atomically
from normscope.report.explore.panels import panels_explorer
from normscope.report.explore.script import scripted
from normscope.report.numbers import significant
from normscope.report.svg import inlined
from normscope.report.template import environment

from .contents import Cell, Link, Marked, StudyPage


def render_study(page: StudyPage) -> str:
    """The page as text; the same contents give the same bytes."""
    jinja = environment()
    jinja.filters |= {"cell": cell, "number": is_number, "kind": kind}
    names = [figure.name.replace("_", "-") for figure in page.figures]
    pictures = [inlined(figure.svg, name) for figure, name in zip(page.figures, names, strict=True)]
    explored = panels_explorer({name: figure.panels for name, figure in zip(names, page.figures, strict=True)})
    return jinja.get_template("study.html.j2").render(
        s=page,
        tally=tally(claim.verdict for claim in page.claims),
        names=names,
        pictures=pictures,
        scripted=scripted(explored),
    )


def write_study(page: StudyPage, folder: Path) -> Path:
    """Writes `report.html` and every figure's SVG into `folder`, each complete or not at all; returns the page."""
    for figure in page.figures:
        write_atomically(folder / f"{figure.name}.svg", figure.svg)
    file = folder / "report.html"
    write_atomically(file, render_study(page))
    return file


def is_number(value: object) -> bool:
    """Whether a cell is set flush right."""
    return value is None or isinstance(value, int | float)


def cell(value: str | float | None) -> str:
    """Text as it is, numbers with four significant digits, "–" for what was not measured."""
    return value if isinstance(value, str) else significant(value)


def kind(value: Cell) -> str:
    """Which of the cells' forms a value has."""
    return "link" if isinstance(value, Link) else "marked" if isinstance(value, Marked) else "plain"
