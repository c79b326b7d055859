"""Sums that a gate weighs for every feature of every token, (1 - z)·x + z·y with z a sigmoid, as GTrXL's GRU does."""

from dataclasses import dataclass

from .flow import Flow, rearranged
from .operations import Ref, TracedValue


@dataclass(frozen=True, slots=True)
class Blend:
    """A value that lies between two others, as far from the first as its gate is open."""

    first: int
    second: int
    gate: int


def blends(flow: Flow) -> dict[int, Blend]:
    """All of them by their number, but for those that one matrix makes time and again, as a recurrence's steps do."""
    found = {value.number: one for value in flow.values if (one := _blend(flow, value))}
    made_by = {number: _matrices(flow, one.gate) for number, one in found.items()}
    return {
        number: one
        for number, one in found.items()
        if not any(made_by[number] & some for other, some in made_by.items() if other != number)
    }


def _blend(flow: Flow, value: TracedValue) -> Blend | None:
    if value.op != "add" or not value.is_data or len(flow.predecessors[value.number]) != 2 or len(value.inputs) != 2:
        return None
    pairs = [value.inputs, value.inputs[::-1]]
    return next((one for first, second in pairs if (one := _of(flow, first, second))), None)


def _of(flow: Flow, left: int, right: int) -> Blend | None:
    """left + z·(y - left), or (1 - z)·x + z·y."""
    for y, gate in _products(flow, right):
        if (difference := _difference(flow, y)) and rearranged(flow, difference[1]) == rearranged(flow, left):
            return Blend(left, difference[0], gate)
        for x, rest in _products(flow, left):
            if _is_rest(flow, rest, gate):
                return Blend(x, y, gate)
    return None


def _products(flow: Flow, number: int) -> list[tuple[int, int]]:
    """What a value is a product of: a value and a gate, which is a sigmoid or what is left of one."""
    value = flow.values[number]
    if value.op != "mul" or len(flow.predecessors[number]) != 2:
        return []
    pairs = [flow.predecessors[number], flow.predecessors[number][::-1]]
    return [(x, gate) for x, gate in pairs if flow.values[x].shape == flow.values[gate].shape and _is_gate(flow, gate)]


def _is_gate(flow: Flow, number: int) -> bool:
    value = flow.values[rearranged(flow, number)]
    if value.op in ("rsub", "sub") and len(value.inputs) <= 2 and len(flow.predecessors[value.number]) == 1:
        value = flow.values[rearranged(flow, flow.predecessors[value.number][0])]
    return value.op == "sigmoid" and bool(flow.through_weights[value.number])


def _difference(flow: Flow, number: int) -> tuple[int, int] | None:
    value = flow.values[rearranged(flow, number)]
    args = value.call.args if value.call is not None else ()
    data = [a.number for a in args if isinstance(a, Ref)]
    return (data[0], data[1]) if value.op == "sub" and len(data) == len(args) == 2 else None


def _is_rest(flow: Flow, number: int, gate: int) -> bool:
    """Whether a value is 1 minus the gate."""
    value = flow.values[rearranged(flow, number)]
    return value.op == "rsub" and [rearranged(flow, n) for n in value.inputs] == [rearranged(flow, gate)]


def _matrices(flow: Flow, number: int) -> frozenset[int]:
    """The numbers of the matrices that a value is made with last."""
    found, seen, todo = set[int](), {number}, [number]
    while todo:
        value = flow.values[todo.pop()]
        if flow.is_weight_product(value):
            given = [n for n in value.inputs if not flow.values[n].is_data and flow.values[n].tensor.ndim > 1]
            found.update(leaf.number for n in given for leaf in flow.trace.leaves(n))
            continue
        new = [n for n in flow.predecessors[value.number] if n not in seen]
        seen.update(new)
        todo += new
    return frozenset(found)
