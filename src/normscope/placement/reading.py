"""Read a placement's formula with symbols for every block of a stack: which norms and parameters it asks for."""

from collections.abc import Sequence
from dataclasses import dataclass

from .base import Placement, Site, State, SublayerKind
from .symbol import Symbol, SymbolEnd, SymbolSublayer, symbol_sublayer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a placement's formula asks for in one stack."""

    start: SymbolEnd
    blocks: tuple[tuple[SymbolSublayer, ...], ...]
    finish: SymbolEnd

    @property
    def schedules(self) -> dict[str, float]:
        """Every number that follows a schedule, with its value before the first update."""
        everyone: tuple[SymbolEnd | SymbolSublayer, ...] = (
            self.start,
            *(sublayer for block in self.blocks for sublayer in block),
            self.finish,
        )
        return {name: initial for asked in everyone for name, initial in asked.schedules.items()}


def read(placement: Placement, kinds: Sequence[SublayerKind] | None = None) -> Reading:
    """Run the formula over symbols for every block of the placement's stack.

    kinds: sub-layers of a block, in order; without them, those of such a stack.
    """
    start, finish = SymbolEnd(), SymbolEnd()
    state = named_parts(placement.start(Symbol("x", (), placement.stack.width), start), placement)
    blocks = []
    for block in range(1, placement.stack.blocks + 1):
        sublayers = tuple(
            symbol_sublayer(Site(kind=kind, block=block, stack=placement.stack))
            for kind in kinds or placement.stack.kinds
        )
        state = named_parts(placement.block(state, sublayers), placement)
        blocks.append(sublayers)
    placement.finish(state, finish)
    return Reading(start=start, blocks=tuple(blocks), finish=finish)


def read_head(placement: Placement, vocabulary: int) -> SymbolEnd:
    """What the formula asks for over a tied output projection of so many rows."""
    head = SymbolEnd()
    placement.output_rows(Symbol("E", (), placement.stack.width), head, vocabulary)
    return head


def parts(state: State) -> tuple[Symbol | tuple[Symbol, ...], ...]:
    """The parts of a state, one for each stream."""
    return tuple(state) if isinstance(state, tuple) else (state,)


def named_parts(state: State, placement: Placement) -> State:
    """The state with expressions replaced by the names of its streams, so that a formula does not grow with depth."""
    found, names = parts(state), placement.streams
    if len(names) != len(found):
        raise ValueError(
            f"placement {placement.name!r} names {len(names)} streams ({', '.join(names)}) "
            f"and its state has {len(found)} parts"
        )
    renamed = tuple(
        tuple(_named(value, name) for value in part) if isinstance(part, tuple) else _named(part, name)
        for name, part in zip(names, found, strict=True)
    )
    return renamed if isinstance(state, tuple) else renamed[0]


def _named(value: Symbol, name: str) -> Symbol:
    # A long history has its names already, all but its newest value.
    return value if value.op == name and not value.arguments else Symbol(name, (), value.width)
