"""Placements, and what is known of them for a model, as results that can be read and shown in a
notebook.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, overload

from ..catalogue.details import Details, details
from ..catalogue.rows import PlacementRow, Size, row, rows, sized
from ..catalogue.views import details_html, details_view, list_html, list_table
from ..choosing.case import ModelToTrain
from ..choosing.choice import EvidenceForModel as Found, choose as chosen
from ..choosing.parts import PageSection, choice_view, parts, sections_view
from ..choosing.query_key import (
    QueryKeyAnswer,
    answer,
    answer_parts,
    is_asked_by,
    title_of,
)
from ..choosing.recommending import plain
from ..optim.optimizers import OptimizerName
from ..placement import named
from ..placement.base import ModelKind
from ..report.notebook import fragment, heading, paragraph, table
from ..report.words import plain_text
from ..settings.validation import checked


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Placements(Mapping[str, Details]):
    """The details of placements at one size, read from their formulas:
    `found["deepnorm"].constants`.
    """

    size: Size
    table: list[PlacementRow]
    """A row each, in alphabetical order, variants below what they are variants of."""
    asked: tuple[str, ...]
    """The placements that were named; empty where all were asked for."""

    def __getitem__(self, name: str) -> Details:
        """Returns everything about one. Raises KeyError for one that is not among them."""
        if name not in list(self):
            raise KeyError(f"{name!r} is not among them; there are {', '.join(self)}")
        return details(named(name), self.size)

    def __iter__(self) -> Iterator[str]:
        return iter(row.name for row in self.table)

    def __len__(self) -> int:
        return len(self.table)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, as `normscope placements --json` or, where some were named,
        `placements show` prints them.
        """
        if not self.asked:
            return {"size": asdict(self.size), "placements": [asdict(row) for row in self.table]}
        return {name: asdict(self[name]) for name in self}

    def __str__(self) -> str:
        """Returns the text that the terminal shows."""
        if not self.asked:
            return plain_text(list_table(self.table, self.size))
        found = [self[name] for name in self]
        return plain_text(*(details_view(one, self.size, next(iter(one.wiring))) for one in found))

    def __repr__(self) -> str:
        names = ", ".join(self.asked) or f"all {len(self)}"
        return f"Placements({names}; {self.size})"

    def _repr_html_(self) -> str:
        if not self.asked:
            return list_html(self.table, self.size)
        return details_html({name: self[name] for name in self}, self.size)


@checked
def placements(
    *names: str,
    model: ModelKind = "encoder-decoder",
    blocks: int | str = 6,
    width: int = 512,
    ffn_width: int = 2048,
    heads: int = 8,
) -> Placements:
    """Returns formula, source, initial weights, wiring and cost of these placements, or a row of
    each that there is.

    What is shown:
        names: of placements, such as pre-ln; without one, a row of each that there is.

    The model that numbers are stated for:
        model: encoder-only, decoder-only or encoder-decoder.
        blocks: of a stack; "6+3" gives encoder and decoder their own.
        width: of the model.
        ffn_width: the inner width of the feed-forward.
        heads: number of attention heads.

    Raises ValueError for an unknown placement, one that is not defined for the model, or a size
    that is none.
    """
    size = sized(model, str(blocks), width, ffn_width, heads)
    asked = tuple(dict.fromkeys(named(name).name for name in names))
    for name in asked:
        details(named(name), size)
    table = (
        [row(named(name), size) for name in asked]
        if asked
        else [one for one in rows(size) if one.stacks]
    )
    return Placements(size=size, table=table, asked=asked)


