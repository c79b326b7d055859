"""A diagnosis for other pages: the output of a notebook's cell, and a card with a badge for a model's README."""

from collections.abc import Iterator
from dataclasses import replace
from html import escape

from ... import __version__
from ...report import notebook
from ...report.chart import Panel
from ...report.chart_svg import panels_svg
from ...report.words import counted, kind_name
from ..record import Stack
from ..result import Health, Record
from .advice_words import advice_rows, source_words
from .svg import depth_panels
from .words import (
    block_span,
    figures,
    headline,
    loss_words,
    placement_words,
    rules_count,
    same_sublayers,
    stack_title,
    stack_words,
    summary,
    verdict_words,
)


def diagnosis_html(found: Record) -> str:
    """The verdict first."""
    return notebook.fragment(_pieces(found))


def stack_panels(found: Record) -> list[Panel]:
    """Of every stack all that was measured over depth, each named by its stack where there are several."""
    several = len(found.stacks) > 1
    return [
        replace(panel, title=f"{panel.title}, {stack_title(stack)}") if several else panel
        for stack in found.stacks
        for panel in depth_panels(stack).values()
    ]


def _pieces(found: Record) -> Iterator[str]:
    verdict, rate = headline(found)
    yield notebook.heading(f"{verdict} — {rate or summary(found)}")
    if rate:
        yield notebook.paragraph(summary(found))
    facts = [found.target, counted(found.parameters, "parameter"), loss_words(found.measured)]
    yield notebook.paragraph(" · ".join([*facts, *(["trained weights"] if found.trained else [])]))
    if found.advice is not None:
        yield notebook.heading(f"learning rate with {found.advice.optimizer}, {source_words(found.advice)}")
        rows = [(row.term["name"], row.value, row.meaning) for row in advice_rows(found.advice)]
        yield notebook.table(("", "", "what it means"), rows)
        yield from (notebook.paragraph(f"note: {note}") for note in found.advice.notes)
    if found.findings:
        heads = ("severity", "finding", "where", "what", "fix")
        listed = [(one.severity, one.id, one.where, one.message, one.fix) for one in found.findings]
        yield notebook.table(heads, listed)
    for stack in found.stacks:
        yield notebook.heading(f"{stack_title(stack)}: {' · '.join(stack_words(stack))}")
        yield _sublayers(stack)
    yield notebook.paragraph(rules_count(found))
    panels = stack_panels(found)
    if panels:
        yield notebook.picture(panels_svg(panels, title="The residual stream over depth"))


def _sublayers(stack: Stack) -> str:
    """A row for all sub-layers that were found to be the same, with what was measured in the first and the last."""
    rows = []
    for group in same_sublayers(stack):
        members = [stack.sublayers[place] for place in group]
        first, last = members[0].measured, members[-1].measured
        rows.append(
            (
                f"{kind_name(members[0].kind)}, block {block_span(one.block for one in members)}",
                placement_words(members[0]),
                str(members[0].formula),
                f"{figures(first.stream_square)} to {figures(last.stream_square)}",
                f"{figures(first.gradient_norm)} to {figures(last.gradient_norm)}",
            )
        )
    return notebook.table(("sub-layers", "placement", "formula", "E‖x‖² / d it reads", "gradient norm"), rows)


_COLOURS = {Health.HEALTHY: "#2f7d32", Health.UNKNOWN: "#5f6368", Health.WARNINGS: "#a15c00", Health.ERRORS: "#b3261e"}
_PIXELS_A_SIGN, _EDGE_PIXELS, _LONGEST_SIGNS = 6.5, 6, 60


def card(diagnosis: Record, badge_name: str) -> str:
    """The card in Markdown. badge_name: where the badge lies as seen from the card."""
    rows = [(stack_title(stack), " · ".join(stack_words(stack))) for stack in diagnosis.stacks]
    weights = "trained" if diagnosis.trained else "initial"
    rows += [
        ("parameters", f"{diagnosis.parameters:,}"),
        ("findings", verdict_words(diagnosis)),
        ("looked at", f"with {weights} weights, by NormScope {__version__}"),
    ]
    told = [f"- **{one.severity} {_plain(one.id)}**: {_plain(one.message)}" for one in diagnosis.findings]
    return "\n".join(
        [
            "<!-- Written by `normscope doctor --card`; the command writes it anew. -->",
            f"![{_plain(': '.join(_halves(diagnosis)))}]({badge_name})",
            "",
            "| normalisation | |",
            "| --- | --- |",
            *(f"| {_plain(name)} | {_plain(value)} |" for name, value in rows),
            *(["", *told] if told else []),
            "",
        ]
    )


def badge(diagnosis: Record) -> str:
    """A picture of one line, an SVG: on the left what the model is, on the right whether something was found."""
    left, right = halves = _halves(diagnosis)
    one, other = (round(len(text) * _PIXELS_A_SIGN) + 2 * _EDGE_PIXELS for text in halves)
    whole = escape(f"{left}: {right}")
    # A width that is set makes every font fill it, whichever the reader has.
    text = '<text x="{x}" y="14" textLength="{room}" lengthAdjust="spacingAndGlyphs">{text}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="badge" width="{one + other}" height="20" role="img" '
        f'aria-label="{whole}"><title>{whole}</title><rect width="{one}" height="20" fill="#3c4043"/>'
        f'<rect x="{one}" width="{other}" height="20" fill="{_COLOURS[diagnosis.verdict]}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{text.format(x=_EDGE_PIXELS, room=one - 2 * _EDGE_PIXELS, text=escape(left))}"
        f"{text.format(x=one + _EDGE_PIXELS, room=other - 2 * _EDGE_PIXELS, text=escape(right))}</g></svg>\n"
    )


def _halves(diagnosis: Record) -> tuple[str, str]:
    """How many rules were asked is for the card: a badge is read in passing."""
    what = summary(diagnosis)
    if len(what) > _LONGEST_SIGNS:
        what = ", ".join(dict.fromkeys(one.placement or "no registered placement" for one in diagnosis.stacks))
    return what, verdict_words(diagnosis).partition(":")[0]


def _plain(text: str) -> str:
    """Text of others, of which nothing is markup on the reader's page."""
    escaped = escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{sign}" if sign in "\\`*_[]|#" else sign for sign in escaped)
