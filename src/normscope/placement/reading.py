"""Read a placement's formula with symbols for every block of a stack: which norms and parameters it asks for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .base import Placement, Site, StackShape, State, SublayerKind
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
    state = placement.start(Symbol("x", (), placement.stack.width), start)
    blocks = []
    for step in walk(placement, state, kinds):
        blocks.append(step.sublayers)
        state = step.after
    placement.finish(named_parts(state, placement), finish)
    return Reading(start=start, blocks=tuple(blocks), finish=finish)


def formula_fault(placement: type[Placement]) -> str:
    """Why no model can be made of the formula, whatever its size; empty where a small stack of it can be read.

    What depends on the size of a stack is left to whoever reads that stack.
    """
    decoder = "encoder-only" not in placement.models
    shape = StackShape(
        kind="decoder" if decoder else "encoder",
        width=64,
        heads=4,
        encoder_blocks=4 if placement.models != ("decoder-only",) else 0,
        decoder_blocks=4 if decoder else 0,
    )
    try:
        read(placement(shape))
    except (AttributeError, NameError, NotImplementedError, TypeError) as error:
        said = " ".join(str(error).split())
        return (
            f"its formula cannot be read ({type(error).__name__}: {said}); join must return the state after a "
            "sub-layer, such as norm(x + sublayer(x)), made by Python's operators and normscope.placement.operations "
            "and by nothing of torch, since x is not always a tensor"
        )
    except (ArithmeticError, LookupError, ValueError):
        return ""
    return ""


class Step(NamedTuple):
    """One block of a formula over symbols."""

    before: State
    """The streams by their names."""
    sublayers: tuple[SymbolSublayer, ...]
    after: State
    """As expressions of those names."""


def walk(placement: Placement, started: State, kinds: Sequence[SublayerKind] | None = None) -> Iterator[Step]:
    """Every block of the stack in order, from the state that `start` gave.

    kinds: as `read` takes them. Sub-layers are printed under their kinds.
    """
    state, stack = started, placement.stack
    for block in range(1, stack.blocks + 1):
        before = named_parts(state, placement)
        sites = [Site(kind=kind, block=block, stack=stack) for kind in kinds or stack.kinds]
        sublayers = tuple(symbol_sublayer(site, site.kind) for site in sites)
        state = placement.block(before, sublayers)
        yield Step(before, sublayers, state)


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
    named = Symbol(name, (), value.width)
    return value if value.same_name(named) else named
