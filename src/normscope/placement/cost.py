"""What a formula computes for every token beside F, counted from its symbols."""

from dataclasses import dataclass
from itertools import islice

from .base import Placement
from .reading import parts, walk
from .symbol import Symbol, SymbolEnd


@dataclass(slots=True, kw_only=True)
class Cost:
    """Passes over one vector of the model's width, for one token in one block; a wider vector counts as its share.

    `mixed`: vectors that attention over depth reads. The norm of its keys counts once for each of them.
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
    """Add what computes a symbol. Numbers and parameters have no width: what is done to them is not done a token."""
    if id(symbol) in seen or not symbol.width:
        return
    seen.add(id(symbol))
    if symbol.values:
        for value in symbol.values:
            _count(value, cost, seen, width, times)
        cost.mixed += times * len(symbol.values)
        times *= len(symbol.values)
    elif symbol.arguments and not symbol.applies_f:
        share = times * symbol.width / width
        if symbol.op in "+-":
            cost.additions += share
        elif symbol.op in "·/":
            cost.scalings += share
        else:
            cost.norms += share
    for argument in symbol.arguments:
        _count(argument, cost, seen, width, times)