@dataclass(frozen=True, slots=True, repr=False)
class Choice:
    """The evidence for a case; the manual's page on choosing says how it is ranked and judged."""

    found: Found
    """Everything, as values."""

    def groups(self, question: str) -> dict[str, list[str]]:
        """Returns the placements by what is known of them: supported, contradicted, undecided, not
        known.

        What is asked:
            question: "lower-loss" or "no-warmup".

        Raises KeyError for another.
        """
        answered = {one.question.name: one for one in self.found.answers}
        if question not in answered:
            raise KeyError(f"{question!r} is not asked; there are {', '.join(answered)}")
        groups: dict[str, list[str]] = {}
        for claim in answered[question].claims:
            groups.setdefault(claim.group, []).append(claim.placement)
        return groups

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, as `normscope choose --json` prints them."""
        return plain(self.found)

    def __str__(self) -> str:
        """Returns the text that the terminal shows."""
        return plain_text(choice_view(self.found))

    def __repr__(self) -> str:
        return f"Choice({self.found.case})"

    def _repr_html_(self) -> str:
        title = f"Placement, learning rate and warm-up for: {self.found.case}"
        return _sections_html(title, parts(self.found))


@dataclass(frozen=True, slots=True, repr=False)
class QueryKeyChoice:
    """The evidence on norms of queries and keys for a case; such norms go with any placement."""

    found: QueryKeyAnswer
    """Everything, as values: what we would do, how sure that is, and the command that decides."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, as `normscope choose qk-norm --json` prints them."""
        return self.found.plain()

    def __str__(self) -> str:
        """Returns the text that the terminal shows."""
        return plain_text(sections_view(title_of(self.found), answer_parts(self.found)))

    def __repr__(self) -> str:
        return f"QueryKeyChoice({self.found.case})"

    def _repr_html_(self) -> str:
        return _sections_html(title_of(self.found), answer_parts(self.found))


def _sections_html(title: str, sections: Iterable[PageSection]) -> str:
    """Returns the HTML that a notebook shows of sections below a title."""
    shown = [heading(title)]
    for part in sections:
        shown += [heading(part.heading), *map(paragraph, part.before)]
        for one in part.tables:
            shown += [paragraph(f"{one.title}:")] if one.title else []
            shown.append(table(one.columns, one.rows))
        shown += map(paragraph, part.after)
    return fragment(shown)


@overload
def choose(  # type: ignore[overload-overlap]  # the word is no placement's
    placement: Literal["qk-norm"],
    /,
    *,
    model: ModelKind = "decoder-only",
    blocks: int,
    width: int,
    optimizer: OptimizerName = "adamw",
    tokens: float | None = None,
    batch_tokens: float | None = None,
) -> QueryKeyChoice: ...


@overload
def choose(
    *placements: str,
    model: ModelKind = "decoder-only",
    blocks: int,
    width: int,
    optimizer: OptimizerName = "adamw",
    tokens: float | None = None,
    batch_tokens: float | None = None,
) -> Choice: ...


@checked
def choose(
    *placements: str,
    model: ModelKind = "decoder-only",
    blocks: int,
    width: int,
    optimizer: OptimizerName = "adamw",
    tokens: float | None = None,
    batch_tokens: float | None = None,
) -> Choice | QueryKeyChoice:
    """Chooses placements, rates and warm-ups for a model that one wants to train, with the evidence
    for each.

    The model to train:
        placements: those to look at; all that the model can have where none is named. "qk-norm"
            alone asks about norms on queries and keys instead, which go with any placement.
        model: encoder-only, decoder-only or encoder-decoder.
        blocks: of each stack.
        width: of the model.
        optimizer: a name in `normscope.optim.OPTIMIZERS`.
        tokens: of the whole training; None for not compared.
        batch_tokens: of one update; the best rate hangs on it, and without it three are named.

    Raises ValueError for what is unknown or not defined for the model, and for a placement beside
    "qk-norm".
    """
    about_norms = is_asked_by(placements)
    case = ModelToTrain(
        model=model,
        blocks=blocks,
        width=width,
        optimizer=optimizer,
        tokens=tokens,
        batch_tokens=batch_tokens,
    )
    if about_norms:
        return QueryKeyChoice(answer(case))
    return Choice(chosen(case, placements))
