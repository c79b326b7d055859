"""A diagnosis as the output of a notebook's cell: what the terminal says of it, and the pictures
over depth.
"""

from collections.abc import Iterator
from dataclasses import replace

from ...report import notebook
from ...report.chart import Panel
from ...report.chart_svg import panels_svg
from ...report.words import kind_name
from ..record import Stack
from ..result import Record
from . import words
from .advice_words import advice_rows, source, surer
from .depth import depth_panels


def diagnosis_html(found: Record) -> str:
    """The verdict first."""
    return notebook.fragment(_pieces(found))


def stack_panels(found: Record) -> list[Panel]:
    """Returns all panels over depth of every stack, each named by its stack where there are
    several.
    """
    several = len(found.stacks) > 1
    return [
        replace(panel, title=f"{panel.title}, {words.stack_title(stack)}") if several else panel
        for stack in found.stacks
        for panel in depth_panels(stack).values()
    ]


def _pieces(found: Record) -> Iterator[str]:
    verdict, rate = words.headline(found)
    yield notebook.heading(f"{verdict} — {rate or words.summary(found)}")
    if rate:
        yield notebook.paragraph(words.summary(found))
    yield notebook.paragraph(words.facts(found))
    if found.advice is not None:
        yield notebook.heading(
            f"learning rate with {found.advice.optimizer}, {source(found.advice)}"
        )
        rows = [(row.term["name"], row.value, row.meaning) for row in advice_rows(found.advice)]
        yield notebook.table(("", "", "what it means"), rows)
        yield notebook.paragraph(f"to check: {surer(found.advice, found.compared)}")
        yield from (notebook.paragraph(f"note: {note}") for note in found.advice.notes)
    if found.findings:
        heads = ("severity", "finding", "where", "what", "fix")
        listed = [
            (one.severity, one.id, words.placed(one), one.message, one.fix)
            for one in found.findings
        ]
        yield notebook.table(heads, listed)
    for stack in found.stacks:
        yield notebook.heading(
            f"{words.stack_title(stack)}: {' · '.join(words.stack_words(stack))}"
        )
        yield _sublayers(stack)
    yield notebook.paragraph(words.rules_count(found))
    panels = stack_panels(found)
    if panels:
        yield notebook.picture(panels_svg(panels, title="The residual stream over depth"))


def _sublayers(stack: Stack) -> str:
    """Returns a row for all sub-layers that were found to be the same, with what was measured in
    the first and the last.
    """
    rows = []
    for group in words.same_sublayers(stack):
        members = [stack.sublayers[place] for place in group]
        first, last = members[0].measured, members[-1].measured
        rows.append(
            (
                f"{kind_name(members[0].kind)}, block "
                f"{words.block_span(one.block for one in members)}",
                words.placement_words(members[0]),
                str(members[0].formula),
                f"{words.figures(first.stream_square)} to {words.figures(last.stream_square)}",
                f"{words.figures(first.gradient_norm)} to {words.figures(last.gradient_norm)}",
            )
        )
    return notebook.table(
        ("sub-layers", "placement", "formula", "E‖x‖² / d it reads", "gradient norm"), rows
    )
