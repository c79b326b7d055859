"""A diagnosis on one screen: the verdict, every stack with its course over depth, findings, advice."""

import math
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..numbers import counted
from ..words import kind_name
from .advice_words import advice_rows, source_words
from .contents import DiagnosisContents, Finding, Severity, Stack, worst_of
from .depth import DepthRow, depth_rows, finite, places, positive
from .words import (
    block_span,
    figures,
    loss_words,
    placement_words,
    same_sublayers,
    stack_title,
    stack_words,
    summary,
    tally,
    verdict_words,
)

_LINES, _LEAST_FINDINGS, _MOST_EXCEPTIONS = 40, 3, 3
_MESSAGE_LINES, _FIX_LINES = 3, 2
_BARS, _ASCII_BARS, _LEAST_BARS, _MOST_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#", 6, 16
_LEAST_RATIO = 4.0
"""Least ratio between the ends of a logarithmic sparkline, so that a nearly level curve looks level."""
_BETWEEN = 2
"""Spaces between the columns of a table."""
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
_HEALTHY_STYLE = "bold green"
_SEVERITY_WIDTH = max(map(len, Severity))
_ASCII: dict[str, str | int | None] = {
    "‖": "|", "²": "^2", "ε": "eps", "–": "-", "—": "-", "·": "|", "←": "<-", "→": "->", "√": "sqrt", "×": "x",
    "…": "...", "≤": "<=", "≥": ">=", "≈": "~", "η": "eta", "α": "alpha", "β": "beta", "γ": "gamma", "’": "'",
    "“": '"', "”": '"',
}  # fmt: skip


def terminal_page(diagnosis: DiagnosisContents) -> RenderableType:
    """A page of about 40 lines at 100 columns and no wider than the console.

    Written in ASCII where the console's encoding is none of Unicode. Findings for which there is no room are counted.
    """
    return _TerminalPage(diagnosis)


class _TerminalPage:
    """A page that is laid out when it is printed, because only then its console is known."""

    def __init__(self, diagnosis: DiagnosisContents) -> None:
        self.diagnosis = diagnosis

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _Layout(self.diagnosis, console, options).parts()


