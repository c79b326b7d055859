"""Placements as a result that can be read and shown in a notebook."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..catalogue.details import Details, details
from ..catalogue.notebook import details_html, list_html
from ..catalogue.rows import Row, Size, row, rows, sized
from ..placement import named
from ..placement.base import ModelKind


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Placements(Mapping[str, Details]):
    """What can be said of placements at one size, read from their formulas: `found["deepnorm"].constants`."""

    size: Size
    table: list[Row]
    """A row each, in alphabetical order, variants below what they are variants of."""
    asked: tuple[str, ...]
    """Those that were named; none where all were asked for."""

    def __getitem__(self, name: str) -> Details:
        """Everything about one. Raises KeyError for one that is not among them."""
        if name not in list(self):
            raise KeyError(f"{name!r} is not among them; there are {', '.join(self)}")
        return details(named(name), self.size)

    def __iter__(self) -> Iterator[str]:
        return iter(row.name for row in self.table)

    def __len__(self) -> int:
        return len(self.table)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `normscope placements --json` or, where some were named, `placements show` prints them."""
        if not self.asked:
            return {"size": asdict(self.size), "placements": [asdict(row) for row in self.table]}
        return {name: asdict(self[name]) for name in self}

    def __repr__(self) -> str:
        names = ", ".join(self.asked) or f"all {len(self)}"
        return f"Placements({names}; {self.size})"

    def _repr_html_(self) -> str:
        if not self.asked:
            return list_html(self.table, self.size)
        return details_html({name: self[name] for name in self}, self.size)


def placements(
    *names: str,
    model: ModelKind = "encoder-decoder",
    blocks: int | str = 6,
    width: int = 512,
    ffn_width: int = 2048,
    heads: int = 8,
) -> Placements:
    """Formula, source, initial weights, wiring and cost of these placements, or a row of each that there is.

    model, blocks, width, ffn_width, heads: what numbers are stated for; blocks="6+3" gives encoder and decoder their
    own. Raises ValueError for an unknown placement, one that is not defined for the model, or a size that is none.
    """
    size = sized(model, str(blocks), width, ffn_width, heads)
    asked = tuple(dict.fromkeys(named(name).name for name in names))
    for name in asked:
        details(named(name), size)
    table = [row(named(name), size) for name in asked] if asked else [one for one in rows(size) if one.stacks]
    return Placements(size=size, table=table, asked=asked)
