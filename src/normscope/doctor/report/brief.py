"""A diagnosis for programs and agents: plain lines of a name and what is said, at most forty, the
same whatever the terminal.
"""

from collections.abc import Sequence

from ...report.words import counted, printable
from ..result import Finding, Record
from .words import first_step, headline, rules_words, summary, verdict_words

MOST_LINES = 40
_OF_EACH = 2
"""Lines of a finding: what was seen and where, and what to change."""


def brief(diagnosis: Record, training: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Returns what to do, what is wrong and what was not checked, a line each, none of it wrapped.

    training: what a training's log and the model say together, by name, what to do first; it goes
    before what the model says alone. Findings for which there is no room are counted.
    """
    lines = [f"target: {diagnosis.target}"]
    if training:
        lines += [f"{name}: {words}" for name, words in training]
    else:
        lines.append(f"do: {first_step(diagnosis)}")
    verdict, rate = headline(diagnosis, diverged=bool(training))
    lines.append(f"model: {verdict if training else verdict_words(diagnosis)}")
    lines.append(f"wiring: {summary(diagnosis)}")
    if rate:
        lines.append(f"rate: {rate}")
    last = [f"rules: {rules_words(diagnosis)}"] if diagnosis.rules else []
    room = (MOST_LINES - len(lines) - len(last)) // _OF_EACH
    shown = diagnosis.findings
    if len(shown) > room:
        # One of the lines says how many are left out.
        shown = shown[: (MOST_LINES - len(lines) - len(last) - 1) // _OF_EACH]
    for finding in shown:
        lines += _finding_lines(finding)
    left = len(diagnosis.findings) - len(shown)
    if left:
        lines.append(f"and {counted(left, 'more finding')}: --json - has all")
    return [printable(" ".join(line.split())) for line in [*lines, *last]]


def _finding_lines(finding: Finding) -> list[str]:
    where = f" at {finding.where}" if finding.where else ""
    place = finding.built_at or finding.called_at
    if place is not None:
        where += f" ({place})"
    return [
        f"{finding.severity} {finding.id}{where}: {finding.message}",
        f"fix {finding.id}: {finding.fix}",
    ]
