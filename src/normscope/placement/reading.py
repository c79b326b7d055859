"""Read a placement's formula with symbols for every block of a stack: what it asks for, and what it
costs a token.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from .base import Placement, Site, StackShape, State, SublayerKind
from .symbol import Symbol, SymbolEnd, SymbolState, SymbolSublayer, symbol_sublayer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The parameters and numbers that a placement's formula asks for in one stack."""

    start: SymbolEnd
    blocks: tuple[tuple[SymbolSublayer, ...], ...]
    finish: SymbolEnd

    @property
    def schedules(self) -> dict[str, float]:
        """The numbers that follow a schedule, each with its value before the first update."""
        everyone = (
            self.start,
            *(sublayer for block in self.blocks for sublayer in block),
            self.finish,
        )
        return {name: initial for asked in everyone for name, initial in asked.schedules.items()}


def read(placement: Placement, kinds: Sequence[SublayerKind] | None = None) -> Reading:
    """Run the formula over symbols for every block of the placement's stack.

    kinds: sub-layers of a block, in order; without them, those of such a stack. Raises ValueError
    for blocks that are run several times under a formula that one pass decides, or in which every
    pass sees more.
    """
    start, finish = SymbolEnd(), SymbolEnd()
    state = placement.start(Symbol("x", (), placement.stack.width), start)
    blocks = []
    for step in walk(placement, state, kinds):
        blocks.append(step.sublayers)
        state = step.after
    if placement.stack.loops > 1 and (
        placement.is_profiled() or any(isinstance(part, tuple) for part in parts(state))
    ):
        why = (
            "takes initial values from one pass"
            if placement.is_profiled()
            else "reaches back over the depth"
        )
        raise ValueError(
            f"placement {placement.name!r} {why}, so its blocks are run once: loops must be 1"
        )
    placement.finish(named_parts(state, placement), finish)
    return Reading(start=start, blocks=tuple(blocks), finish=finish)


def formula_fault(placement: type[Placement]) -> str:
    """Returns the reason why no model can be made of the formula, whatever its size; empty where a
    small stack of it can be read.

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
            f"its formula cannot be read ({type(error).__name__}: {said}); join must return the "
            "state after a sub-layer, such as norm(x + sublayer(x)), made by Python's operators "
            "and normscope.placement.operations and by nothing of torch, since x is not always a "
            "tensor"
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
    """The state after the block, as expressions of those names."""


def walk(
    placement: Placement, started: State, kinds: Sequence[SublayerKind] | None = None
) -> Iterator[Step]:
    """Yields every block of the stack in order, from the state that `start` gave.

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
    """Returns what the formula asks for over a tied output projection of so many rows."""
    head = SymbolEnd()
    placement.output_rows(Symbol("E", (), placement.stack.width), head, vocabulary)
    return head


def parts(state: State) -> tuple[SymbolState, ...]:
    """Returns the parts of a state, one for each stream."""
    return tuple(state) if isinstance(state, tuple) else (state,)


def named_parts(state: State, placement: Placement) -> State:
    """Returns the state with expressions replaced by the names of its streams, so that a formula
    does not grow with depth.
    """
    found, names = parts(state), placement.streams
    if len(names) != len(found):
        raise ValueError(
            f"placement {placement.name!r} names {len(names)} streams ({', '.join(names)}) "
            f"and its state has {len(found)} parts"
        )
    renamed = tuple(_named_part(part, name) for name, part in zip(names, found, strict=True))
    return renamed if isinstance(state, tuple) else renamed[0]


def _named_part(part: SymbolState, name: str) -> SymbolState:
    """Gives a stream its name, and every value of a history that of its stream."""
    if isinstance(part, tuple):
        return tuple(_named(value, name) for value in part)
    return _named(part, name)


def _named(value: Symbol, name: str) -> Symbol:
    # A long history has its names already, all but its newest value.
    named = Symbol(name, (), value.width)
    return value if value.same_name(named) else named


@dataclass(slots=True, kw_only=True)
class Cost:
    """Passes over one vector of the model's width, for one token in one block; a wider vector
    counts as its share.

    `mixed`: vectors that attention over depth, or a weighted sum, reads. The norm of keys counts
    once for each of them. What numbers of a token are read from counts as a norm. The few numbers
    themselves do not; a number for each feature is a scaling.
    """

    additions: float = 0.0
    scalings: float = 0.0
    norms: float = 0.0
    mixed: float = 0.0

    @property
    def total(self) -> float:
        """The passes of every kind together. How long they take depends on what the device
        fuses.
        """
        return self.additions + self.scalings + self.norms + self.mixed


def block_cost(placement: Placement, block: int) -> Cost:
    """Returns the cost of one block, counted from 1. A value that the formula uses twice is counted
    once.
    """
    width = placement.stack.width
    started = placement.start(Symbol("x", (), width), SymbolEnd())
    step = next(islice(walk(placement, started), block - 1, None))
    cost, seen = Cost(), set[int]()
    for part in parts(step.after):
        for symbol in part if isinstance(part, tuple) else (part,):
            _count(symbol, cost, seen, width)
    return cost


def _count(symbol: Symbol, cost: Cost, seen: set[int], width: int, times: int = 1) -> None:
    """Add what computes a symbol. Numbers and parameters have no width: what is done to them costs
    next to nothing.
    """
    if id(symbol) in seen:
        return
    seen.add(id(symbol))
    for read in symbol.reads:
        _count(read, cost, seen, width, times)
    if not symbol.width:
        if symbol.meaning:
            cost.scalings += times * sum(symbol.shape) / width
        for needed in symbol.arguments:
            _count(needed, cost, seen, width, times)
        return
    if symbol.values:
        for value in symbol.values:
            _count(value, cost, seen, width, times)
        cost.mixed += times * len(symbol.values)
        times *= len(symbol.values)
    elif symbol.arguments and not symbol.applies_f:
        share = times * symbol.width / width
        if symbol.op == "weighed":
            cost.mixed += share * (len(symbol.arguments) // 2)
        elif symbol.op in "+-":
            cost.additions += share
        elif symbol.op in "·/":
            cost.scalings += share
        elif symbol.op not in ("stopped", "beside"):
            cost.norms += share
    for argument in symbol.arguments:
        _count(argument, cost, seen, width, times)
