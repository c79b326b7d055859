"""A diagnosis on one screen: what to do, verdict, learning rate and what matters most; then details
over depth.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...report.words import ASCII_BARS, BARS, counted, kind_name, printable
from ..record import Stack
from ..result import Finding, Record, Severity
from . import words
from .advice_words import advice_rows, source, surer
from .depth import depth_rows, finite, places, positive

_LEAST_BARS, _MOST_BARS = 6, 16
_LEAST_RATIO = 4.0
"""Least ratio between the ends of a logarithmic sparkline, so that a nearly level curve looks
level.
"""
_BETWEEN = 2
"""Spaces between the columns of a table."""
_Say = Callable[[str], Text]
"""Makes text that the console can print."""


def depth_table(
    stack: Stack, room: int, say: _Say, console: Console, options: ConsoleOptions
) -> Table:
    """Returns the table over depth. Where room is short, sparklines are narrower or left out, then
    the middle block.

    room: columns for the whole table.
    """
    count = len(places(stack))
    last = count - 1
    table = _numbers(stack, sorted({0, last // 2, last}), 0, say, options.ascii_only)
    room -= Measurement.get(console, options, table).maximum
    if room < 0:
        return _numbers(stack, sorted({0, last}), 0, say, options.ascii_only)
    bars = min(count, _MOST_BARS, room - _BETWEEN)
    bars = bars if bars >= min(count, _LEAST_BARS) else 0
    return _numbers(stack, sorted({0, last // 2, last}), bars, say, options.ascii_only)


def _numbers(stack: Stack, shown: Sequence[int], bars: int, say: _Say, ascii_only: bool) -> Table:
    labels, theory = list(places(stack)), stack.predicted is not None
    table = Table(box=None, padding=(0, _BETWEEN, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    if bars:
        table.add_column("", no_wrap=True)
    for at in shown:
        table.add_column(say(labels[at]), justify="right", no_wrap=True)
        if theory:
            table.add_column(say("theory"), justify="right", no_wrap=True, style="dim")
    for row in depth_rows(stack):
        if all(value is None for value in row.measured):
            continue
        cells = [say(row.name)]
        if bars:
            cells.append(
                Text(
                    sparkline(
                        row.measured, ASCII_BARS if ascii_only else BARS, bars, row.logarithmic
                    )
                )
            )
        for at in shown:
            cells.append(say(words.figures(row.measured[at])))
            if theory:
                cells.append(say("" if row.predicted is None else words.figures(row.predicted[at])))
        table.add_row(*cells)
    return table


def sparkline(measured: Sequence[float | None], bars: str, count: int, logarithmic: bool) -> str:
    """Returns a curve in `count` letters, which show the first and the last place. Ratios and
    cosines go from 0 to 1.
    """
    last = len(measured) - 1
    kept = [round(i * last / max(1, count - 1)) for i in range(count)]
    values = [(positive if logarithmic else finite)(measured[i]) for i in kept]
    return "".join(
        " " if height is None else bars[height]
        for height in _heights(values, logarithmic, len(bars))
    )


def _heights(values: Sequence[float | None], logarithmic: bool, levels: int) -> list[int | None]:
    known = [value for value in values if value is not None]
    if not logarithmic:
        return [None if v is None else min(levels - 1, int(max(0.0, v) * levels)) for v in values]
    if not known:
        return [None for _ in values]
    low, high = math.log(min(known)), math.log(max(known))
    spare = max(0.0, math.log(_LEAST_RATIO) - (high - low))
    # A level line lies on a level.
    below = spare * (levels // 2 - 1) / (levels - 1)
    span = high - low + spare
    return [
        None if v is None else round((math.log(v) - low + below) / span * (levels - 1))
        for v in values
    ]


_LINES = 42
_MOST_EXCEPTIONS = 3
_INDENT = 2
_FIRST_SCREEN = 22
"""Lines up to the details, of a terminal of 24 with its prompt; a second finding that does not fit
waits below.
"""
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}
_HEALTHY_STYLE = "bold green"
_SEVERITY_WIDTH = max(map(len, Severity))
_WHY = "  why"
_ASCII: dict[str, str | int | None] = {
    "‖": "|", "²": "^2", "ε": "eps", "–": "-", "—": "-", "·": "|", "←": "<-", "→": "->",
    "√": "sqrt", "×": "x", "…": "...", "≤": "<=", "≥": ">=", "≈": "~",
    "η": "eta", "α": "alpha", "β": "beta", "γ": "gamma",
    "’": "'", "“": '"', "”": '"',
}  # fmt: skip


def terminal_page(
    diagnosis: Record, why: Mapping[str, str] | None = None, first: str = ""
) -> RenderableType:
    """A page of about 40 lines at 100 columns and no wider than the console.

    Written in ASCII where the console's encoding is none of Unicode. Notes for which there is no
    room are counted; every error and warning is shown.

    why: reasons why findings matter, by the rule's id. first: what a training's log asks for before
    the model, which stands above the page; then the model is not called healthy.
    """
    return _TerminalPage(diagnosis, why or {}, first)


class _TerminalPage:
    """A page that is laid out when it is printed, because only then its console is known."""

    console: Console
    options: ConsoleOptions

    def __init__(self, diagnosis: Record, why: Mapping[str, str], first: str) -> None:
        self.d = diagnosis
        self.why = why
        self.first = first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.console, self.options = console, options
        yield from self._parts()

    def _parts(self) -> Iterator[RenderableType]:
        leading = words.leading_findings(self.d)
        # Of a model that has something to mend a usual rate is not what is asked first.
        advice = [*self._advice()]
        above = [self._head()] if leading else [self._head(), *advice]
        later: list[RenderableType] = []  # reasons that the first screen has no room for
        for number, finding in enumerate(leading):
            rows = self._rows(finding, said=not number and not self.first)
            gap = [] if number else [Text("")]
            if self._lines(Group(*above, *gap, self._grid(rows))) > _FIRST_SCREEN:
                if number:
                    leading = leading[:number]
                    break
                if rows[-1][0] == _WHY:
                    later = [
                        self._grid(
                            [(_WHY, Text.assemble((finding.id, "bold"), ": ", rows.pop()[1]))]
                        )
                    ]
            above += [*gap, self._grid(rows)]
        if leading:
            above += advice
        details = Text.assemble(
            self._say("details  ", "bold"), self._say(words.facts(self.d), "dim")
        )
        above += [Text(""), details]
        above += [part for stack in self.d.stacks for part in self._stack(stack)]
        more = "" if all(rule.asked for rule in self.d.rules) else ": --html and --json say why"
        below: list[RenderableType] = [Text(""), self._say(words.rules_count(self.d) + more, "dim")]
        # What stood first has scrolled away.
        below += [Text(""), *self._last()] if leading else []
        taken = sum(map(self._lines, above)) + sum(map(self._lines, below))
        yield from above
        yield from self._further(later, len(leading), _LINES - taken)
        yield from below

    def _lines(self, part: RenderableType) -> int:
        return len(self.console.render_lines(part, self.options))

    def _say(self, line: str, style: str = "") -> Text:
        line = printable(line)  # classes and modules have the names that others gave them
        if self.options.ascii_only:
            line = line.translate(str.maketrans(_ASCII)).encode("ascii", "replace").decode()
        return Text(line, style=style)

    def _head(self) -> RenderableType:
        worst = words.headline_severity(self.d)
        style = (
            _HEALTHY_STYLE if worst is None and not self.first else _STYLES[worst or Severity.INFO]
        )
        (verdict, rate), what = (
            words.headline(self.d, diverged=bool(self.first)),
            words.summary(self.d),
        )
        lines = [] if self.first else [self._say(words.first_step(self.d), style)]
        lines += [Text.assemble(self._say(verdict, style), self._say(f" — {rate or what}", "bold"))]
        unasked = words.unasked(self.d)
        return Group(
            *lines,
            *([self._say(what)] if rate else []),
            *([self._say(unasked, "dim")] if unasked else []),
        )

    def _last(self) -> Iterator[RenderableType]:
        """The verdict, and what to do, once more; not the latter where a log asks for something
        else.
        """
        style = _STYLES[words.headline_severity(self.d) or Severity.INFO]
        yield self._say(words.headline(self.d)[0], style)
        if not self.first:
            yield self._say(words.first_step(self.d), style)

    def _stack(self, stack: Stack) -> Iterator[RenderableType]:
        yield Text("")
        head = self._say(f"{words.stack_title(stack)}  ", "bold")
        yield Text.assemble(head, self._say(" · ".join(words.stack_words(stack))))
        exceptions = list(_exceptions(stack))
        for line in exceptions[:_MOST_EXCEPTIONS]:
            yield Padding(self._say(line, "yellow"), (0, 0, 0, _INDENT))
        if len(exceptions) > _MOST_EXCEPTIONS:
            more = counted(len(exceptions) - _MOST_EXCEPTIONS, "more kind")
            yield self._say(f"  and {more} of sub-layers", "dim")
        if not math.isfinite(stack.end_square):
            for group in words.same_sublayers(stack):
                members = [stack.sublayers[place] for place in group]
                where = (
                    f"{kind_name(members[0].kind)}, block "
                    f"{words.block_span(found.block for found in members)}"
                )
                yield self._say(f"  {where}: {members[0].formula}", "dim")
            return
        if places(stack):
            table = depth_table(
                stack, self.options.max_width - _INDENT, self._say, self.console, self.options
            )
            yield Padding(table, (0, 0, 0, _INDENT))

    def _further(
        self, later: Sequence[RenderableType], shown: int, room: int
    ) -> Iterator[RenderableType]:
        """Yields the parts that the first screen had no room for, then the findings after the
        `shown` ones on it.
        """
        findings = self.d.findings[shown:]
        parts = [*later, *(self._grid(self._rows(one)) for one in findings)]
        if parts:
            yield Text("")
            room -= 2  # this gap, and the line that counts the rest
        for number, part in enumerate(parts):
            room -= self._lines(part)
            # Notes alone may wait for another place: they stand last.
            place = number - len(later)
            is_note = place >= 0 and findings[place].severity is Severity.INFO
            if room >= 0 or not is_note or not (number or shown):
                yield part
            else:
                left = words.tally(findings[place:])
                yield self._say(f"and {left} more, which --html and --json show", "dim")
                return

    def _grid(self, rows: Sequence[tuple[str, Text]]) -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=_SEVERITY_WIDTH, no_wrap=True)
        table.add_column(ratio=1)
        for name, text in rows:
            table.add_row(
                self._say(name, _STYLES[Severity(name)] if name in list(Severity) else "dim"), text
            )
        return table

    def _rows(self, finding: Finding, *, said: bool = False) -> list[tuple[str, Text]]:
        """Returns what was seen, where, what to change and why it matters; said: what to do is
        already written above.
        """
        seen = Text.assemble(self._say(finding.id, "bold"), self._say(f": {finding.message}"))
        fix = "" if said else finding.fix
        rows = [
            ("  where", words.placed(finding), "dim"),
            ("  fix", fix, "green"),
            (_WHY, self.why.get(finding.id, ""), "dim"),
        ]
        return [
            (finding.severity, seen),
            *((name, self._say(line, style)) for name, line, style in rows if line),
        ]

    def _advice(self) -> Iterator[RenderableType]:
        advice = self.d.advice
        if advice is None:
            return
        yield Text("")
        yield self._say(f"learning rate with {advice.optimizer}, {source(advice)}", "bold")
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right", style="bold")
        table.add_column(ratio=1)
        for row in advice_rows(advice):
            table.add_row(*map(self._say, (row.term["name"], row.value, row.meaning)))
        yield Padding(table, (0, 0, 0, 2))
        for note in (
            f"to check: {surer(advice, self.d.compared)}",
            *(f"note: {note}" for note in advice.notes),
        ):
            yield Padding(self._say(note, "dim"), (0, 0, 0, 2))


def _exceptions(stack: Stack) -> Iterator[str]:
    """Lines about sub-layers whose placement is not known, not sure, or not that of the stack."""
    for group in words.same_sublayers(stack):
        members = [stack.sublayers[i] for i in group]
        first = members[0]
        known = first.placement and first.confidence == "sure"
        if known and first.placement == stack.placement:
            continue
        where = (
            f"{kind_name(first.kind)}, block {words.block_span(found.block for found in members)}"
        )
        yield f"{where}: {words.placement_words(first)}" + (
            "" if known else f", observed {first.formula}"
        )
