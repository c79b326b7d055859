"""The wiring of a block as a graph, taken from the formula itself: what it computes, and what feeds
what.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from .base import Placement, State
from .printing import ranges
from .reading import named_parts, parts, walk
from .symbol import Symbol, SymbolEnd, SymbolState

_BoxKind = Literal[
    "input", "sublayer", "norm", "mix", "sum", "product", "scale", "append", "output"
]


@dataclass(frozen=True, slots=True)
class Box:
    """A step of the formula, as a diagram shows it; `details`, what is applied inside it, stand
    below the label.
    """

    kind: _BoxKind
    label: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire from the box with index `source` to a later one, `target`; `subtracted` where a
    difference takes it off.
    """

    source: int
    target: int
    subtracted: bool = False


@dataclass(frozen=True, slots=True)
class Wiring:
    """One part of a stack as a graph; every wire runs from an earlier box to a later one."""

    title: str
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]

    def reads(self, *, handed_on: bool) -> set[str]:
        """Names of the inputs that something is computed from; `handed_on`: or that are an output
        as they come.
        """
        return {
            self.boxes[edge.source].label
            for edge in self.wires
            if self.boxes[edge.source].kind == "input"
            and (handed_on or self.boxes[edge.target].kind != "output")
        }


def wirings(placement: Placement) -> list[Wiring]:
    """Returns every kind of block with the blocks it holds for, and the ends of the stack where the
    formula does something there.

    A stream that nothing ever reads is left out.
    """
    names, x = placement.streams, Symbol("x", (), placement.stack.width)
    started = placement.start(x, SymbolEnd())
    state = started
    steps: list[tuple[Mapping[str, SymbolState], Mapping[str, SymbolState]]] = [
        ({"x": x}, _by_name(names, started))
    ]
    for step in walk(placement, started):
        steps.append((_by_name(names, step.before), _by_name(names, step.after)))
        state = step.after
    state = named_parts(state, placement)
    finish = _graph("output", _by_name(names, state), {"y": placement.finish(state, SymbolEnd())})

    read = finish.reads(handed_on=True)
    for before, after in steps[1:]:
        read |= _graph("", before, after).reads(handed_on=False)
    drawn = []
    for before, after in steps:
        kept = {name: part for name, part in after.items() if name in read}
        drawn.append(_graph("", before, kept))
    start, *blocks = drawn
    by_kind: dict[Wiring, list[int]] = {}
    for number, wiring in enumerate(blocks, 1):
        by_kind.setdefault(wiring, []).append(number)
    found = [replace(start, title="embedding")]
    for wiring, numbers in by_kind.items():
        some = f"block{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"
        found.append(replace(wiring, title=some if len(by_kind) > 1 else "every block"))
    # One edge is a value handed on.
    return [wiring for wiring in [*found, finish] if len(wiring.wires) > 1]


def _by_name(names: tuple[str, ...], state: State) -> dict[str, SymbolState]:
    return dict(zip(names, parts(state), strict=True))


def _graph(
    title: str, before: Mapping[str, SymbolState], after: Mapping[str, SymbolState]
) -> Wiring:
    """Returns the wiring that computes the parts `after` from the parts `before`, without the
    inputs that nothing needs.
    """
    builder = _Builder()
    for name, part in before.items():
        builder.add_input(name, part)
    outputs = {name: builder.joined(part) for name, part in after.items()}
    for name, symbol in outputs.items():
        builder.add(Box("output", name), [builder.visit(symbol)])
    used = sorted({index for edge in builder.wires for index in (edge.source, edge.target)})
    number = {index: place for place, index in enumerate(used)}
    edges = tuple(
        replace(e, source=number[e.source], target=number[e.target]) for e in builder.wires
    )
    return Wiring(title, tuple(builder.boxes[index] for index in used), edges)


