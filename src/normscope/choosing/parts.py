"""The answer for a model, in sections of sentences and tables: for the terminal, the manual and
notebooks alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich import table as rich
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

from ..report.words import counted, interval, joined, learning_rate, number, significant
from .case import NEAR
from .choice import GROUPS, EvidenceForModel, QuestionAnswers, published_near
from .evidence import AdviceClaim, Published
from .recommending import recommended

_FIRST = 3
"""The number of a group's members that are named in short."""
_NAMED = 20
"""The number of placements without evidence that are named, and counted beyond."""
_SCALES = {
    "small-scale": ", evidence is only small-scale",
    "other size": ", evidence is of another size",
    "near": "",
}
_BY_OTHERS = {"read": "read at the place cited", "second-hand": "read in another text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Cells are text already."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A heading with what stands below it: sentences, tables, sentences."""

    heading: str
    before: Sequence[str] = ()
    tables: Sequence[TextTable] = ()
    after: Sequence[str] = ()


def parts(choice: EvidenceForModel) -> list[PageSection]:
    """Returns everything that is known, the conclusion first."""
    return [
        *own_parts(choice),
        advice_part(choice.advice),
        published_part(choice.case.model, choice.published),
    ]


def own_parts(choice: EvidenceForModel) -> list[PageSection]:
    """Returns the sections about this case and no other."""
    lines = recommended(choice)
    return [
        PageSection(
            heading="What we would do", before=[f"{one.what}: {one.says}" for one in lines]
        ),
        PageSection(heading="How sure, and how to check", before=[f"- {one.why}" for one in lines]),
        _conclusion(choice),
        _evidence(choice),
        # Pre-LN is not compared with itself.
        *(_answer(choice, answered) for answered in choice.answers if answered.claims),
        _rates(choice),
        _theory(choice),
    ]


def advice_part(advice: Sequence[AdviceClaim]) -> PageSection:
    """Returns how often the doctor was right, in the words of its study."""
    said = [
        f"- {one.statement} Found: {one.found}: {one.verdict} (results/{one.result})."
        for one in advice
    ]
    before = (
        "Of small training runs in families that the law, then with one constant for normalised "
        "sums, was not fitted to:"
    )
    return PageSection(
        heading="How often the doctor's own rates and warm-ups were right", before=[before, *said]
    )


def published_part(model: str, published: Sequence[Published]) -> PageSection:
    """Each with its source, and whether we have read it."""
    said = []
    for one in published:
        size = [f"{joined([str(blocks) for blocks in one.blocks])} blocks"] if one.blocks else []
        size += [f"width {joined([str(width) for width in one.width])}"] if one.width else []
        size += [one.optimizer] if one.optimizer else []
        where = f"{one.citation}; {', '.join(size) or 'size not known'}; {_BY_OTHERS[one.checked]}"
        said.append(f"- {one.claim} ({where})")
    return PageSection(
        heading=f"Published by others for {model} models",
        before=said or ["Nothing that we know of and can cite."],
    )


def _conclusion(choice: EvidenceForModel) -> PageSection:
    said = []
    if not choice.measured:
        said.append(
            f"Nothing of ours compares placements in {choice.case.model} models under "
            f"{choice.case.optimizer}."
        )
    elif all(one.scale == "small-scale" for one in choice.measured):
        said.append(
            f"By more than {NEAR:g} times this model exceeds all that counts here: evidence is "
            "small-scale."
        )
    elif any(one.scale == "near" for one in choice.measured):
        near = [f"results/{one.setting.name}" for one in choice.measured if one.scale == "near"]
        said.append(f"Near this size was measured {joined(near)}; all else is further away.")
    else:
        said.append("Evidence of ours is of other sizes than this model's.")
    for answered in (one for one in choice.answers if one.claims):
        groups = []
        for group in GROUPS[:3]:
            names = [claim.placement for claim in answered.of(group)]
            if names:
                groups.append(f"{group}: {_first(names)}")
        said.append(
            f"{answered.question.heading} "
            f"{'; '.join(groups or ['not measured by us']).capitalize()}."
        )
    for one in published_near(choice)[:1]:
        said.append(f"Published near this size: {one.claim} ({one.citation})")
    return PageSection(heading="In short", before=said)


def _first(names: Sequence[str]) -> str:
    """Returns the strongest by name, the others by their number."""
    return joined(
        names if len(names) <= _FIRST + 1 else [*names[:_FIRST], f"{len(names) - _FIRST} more"]
    )


def _evidence(choice: EvidenceForModel) -> PageSection:
    words = {"depth": "as deep", "width": "as wide", "tokens": "the tokens"}
    rows = []
    for one in choice.measured:
        setting, optimizers = one.setting, ", ".join(one.optimizers)
        away = ", ".join(
            f"{significant(times, 3)} × {words[what]}"
            for what, times in one.distance.factors.items()
        )
        length = (f"{setting.tokens:,}", f"{setting.updates:,}")
        rows.append(
            [
                setting.name,
                optimizers,
                _span(setting.blocks),
                _span(setting.width),
                *length,
                away,
                one.scale,
            ]
        )
    columns = (
        "results/",
        "optimiser",
        "blocks",
        "width",
        "tokens",
        "updates",
        "this model is",
        "scale",
    )
    rule = (
        f"What was measured within a factor of {NEAR:g} of this model in depth, width and tokens "
        "is called near; what this model exceeds by more in one of them is small-scale. Of an "
        "encoder-decoder, blocks are those of a stack."
    )
    tables = [TextTable(columns=columns, rows=rows)] if rows else []
    return PageSection(heading="Evidence that counts here", before=[rule], tables=tables)


def _answer(choice: EvidenceForModel, answered: QuestionAnswers) -> PageSection:
    question = answered.question
    tables = []
    for group in GROUPS[:3]:
        claims = answered.of(group)
        scales = {choice.scale(finding.setting) for claim in claims for finding in claim.findings}
        one_scale = scales.pop() if len(scales) == 1 else ""
        columns = [
            "placement",
            "difference",
            "seeds",
            "results/",
            *([] if one_scale else ["scale"]),
            "remark",
        ]
        rows = []
        for claim in claims:
            for place, finding in enumerate(claim.findings):
                remark = finding.note
                if claim.disagree:
                    remark = "; ".join(
                        filter(None, [f"{finding.answer} here, and results point apart", remark])
                    )
                name, difference = (
                    "" if place else claim.placement,
                    interval(finding.mean, finding.half_width),
                )
                where, scale = (
                    _where(choice, finding.setting, finding.optimizer),
                    choice.scale(finding.setting),
                )
                rows.append(
                    [
                        name,
                        difference,
                        str(finding.seeds),
                        where,
                        *([] if one_scale else [scale]),
                        remark,
                    ]
                )
        if rows:
            tables.append(
                TextTable(title=f"{group}{_SCALES.get(one_scale, '')}", columns=columns, rows=rows)
            )
    unknown = [claim.placement for claim in answered.of("not known")]
    names = f": {', '.join(unknown)}" if len(unknown) <= _NAMED else ""
    after = [f"Not measured by us like this: {counted(len(unknown), 'placement')}{names}."] * bool(
        unknown
    )
    rule = f"{question.rule[0].upper()}{question.rule[1:]}; in {question.unit}."
    return PageSection(
        heading=question.heading, before=[rule] if tables else [], tables=tables, after=after
    )


def _rates(choice: EvidenceForModel) -> PageSection:
    rows = [
        [
            rate.placement,
            f"{rate.warmup_updates} updates" if rate.warmup_updates else "none",
            learning_rate(rate.peak_lr) + (" *" if rate.at_an_end else ""),
            f"{learning_rate(rate.ladder[0])} to {learning_rate(rate.ladder[1])}",
            number(sum(rate.loss_nats) / len(rate.loss_nats)),
            str(len(rate.loss_nats)),
            _where(choice, rate.setting, rate.optimizer),
            choice.scale(rate.setting),
        ]
        for rate in choice.rates
    ]
    columns = (
        "placement",
        "warm-up",
        "best rate",
        "tried",
        "mean loss",
        "seeds",
        "results/",
        "scale",
    )
    heading, tables = (
        "Which rate was best, with which warm-up?",
        [TextTable(columns=columns, rows=rows)] * bool(rows),
    )
    after = "Not known: no learning-rate sweep was trained in such a model under this optimiser."
    if rows:
        after = (
            "An asterisk marks the first or last rate of the sweep: a better one may lie beyond."
        )
    return PageSection(heading=heading, tables=tables, after=[after])


def _theory(choice: EvidenceForModel) -> PageSection:
    depths = {one.placement: one for one in choice.depths}
    rows = []
    for one in choice.theory.foreseen:
        seen = depths.get(one.placement)
        measured = "–" if seen is None else seen.behaviour
        if seen is not None and seen.exponent:
            measured += f", exponent {number(seen.exponent)}"
        numbers = (one.start_square, one.end_square, one.first_gradient, one.last_gradient)
        rows.append([one.placement, *(significant(value, 3) for value in numbers), measured])
    last = f"measured over {choice.depth_blocks:,} blocks of width 64"
    columns = ("placement", "E‖x_0‖²/d", "E‖x_L‖²/d", "first gradient", "last gradient", last)
    before = [
        f"This is theory of initial weights, at {counted(choice.case.blocks, 'block')} of width "
        f"{choice.case.width:,}, and no training: the stream's mean square before the first and "
        "after the last block, and the gradient norms of the feed-forward's second matrix in both; "
        "feed-forward four times the width. Norms, schedules and optimisers change what follows "
        "from them.",
        f"Computed by `{choice.theory.command}`. The last column was measured on encoders of width "
        "64 at initialisation (results/depth): how the root mean square moves with depth.",
    ]
    after = (
        [f"Theory does not follow {joined(list(choice.theory.refused))}."]
        if choice.theory.refused
        else []
    )
    tables = [TextTable(columns=columns, rows=rows)]
    return PageSection(
        heading="What depth does, by theory", before=before, tables=tables, after=after
    )


def _where(choice: EvidenceForModel, setting: str, optimizer: str) -> str:
    """Returns the folder of results/, what else tells one setting of it from another, and another
    optimiser that counts.
    """
    return setting if optimizer == choice.case.optimizer else f"{setting}, {optimizer}"


def _span(sizes: tuple[int, int]) -> str:
    return f"{sizes[0]:,}" if sizes[0] == sizes[1] else f"{sizes[0]:,} to {sizes[1]:,}"


_WRAPPED = ("remark", "this model is", "optimiser")
"""Columns of words; numbers with their intervals are read as one."""


def sections_view(title: str, sections: Sequence[PageSection]) -> RenderableType:
    """Sections below a title."""
    return Group(Text(title, style="bold"), *map(_part, sections))


def choice_view(choice: EvidenceForModel, *, tables: bool = False) -> RenderableType:
    """The parts below the case: all of them, or without `tables` what we would do and why."""
    title = Text(f"Placement, learning rate and warm-up for: {choice.case}", style="bold")
    if tables:
        return Group(title, *map(_part, parts(choice)))
    more = (
        "`normscope choose --long` adds every number with its source, theory, and what others "
        "published."
    )
    return Group(title, *map(_part, own_parts(choice)[:3]), Text(f"\n{more}"))


def _part(part: PageSection) -> RenderableType:
    return Group(
        "", Text(part.heading, style="bold"), Padding(Group(*_content(part)), (0, 0, 0, 2))
    )


def _content(part: PageSection) -> Iterator[RenderableType]:
    yield from map(Text, part.before)
    for table in part.tables:
        if table.title:
            yield Text(f"\n{table.title}:")
        yield _Table(table)
    yield from map(Text, part.after)


class _Table:
    """A table, or its rows one below another where the console is too narrow for the longest words
    of its columns.
    """

    def __init__(self, table: TextTable) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = _drawn(self.table)
        if (
            Measurement.get(console, options.update(max_width=10_000), drawn).minimum
            <= options.max_width
        ):
            yield drawn
            return
        for row in self.table.rows:
            cells = [
                f"{name} {cell}" for name, cell in zip(self.table.columns, row, strict=True) if cell
            ]
            yield Text(f"- {', '.join(cells)}")


def _drawn(table: TextTable) -> rich.Table:
    drawn = rich.Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for place, heading in enumerate(table.columns):
        if heading in _WRAPPED:
            drawn.add_column(heading, overflow="fold")
            continue
        unbroken = heading.split() + [row[place] for row in table.rows]
        room = max(map(len, unbroken))
        drawn.add_column("\n".join(wrap(heading, room)), no_wrap=True, min_width=room)
    for row in table.rows:
        drawn.add_row(*row)
    return drawn