class _Layout:
    def __init__(self, diagnosis: DiagnosisContents, console: Console, options: ConsoleOptions) -> None:
        self.d, self.console, self.options = diagnosis, console, options
        self.ascii, self.width = options.ascii_only, options.max_width

    def parts(self) -> Iterator[RenderableType]:
        above = [self._head(), *(part for stack in self.d.stacks for part in self._stack(stack))]
        below = [*self._advice(), *self._silenced()]
        taken = sum(map(self._lines, above)) + sum(map(self._lines, below))
        yield from above
        yield from self._findings(_LINES - taken)
        yield from below

    def _lines(self, part: RenderableType) -> int:
        return len(self.console.render_lines(part, self.options))

    def _say(self, words: str, style: str = "") -> Text:
        if self.ascii:
            words = words.translate(str.maketrans(_ASCII)).encode("ascii", "replace").decode()
        return Text(words, style=style)

    def _head(self) -> RenderableType:
        worst = worst_of(self.d.findings)
        style = _HEALTHY_STYLE if worst in (None, Severity.INFO) else _STYLES[worst]
        verdict = Text.assemble(self._say(verdict_words(self.d), style), self._say(f" — {summary(self.d)}", "bold"))
        facts = [self.d.target, counted(self.d.parameters, "parameter"), loss_words(self.d.measured)]
        return Group(verdict, self._say(" · ".join(facts), "dim"))

    def _stack(self, stack: Stack) -> Iterator[RenderableType]:
        yield Text("")
        head = self._say(f"{stack_title(stack)}  ", "bold")
        yield Text.assemble(head, self._say(" · ".join(stack_words(stack))))
        exceptions = list(_exceptions(stack))
        for words in exceptions[:_MOST_EXCEPTIONS]:
            line = self._say(f"  {words}", "yellow")
            line.truncate(self.width, overflow="crop" if self.ascii else "ellipsis")
            yield line
        if len(exceptions) > _MOST_EXCEPTIONS:
            yield self._say(f"  and {len(exceptions) - _MOST_EXCEPTIONS} more kinds of sub-layers", "dim")
        if places(stack):
            yield Padding(self._depth(stack), (0, 0, 0, 2))

    def _depth(self, stack: Stack) -> Table:
        """The table over depth. Where room is short, sparklines are narrower or left out, then the middle block."""
        where, indent = places(stack), 2
        last = len(where) - 1
        table = self._numbers(stack, sorted({0, last // 2, last}), 0)
        room = self.width - indent - Measurement.get(self.console, self.options, table).maximum
        if room < 0:
            return self._numbers(stack, sorted({0, last}), 0)
        bars = min(len(where), _MOST_BARS, room - _BETWEEN)
        return self._numbers(stack, sorted({0, last // 2, last}), bars if bars >= min(len(where), _LEAST_BARS) else 0)

    def _numbers(self, stack: Stack, shown: Sequence[int], bars: int) -> Table:
        where, theory = places(stack), stack.predicted is not None
        table = Table(box=None, padding=(0, _BETWEEN, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("", no_wrap=True)
        if bars:
            table.add_column("", no_wrap=True)
        for at in shown:
            table.add_column(self._say(where[at].label), justify="right", no_wrap=True)
            if theory:
                table.add_column(self._say("theory"), justify="right", no_wrap=True, style="dim")
        for row in depth_rows(stack):
            if all(value is None for value in row.measured):
                continue
            cells = [self._say(row.name)]
            if bars:
                cells.append(Text(sparkline(row, _ASCII_BARS if self.ascii else _BARS, bars)))
            for at in shown:
                cells.append(self._say(figures(row.measured[at])))
                if theory:
                    cells.append(self._say("" if row.predicted is None else figures(row.predicted[at])))
            table.add_row(*cells)
        return table

    def _findings(self, room: int) -> Iterator[RenderableType]:
        findings = self.d.findings
        if findings:
            yield Text("")
            room -= 2  # this gap, and the line that counts the rest
        for number, finding in enumerate(findings):
            part = self._finding(finding)
            room -= self._lines(part)
            if number >= _LEAST_FINDINGS and room < 0:
                left = tally(findings[number:])
                yield self._say(f"and {left} more, which --html and --json show", "dim")
                return
            yield part

    def _finding(self, finding: Finding) -> RenderableType:
        severity = finding.severity
        head = Text.assemble(self._say(finding.id, "bold"), self._say(f"  {finding.where}", "dim"))
        table = Table.grid(padding=(0, 1))
        table.add_column(width=_SEVERITY_WIDTH, no_wrap=True)
        table.add_column(ratio=1)
        table.add_row(self._say(severity, _STYLES[severity]), self._cut(head, 1))
        table.add_row("", self._cut(self._say(finding.message), _MESSAGE_LINES))
        if finding.fix:
            table.add_row("", self._cut(self._say(f"fix: {finding.fix}", "green"), _FIX_LINES))
        return table

    def _cut(self, text: Text, lines: int) -> Text:
        """The text in at most so many lines, the last with an ellipsis where words are left out."""
        width = max(10, self.width - _SEVERITY_WIDTH - 1)
        wrapped = text.wrap(self.console, width)
        if len(wrapped) <= lines:
            return text
        kept = Text("\n").join(wrapped[:lines])
        kept.rstrip()
        more = "..." if self.ascii else "…"
        if (over := len(wrapped[lines - 1].plain.rstrip()) + len(more) - width) > 0:
            kept.right_crop(over)
        return kept.append(more)

    def _advice(self) -> Iterator[RenderableType]:
        advice = self.d.advice
        if advice is None:
            return
        yield Text("")
        yield self._say(f"learning rate with {advice.optimizer}, {source_words(advice)}", "bold")
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right", style="bold")
        table.add_column(ratio=1)
        for row in advice_rows(advice):
            table.add_row(*map(self._say, (row.name, row.value, row.meaning)))
        yield Padding(table, (0, 0, 0, 2))
        for note in advice.notes:
            yield Padding(self._say(f"note: {note}", "dim"), (0, 0, 0, 2))

    def _silenced(self) -> Iterator[RenderableType]:
        if self.d.silenced:
            yield Text("")
            yield self._say(f"rules left out: {', '.join(self.d.silenced)}", "dim")


def _exceptions(stack: Stack) -> Iterator[str]:
    """Lines about sub-layers whose placement is not known, not sure, or not that of the stack."""
    for group in same_sublayers(stack):
        members = [stack.sublayers[i] for i in group]
        first = members[0]
        known = first.placement and first.confidence == "sure"
        if known and first.placement == stack.placement:
            continue
        where = f"{kind_name(first.kind)}, block {block_span(found.block for found in members)}"
        yield f"{where}: {placement_words(first)}" + ("" if known else f", observed {first.formula}")


def sparkline(row: DepthRow, bars: str, count: int) -> str:
    """A curve in `count` letters, which show the first and the last place. Ratios and cosines go from 0 to 1."""
    last = len(row.measured) - 1
    kept = [round(i * last / max(1, count - 1)) for i in range(count)]
    values = [(positive if row.logarithmic else finite)(row.measured[i]) for i in kept]
    return "".join(" " if height is None else bars[height] for height in _heights(values, row.logarithmic, len(bars)))


def _heights(values: Sequence[float | None], logarithmic: bool, levels: int) -> list[int | None]:
    known = [value for value in values if value is not None]
    if not logarithmic:
        return [None if v is None else min(levels - 1, int(max(0.0, v) * levels)) for v in values]
    if not known:
        return [None for _ in values]
    low, high = math.log(min(known)), math.log(max(known))
    spare = max(0.0, math.log(_LEAST_RATIO) - (high - low))
    below, span = spare * (levels // 2 - 1) / (levels - 1), high - low + spare  # a level line lies on a level
    return [None if v is None else round((math.log(v) - low + below) / span * (levels - 1)) for v in values]
