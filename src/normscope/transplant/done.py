"""The record of a transplant, and its summary in words."""

from dataclasses import dataclass
from typing import Any, Literal

from .weights import DrawnMatrix, patterns

_SHOWN = 12
"""Kinds of parameters that are named in a line."""
_ALIKE = 0.1
"""Sizes of entries that differ by less are taken for draws of one law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transplanted:
    """The record of a transplant; the model keeps it as its `transplanted`."""

    placement: str
    before: str
    """The placement until then; "" where that had no name."""
    initialise: Literal["draw", "keep"]
    reason: str
    """The reason why its weights were drawn or kept: what was asked, or what was found."""
    stack: str | tuple[str, ...] | None
    """The one, or those, that were named."""
    stacks: tuple[str, ...]
    blocks: tuple[str, ...]
    norms: tuple[str, ...]
    """Modules that are passed over in the model's own forward."""
    readers: tuple[str, ...]
    """Modules that are handed what they read of the stream."""
    normed: tuple[str, ...] = ()
    """Modules that make queries or keys, which are normed; the attentions themselves where norms
    stand after rotary positions."""
    frozen: tuple[str, ...]
    """Parameters that nothing reads any more, and that are not trained until `untransplant`."""
    added: tuple[str, ...]
    """Parameters of the placement, which are trained whatever was frozen before."""
    drawn: tuple[DrawnMatrix, ...]
    """Matrices that were drawn, in their order; none where weights are kept."""
    kept: tuple[str, ...]
    """Parameters of the blocks that were left as they were while others were drawn."""
    change: float | None
    """The change of the outputs on the batch: the root mean square of the difference over that of
    the outputs before. 0 where they are the same bits; None where weights were drawn, or were read
    from a folder.
    """
    source: str
    """The folder that all weights are from; "" without one."""

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings with which the same transplant can be done again."""
        stack = list(self.stack) if isinstance(self.stack, tuple) else self.stack
        return {"placement": self.placement, "initialise": self.initialise, "stack": stack}

    def lines(self) -> list[str]:
        """Returns what the transplant did, in words."""
        where = ", ".join(one or "the model" for one in self.stacks)
        known = self.before or "no placement that has a name"
        told = []
        if self.blocks:
            plain = self.placement.partition("+")[0]
            told.append(
                f"{where}: from {known} to {plain}, named by the doctor in each of "
                f"{len(self.blocks)} blocks"
            )
        if self.normed:
            words = self.placement.partition("+")[2]
            modules = listed(self.normed)
            place = f"they norm what {modules} give"
            if "after" in words.split("-"):
                place = f"they stand where these meet in {modules}, after rotary positions"
            told.append(
                f"{where}: norms on the queries and keys of every attention ({words}), read by the "
                f"doctor in each; {place}"
            )
        if self.added:
            told.append(f"added, and trained: {len(self.added)} parameters of the placement")
        if self.frozen:
            told.append(
                f"frozen, since nothing reads them any more: {len(self.frozen)} parameters of norms"
            )
        return [*told, *self.weight_lines()]

    def weight_lines(self) -> list[str]:
        """Returns what the transplant did with the weights, and the reason."""
        if self.source:
            return [f"weights are those of {self.source}"]
        if self.change is not None:
            return [
                f"weights are kept: {self.reason}; outputs on the batch change by "
                f"{self.change:.2g} of their size"
            ]
        told = [
            f"weights of the sub-layers are drawn as the placement wants them: {self.reason}",
            f"drawn: {listed([one.parameter for one in self.drawn])}",
        ]
        if self.kept:
            told.append(f"kept as they were: {listed(self.kept)}")
        return told

    @property
    def resized(self) -> str:
        """The parts whose entries were drawn in another size than they had, each with the factors,
        in words; "" where there are none.
        """
        opened = dict.fromkeys(one.part for one in self.drawn if one.before == 0 < one.after)
        factors: dict[str, list[float]] = {}
        for one in self.drawn:
            if one.before > 0:
                factors.setdefault(one.part, []).append(one.after / one.before)
        told = [f"{part} from 0" for part in opened]
        for part, every in factors.items():
            low, high = min(every), max(every)
            if high > 1 + _ALIKE or low < 1 - _ALIKE:
                span = f"{low:.2g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g} to {high:.2g}"
                told.append(f"{part} {span} times")
        return ", ".join(told)


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names with stars for the numbers of blocks, the first few of very many."""
    every = patterns(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return f"{', '.join(every[:_SHOWN])}{more}"
