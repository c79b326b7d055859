"""What is known for a model one wants to train, as a result that can be read and shown in a notebook."""

from dataclasses import dataclass
from typing import Any

from ..choosing.case import Case
from ..choosing.choice import Choice as Found
from ..choosing.choice import choose as chosen
from ..choosing.parts import parts
from ..choosing.plain import plain
from ..placement.base import ModelKind
from ..report.notebook import fragment, heading, paragraph, table


@dataclass(frozen=True, slots=True, repr=False)
class Choice:
    """The evidence for a case; the manual's page on choosing says how it is ranked and judged."""

    found: Found
    """Everything, as values."""

    def groups(self, question: str) -> dict[str, list[str]]:
        """Placements by what is known of them: supported, contradicted, undecided, not known.

        question: "lower-loss", "no-warmup", "rate-over-depth" or "rate-over-width". Raises KeyError for another.
        """
        answered = {one.question.name: one for one in self.found.answers}
        if question not in answered:
            raise KeyError(f"{question!r} is not asked; there are {', '.join(answered)}")
        groups: dict[str, list[str]] = {}
        for claim in answered[question].claims:
            groups.setdefault(claim.group, []).append(claim.placement)
        return groups

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `normscope choose --json` prints them."""
        return plain(self.found)

    def __repr__(self) -> str:
        return f"Choice({self.found.case})"

    def _repr_html_(self) -> str:
        shown = [heading(f"Placement, learning rate and warm-up for: {self.found.case}")]
        for part in parts(self.found):
            shown += [heading(part.heading), *map(paragraph, part.before)]
            for one in part.tables:
                shown += [paragraph(f"{one.title}:")] if one.title else []
                shown.append(table(one.columns, one.rows))
            shown += map(paragraph, part.after)
        return fragment(shown)


def choose(
    *placements: str,
    model: ModelKind = "decoder-only",
    blocks: int,
    width: int,
    optimizer: str = "adamw",
    tokens: float | None = None,
) -> Choice:
    """Which placements, rates and warm-ups are supported by which evidence, for a model that one wants to train.

    placements: those to look at; all that the model can have where none is named. blocks: of each stack. tokens: of the
    whole training; None for not compared. Raises ValueError for what is unknown or not defined for the model.
    """
    case = Case(model=model, blocks=blocks, width=width, optimizer=optimizer, tokens=tokens)
    return Choice(chosen(case, placements))
