"""A row a placement: formula, source, norms, parameters and cost, all counted from the formula for
a stated size.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, cast, get_args

from ..placement import Placement, StackShape, named, registered
from ..placement.base import ModelKind
from ..placement.printing import brief_lines, lines
from ..placement.reading import Cost, Reading, block_cost, read

StackName = Literal["encoder", "decoder"]
BASELINE = "pre-ln"
"""The placement that costs are compared with: one norm and one addition a sub-layer is the least
that a normed residual needs.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The model that numbers are stated for."""

    model: ModelKind = "encoder-decoder"
    width: int = 512
    ffn_width: int = 2048
    heads: int = 8
    encoder_blocks: int = 6
    """0 in a decoder-only model, as `decoder_blocks` in an encoder-only one."""
    decoder_blocks: int = 6

    def __post_init__(self) -> None:
        for name in ("width", "ffn_width", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}"
                )
        if self.width % self.heads:
            raise ValueError(
                f"width must be a multiple of heads, got width {self.width} and {self.heads} heads"
            )

    @property
    def shapes(self) -> dict[StackName, StackShape]:
        """The model's stacks."""
        kinds: tuple[StackName, ...] = ("encoder", "decoder")
        return {
            kind: StackShape(
                kind=kind,
                width=self.width,
                ffn_width=self.ffn_width,
                heads=self.heads,
                encoder_blocks=self.encoder_blocks,
                decoder_blocks=self.decoder_blocks,
            )
            for kind in kinds
            if (self.encoder_blocks if kind == "encoder" else self.decoder_blocks)
        }

    def __str__(self) -> str:
        blocks = "+".join(str(shape.blocks) for shape in self.shapes.values())
        return (
            f"{self.model}, {blocks} blocks, width {self.width}, feed-forward {self.ffn_width}, "
            f"{self.heads} heads"
        )


def sized(model: str, blocks: str, width: int, ffn_width: int, heads: int) -> Size:
    """Returns a size from options. blocks: "6" for every stack, or "6+3" for encoder and decoder.
    Raises ValueError.
    """
    if model not in get_args(ModelKind):
        raise ValueError(f"model must be one of {', '.join(get_args(ModelKind))}, got {model!r}")
    counts = blocks.split("+")
    both = model == "encoder-decoder"
    if not all(count.isdigit() and int(count) for count in counts) or len(counts) > (
        2 if both else 1
    ):
        allowed = (
            "a number such as 6, or one for each stack such as 6+3"
            if both
            else f"one number for {model} models"
        )
        raise ValueError(f"blocks must be {allowed}, got {blocks!r}")
    return Size(
        model=cast(ModelKind, model),
        width=width,
        ffn_width=ffn_width,
        heads=heads,
        encoder_blocks=0 if model == "decoder-only" else int(counts[0]),
        decoder_blocks=0 if model == "encoder-only" else int(counts[-1]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StackFacts:
    """The formula's requirements in one stack; lists have an entry for every block."""

    formula: list[str]
    brief_formula: list[str]
    """The formula without the numbers of a token, and with the first of several streams alone."""
    final_norm: bool
    norms: list[int]
    extra_parameters: list[int]
    """Trainable numbers of the formula itself: neither F's matrices nor what the norms own."""
    last_block_cost: Cost
    last_block_cost_ratio: float
    """The ratio of that cost to the cost of `BASELINE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRow:
    """One placement; `stacks` is empty where it is not defined for the model."""

    name: str
    title: str
    variant_of: str
    year: int
    citation: str
    models: list[ModelKind]
    stacks: dict[StackName, _StackFacts] = field(default_factory=dict)
    general_formula: list[str]
    """For a stack of the default size, where the placement is not defined for the model asked
    for.
    """


def rows(size: Size) -> list[PlacementRow]:
    """Returns all registered placements."""
    return [row(placement, size) for placement in in_order()]


def in_order() -> list[type[Placement]]:
    """Returns all registered placements in alphabetical order, each followed by its variants."""
    known = registered()
    heads = [p for p in known.values() if p.variant_of not in known]
    found = []
    for head in heads:
        found += [head, *(p for p in known.values() if p.variant_of == head.name)]
    # A variant of a variant, or of a name nobody registered, must not be lost.
    return found + [p for p in known.values() if p not in found]


def row(placement: type[Placement], size: Size) -> PlacementRow:
    """Returns one placement for a model of that size."""
    defined = size.model in placement.models
    stacks = {}
    if defined:
        for kind, shape in size.shapes.items():
            stacks[kind] = facts(placement, shape)  # type: ignore[arg-type]
    return PlacementRow(
        name=placement.name,
        title=placement.title,
        variant_of=placement.variant_of,
        year=placement.year,
        citation=placement.citation,
        models=list(placement.models),
        stacks=stacks,
        general_formula=[] if defined else lines(placement),
    )


@cache
def facts(placement: type[Placement], stack: StackShape) -> _StackFacts:
    """One stack; the list and the pages ask for the same ones."""
    reading = read(placement(stack))
    cost = block_cost(placement(stack), stack.blocks)
    baseline = block_cost(named(BASELINE)(stack), stack.blocks)
    return _StackFacts(
        formula=lines(placement, stack),
        brief_formula=brief_lines(placement, stack),
        final_norm=bool(reading.finish.norm.widths),
        norms=_norms_of_blocks(reading),
        extra_parameters=extra_parameters(reading),
        last_block_cost=cost,
        last_block_cost_ratio=cost.total / baseline.total,
    )


def _norms_of_blocks(reading: Reading) -> list[int]:
    """Counts the norms of every block."""
    counts = []
    for block in reading.blocks:
        counts.append(sum(len(sublayer.norm.widths) for sublayer in block))
    return counts


def extra_parameters(reading: Reading) -> list[int]:
    """Returns the trainable numbers of every block; one that its sub-layers share counts once."""
    counts = []
    for block in reading.blocks:
        shared: Mapping[str, tuple[int, ...]] = {
            name: p.shape
            for sublayer in block
            for name, p in sublayer.parameters.items()
            if p.shared_by_block
        }
        own = [
            p.shape
            for sublayer in block
            for p in sublayer.parameters.values()
            if not p.shared_by_block
        ]
        counts.append(sum(math.prod(shape) for shape in [*own, *shared.values()]))
    return counts
