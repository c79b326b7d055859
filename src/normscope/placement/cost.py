"""What a formula computes for every token beside F, counted from its symbols."""

from dataclasses import dataclass
from itertools import islice

from .base import Placement
from .reading import parts, walk
from .symbol import Symbol, SymbolEnd


@dataclass(slots=True, kw_only=True)
class Cost:
    """Passes over one vector of the model's width, for one token in one block; a wider vector counts as its share.

    `mixed`: vectors that attention over depth, or a weighted sum, reads. The norm of keys counts once for each of them.
    What numbers of a token are read from counts as a norm. The few numbers themselves do not; a number for each feature
    is a scaling.
    """

    additions: float = 0.0
    scalings: float = 0.0
    norms: float = 0.0
    mixed: float = 0.0

    @property
    def total(self) -> float:
        """The passes of every kind together. How long they take depends on what the device fuses."""
        return self.additions + self.scalings + self.norms + self.mixed


def block_cost(placement: Placement, block: int) -> Cost:
    """The cost of one block, counted from 1. A value that the formula uses twice is counted once."""
    width = placement.stack.width
    started = placement.start(Symbol("x", (), width), SymbolEnd())
    step = next(islice(walk(placement, started), block - 1, None))
    cost, seen = Cost(), set[int]()
    for part in parts(step.after):
        for symbol in part if isinstance(part, tuple) else (part,):
            _count(symbol, cost, seen, width)
    return cost


def _count(symbol: Symbol, cost: Cost, seen: set[int], width: int, times: int = 1) -> None:
    """Add what computes a symbol. Numbers and parameters have no width: what is done to them costs next to nothing."""
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
