"""A diagnosis for other pages and programs: a card with a badge for a model's README, and findings
as lines, which are annotations of GitHub's workflows or what gcc's readers know."""

import ast
import sys
from collections.abc import Iterable
from html import escape

from ... import __version__
from ...limits.home import from_home
from ..result import Finding, Health, Record
from ..trace.code_places import CodePlace, seen_from_here
from .words import stack_title, stack_words, summary, verdict_words

_COLOURS = {
    Health.HEALTHY: "#2f7d32",
    Health.UNKNOWN: "#5f6368",
    Health.WARNINGS: "#a15c00",
    Health.ERRORS: "#b3261e",
}
_PIXELS_A_SIGN = 6.5
_EDGE_PIXELS = 6
_LONGEST_SIGNS = 60


def card(diagnosis: Record, badge_name: str) -> str:
    """Returns the card, in Markdown. badge_name: the badge's place as seen from the card."""
    rows = [(stack_title(stack), " · ".join(stack_words(stack))) for stack in diagnosis.stacks]
    weights = "trained" if diagnosis.trained else "initial"
    rows += [
        ("parameters", f"{diagnosis.parameters:,}"),
        ("findings", verdict_words(diagnosis)),
        ("looked at", f"with {weights} weights, by NormScope {__version__}"),
    ]
    told = [
        f"- **{one.severity} {_plain(one.id)}**: {_plain(one.message)}"
        for one in diagnosis.findings
    ]
    return "\n".join(
        [
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
    """Returns a picture of one line, an SVG: on the left what the model is, on the right whether
    something was found.
    """
    left, right = halves = _halves(diagnosis)
    one, other = (round(len(text) * _PIXELS_A_SIGN) + 2 * _EDGE_PIXELS for text in halves)
    whole = escape(f"{left}: {right}")

    def written(text: str, x: int, width: int) -> str:
        # A width that is set makes every font fill it, whichever the reader has.
        room = width - 2 * _EDGE_PIXELS
        fills = f'textLength="{room}" lengthAdjust="spacingAndGlyphs"'
        return f'<text x="{x}" y="14" {fills}>{escape(text)}</text>'

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="badge" width="{one + other}" '
        f'height="20" role="img" aria-label="{whole}"><title>{whole}</title><rect '
        f'width="{one}" height="20" fill="#3c4043"/><rect x="{one}" width="{other}" '
        f'height="20" fill="{_COLOURS[diagnosis.verdict]}"/><g fill="#fff" '
        'font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{written(left, _EDGE_PIXELS, one)}{written(right, one + _EDGE_PIXELS, other)}</g></svg>\n"
    )


def _halves(diagnosis: Record) -> tuple[str, str]:
    """Returns both halves of a badge: the wiring and the verdict. The number of checked rules
    stands in the card: a badge is read in passing.
    """
    what = summary(diagnosis)
    if len(what) > _LONGEST_SIGNS:
        what = ", ".join(
            dict.fromkeys(one.placement or "no registered placement" for one in diagnosis.stacks)
        )
    return what, verdict_words(diagnosis).partition(";")[0]


def _plain(text: str) -> str:
    """Text of others, of which nothing is markup on the reader's page."""
    escaped = escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{sign}" if sign in "\\`*_[]|#" else sign for sign in escaped)


_LEVELS = {"info": "notice", "warning": "warning", "error": "error"}
"""GitHub's names for severities."""


def annotations(findings: Iterable[Finding], target: str, form: str) -> list[str]:
    """Returns a line for each finding, at the user's line that built what it names, or called it;
    where neither is known at the function that `target` names, and at no place for others.

    form: "github" for the commands of a workflow's log, "gcc" for `file:line: severity: message
    [rule]`, which editors and problem matchers read.
    """
    of_target = _place_of(target)
    lines = []
    for finding in findings:
        place = finding.built_at or finding.called_at or of_target
        lines.append(_github(finding, place) if form == "github" else _gcc(finding, target, place))
    return lines


def _github(finding: Finding, place: CodePlace | None) -> str:
    properties = {} if place is None else {"file": place.file, "line": str(place.line)}
    properties["title"] = f"{finding.id} at {finding.where}" if finding.where else finding.id
    named = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
    return (
        f"::{_LEVELS[finding.severity]} "
        f"{named}::{_escaped(f'{finding.message}. To fix it: {finding.fix}')}"
    )


def _escaped(text: str, more: str = "") -> str:
    """Escapes a text for the runner: characters that end a command or a property are written by
    their number.
    """
    for sign in "%\r\n" + more:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def _gcc(finding: Finding, target: str, place: CodePlace | None) -> str:
    at = target if place is None else str(place)
    severity = "note" if finding.severity == "info" else str(finding.severity)
    where = f"{finding.where}: " if finding.where else ""
    return f"{at}: {severity}: {where}{' '.join(finding.message.split())} [{finding.id}]"


def _place_of(target: str) -> CodePlace | None:
    """Returns the file and line of the function; line 1 where the file defines it in another way,
    such as by an import.
    """
    place, _, function = target.rpartition(":")
    file = place if place.endswith(".py") else _file_of(place)
    if not file:
        return None
    body = ast.parse(from_home(file).read_text(encoding="utf-8")).body
    lines = [
        one.lineno
        for one in body
        if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == function
    ]
    return CodePlace(file=file, line=lines[-1] if lines else 1)


def _file_of(module: str) -> str:
    """Returns the file of a module that was imported, as seen from here; "" for any other text."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return seen_from_here(file) if file.endswith(".py") else ""