@dataclass(slots=True)
class _Builder:
    """Symbols to nodes. The same symbol used twice is one node, so that a shared value is drawn
    once.
    """

    boxes: list[Box] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    found: dict[int, int] = field(default_factory=dict)
    """id of a symbol -> its node."""
    alive: list[Symbol] = field(default_factory=list)
    """Keeps the ids above from being given away."""
    sums: dict[tuple[int, ...], tuple[int, list[Symbol]]] = field(default_factory=dict)
    """nodes of values -> that of their weighted sums, and all weights."""
    histories: dict[tuple[int, ...], Symbol] = field(default_factory=dict)
    """ids of the values of a history, as far as it has grown -> the one symbol that stands for all
    of them.
    """

    def add(self, node: Box, sources: list[int], subtracted: int | None = None) -> int:
        """A node fed by others; `subtracted`: the place among `sources` of what is taken off."""
        self.boxes.append(node)
        target = len(self.boxes) - 1
        self.wires += [
            Wire(source, target, place == subtracted) for place, source in enumerate(sources)
        ]
        return target

    def add_input(self, name: str, part: SymbolState) -> None:
        node = self.add(Box("input", name), [])
        values = part if isinstance(part, tuple) else (part,)
        for value in values:
            self.found[id(value)] = node
        if values:
            self.histories[tuple(map(id, values))] = values[0]
        self.alive += values

    def joined(self, part: SymbolState) -> Symbol:
        """Returns a part as one symbol: a history, as the additions to it, one after the other."""
        if isinstance(part, Symbol):
            return part
        old = [value for value in part if id(value) in self.found]
        new = [value for value in part if id(value) not in self.found]
        whole, ids = (old or new)[0], tuple(map(id, old or new[:1]))
        grows = ids in self.histories or not old
        for value in new if old else new[1:]:
            ids = (*ids, id(value))
            whole = Symbol("append" if grows else "replace the last", (whole, value), value.width)
            self.histories[ids] = whole
        return whole

    def visit(self, symbol: Symbol) -> int:
        """Returns the node of a symbol that depends on a token: one with a width. Numbers and
        parameters have none.
        """
        if id(symbol) not in self.found:
            self.alive.append(symbol)
            self.found[id(symbol)] = self._made(symbol)
        return self.found[id(symbol)]

    def _made(self, symbol: Symbol) -> int:
        wires = [argument for argument in symbol.arguments if argument.width]
        if symbol.applies_f:
            inside = tuple(map(str, symbol.arguments[1:]))
            return self.add(
                Box("sublayer", symbol.op.replace("_", "-"), inside),
                [self.visit(symbol.arguments[0])],
            )
        if symbol.values:
            query, key, *read = symbol.arguments
            whole = self.histories.get(tuple(map(id, symbol.values)))
            nodes = [self.visit(value) for value in ([whole] if whole else symbol.values)]
            details = (f"query: {query}", f"keys: {key}", *(f"values: {value}" for value in read))
            return self.add(Box("mix", "mix", details), list(dict.fromkeys(nodes)))
        nodes = [self.visit(wire) for wire in wires]
        if symbol.op == "weighed":
            return self._weighed(symbol, nodes)
        if symbol.op in ("append", "replace the last"):
            return self.add(Box("append", symbol.op), nodes)
        if symbol.op not in "+-·/":
            return self.add(Box("norm", symbol.op), nodes)
        if len(wires) == 1:
            return self.add(Box("scale", _with_number(symbol)), nodes)
        if symbol.op in "+-":
            return self.add(
                Box("sum", symbol.op), nodes, subtracted=1 if symbol.op == "-" else None
            )
        return self.add(Box("product", symbol.op), nodes)

    def _weighed(self, symbol: Symbol, nodes: list[int]) -> int:
        """All weighted sums of the same values are one node, as a matrix that mixes streams is
        one.
        """
        weights = list(symbol.arguments[::2])
        if tuple(nodes) not in self.sums:
            made = self.add(Box("mix", "weighted sum", _weights(weights)), nodes)
            self.sums[tuple(nodes)] = made, weights
            return made
        made, known = self.sums[tuple(nodes)]
        known += weights
        self.boxes[made] = Box("mix", "weighted sums", _weights(known))
        return made


def _with_number(symbol: Symbol) -> str:
    """Writes what an operator does with a number or a parameter: "× 2", "÷ √l", "1 -"."""
    left, right = symbol.arguments
    sign = {"·": "×", "/": "÷"}.get(symbol.op, symbol.op)
    number = left if right.width else right
    text = f"({number})" if number.arguments and number.op in "+-" else str(number)
    return f"{text} {sign}" if right.width and symbol.op in "-/" else f"{sign} {text}"


def _weights(weights: Sequence[Symbol]) -> tuple[str, ...]:
    """Returns the weights under the names that they share, numbers of a token with what they are
    computed from.
    """
    found: dict[str, dict[str, None]] = {}
    for weight in weights:
        for name, read in _of_a_token(weight) or [(_shared_name(weight), "")]:
            found.setdefault(read, {})[name] = None
    return tuple(
        f"{', '.join(names)}{f' from {read}' if read else ''}" for read, names in found.items()
    )


def _shared_name(weight: Symbol) -> str:
    """Returns the name of the parameter of which a weight is an entry; other numbers as they
    are.
    """
    return str(weight) if weight.arguments else re.sub(r"_\d+$", "", weight.op)


def _of_a_token(number: Symbol) -> list[tuple[str, str]]:
    """Names of the numbers of a token that it is made of, each with the values they are computed
    from, in short.
    """
    if number.meaning:
        return [(number.shared_name, " and ".join(map(_short, _sources(number))))]
    return [found for argument in number.arguments for found in _of_a_token(argument)]


def _sources(number: Symbol) -> list[Symbol]:
    """Returns the values that it is computed from, through numbers that it is computed from."""
    return [
        found for read in number.reads for found in (_sources(read) if read.meaning else [read])
    ]


def _short(read: Symbol) -> str:
    return f"{read.op} of {len(read.arguments)} streams" if len(read.arguments) > 1 else read.op
