"""Several residual streams in one tensor, known by what joins them: a branch that is added to all
of them.

Hyper-connections keep n streams of width D as (..., n, D), or as (..., n·D). A sub-layer reads one
vector a token that is made from all of them (collapse), the streams may be mixed among themselves
(connect), and the sub-layer's output is added to each of them (expand). What multiplies them on the
way may be constant, trained, or made for every token.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from itertools import islice, permutations
from typing import Literal

from .flow import Flow
from .lanes import LaneWeights, weights_of
from .operations import PRODUCTS, REARRANGING, Ref, TracedValue

MOST_STREAMS = 32
_LINEAR = (
    REARRANGING
    | PRODUCTS
    | {
        "repeat",
        "sum",
        "mean",
        "mul",
        "div",
        "add",
        "select",
        "split",
        "split_with_sizes",
        "unbind",
    }
)
_LARGEST = 40
"""Operations between streams and what is made from them."""

_Kind = Literal["collapse", "connect", "expand"]
"""n streams to one value, n streams to n, one value to n streams."""


@dataclass(frozen=True, slots=True)
class _Connection:
    """A value that is a weighted sum of streams, or streams that are multiples of one value."""

    kind: _Kind
    source: int
    """The weighted value: the streams, a norm of them, or a branch."""
    weights: LaneWeights


@dataclass(slots=True)
class _Connections:
    """All that connects the streams of a recorded pass."""

    made: dict[int, _Connection] = field(default_factory=dict)
    """The connections by the value that each makes."""
    spread: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Sums x + F in which F is added to every stream as it is, each with both."""
    ends: dict[int, int] = field(default_factory=dict)
    """The one value made of the streams after the last sub-layer, by the last sum."""
    shapes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The number of streams in each sum of streams and branch, and their width."""


def connections(flow: Flow, norms: Container[int]) -> _Connections:
    """Finds what connects streams; empty for a model of one stream. norms: the numbers of the
    values that are norms.
    """
    found, sources = _Connections(), set[int]()
    for value in flow.values:
        if value.op == "add" and value.is_data and value.tensor.is_floating_point():
            joined = (
                _join(flow, norms, found, value.number, *pair)
                for pair in permutations(_addends(flow, value), 2)
            )
            sources |= set(islice((source for source in joined if source is not None), 1))
    for last in found.shapes.keys() - sources:
        end = _end(flow, norms, last, found.shapes[last])
        if end is not None:
            number, found.made[number] = end
            found.ends[last] = number
    return found


def _addends(flow: Flow, value: TracedValue) -> list[int]:
    data = [a.number for a in value.args if isinstance(a, Ref) and flow.values[a.number].is_data]
    return data if len(data) == 2 else []


def _join(
    flow: Flow, norms: Container[int], found: _Connections, join: int, skip: int, branch: int
) -> int | None:
    """Returns the streams that a sub-layer reads whose output is added to all of them; None where
    this sum is none of that.

    found: what takes in its connections.
    """
    size = flow.values[join].tensor.numel()
    if flow.values[skip].tensor.numel() != size or not flow.values[join].shape:
        return None
    product = flow.rearranged(branch)
    as_it_is = flow.values[branch].tensor.numel() < size
    output = flow.rearranged(branch, any_size=True) if as_it_is else _spread(flow, product)
    if output is None or not flow.values[output].shape:
        return None
    (streams, rest), width = (
        divmod(size, flow.values[output].tensor.numel()),
        flow.values[output].shape[-1],
    )
    if rest or not 2 <= streams <= MOST_STREAMS or width < 2:
        return None
    mixed = flow.rearranged(skip)
    source = _streams_before(flow, mixed, size)
    if source is None or not flow.through_weights[output] >> source & 1:
        return None
    read = _collapsed(flow, source, output, size // streams, width)
    if read is None:
        return None
    shape = streams, width
    asked = {
        read: _connection(flow, norms, "collapse", read, source, shape),
        **({} if as_it_is else {branch: _connection(flow, norms, "expand", branch, output, shape)}),
        **(
            {}
            if mixed == source
            else {skip: _connection(flow, norms, "connect", skip, source, shape)}
        ),
    }
    made = {number: connection for number, connection in asked.items() if connection is not None}
    if len(made) < len(asked):
        return None
    found.made.update(made)
    found.shapes[join] = shape
    if as_it_is:
        found.spread[join] = skip, branch
    return source


def _spread(flow: Flow, number: int) -> int | None:
    """Returns the value that a product multiplies with one number for each stream and token: F of F
    ⊗ weights.
    """
    value = flow.values[number]
    size = value.tensor.numel()
    if value.op in ("expand", "repeat"):
        return flow.rearranged(number, any_size=True)
    if value.op != "mul" and value.op not in PRODUCTS:
        return None
    # What varies over features is the branch; weights are one number for all of them.
    wide = [
        n
        for n in flow.predecessors[number]
        if flow.values[n].shape[-1:] == value.shape[-1:] != (1,)
    ]
    found = [flow.rearranged(n, any_size=True) for n in wide]
    return found[0] if len(found) == 1 and flow.values[found[0]].tensor.numel() < size else None


def _streams_before(flow: Flow, mixed: int, size: int) -> int | None:
    """Returns the streams that are mixed in a value of their size, which may be these streams
    themselves.
    """
    number = mixed
    if flow.values[mixed].op not in PRODUCTS | {"sum"}:
        return mixed
    for _ in range(_LARGEST):
        before = [n for n in flow.predecessors[number] if flow.values[n].tensor.numel() >= size]
        if not before or flow.values[number].op not in _LINEAR:
            return None
        number = flow.rearranged(before[-1])
        if flow.values[number].tensor.numel() == size:
            return number
    return None


def _collapsed(flow: Flow, source: int, output: int, size: int, width: int) -> int | None:
    """Returns the first value of one stream's size and width through which all goes that a branch
    makes of the streams.
    """
    inside = [(n, flow.values[n].tensor) for n in reversed(flow.passed(source, output)[1:])]
    return next((n for n, x in inside if x.numel() == size and x.shape[-1] == width), None)


def _connection(
    flow: Flow, norms: Container[int], kind: _Kind, number: int, start: int, shape: tuple[int, int]
) -> _Connection | None:
    """Returns how a value is made from the start, or from a norm of it; None where that is not
    linear for given weights.
    """
    way = _way_back(flow, norms, number, start, whole=kind != "expand")
    if way is None:
        return None
    base, frozen = way
    streams, width = shape
    read, made = (streams if kind != "expand" else 1), (streams if kind != "collapse" else 1)
    weights = weights_of(
        flow, made=number, of=base, frozen=frozen, streams=(read, made), width=width
    )
    return None if weights is None else _Connection(kind, base, weights)


def _way_back(
    flow: Flow, norms: Container[int], number: int, start: int, *, whole: bool
) -> tuple[int, tuple[int, ...]] | None:
    """Returns the weighted value, which is the start or a norm of it, and the weights met on the
    way to it.

    whole: whether it comes in whole, and what is smaller are weights.
    """
    size = flow.values[start].tensor.numel()
    bases = set[int]()
    frozen = set[int]()
    todo = [number]
    seen = 0
    while todo:
        at, seen = todo.pop(), seen + 1
        value = flow.values[at]
        if at != number and (flow.rearranged(at) == start or _is_norm(flow, norms, at)):
            bases.add(at)
            continue
        if value.op not in _LINEAR or seen > _LARGEST:
            return None
        inside = [n for n in value.inputs if flow.depends(n, start)]
        if len(inside) > 1:
            # Weights are made from the streams too, but by way of a matrix.
            light = [n for n in inside if not flow.through_weights[n] >> start & 1]
            large = [n for n in inside if flow.values[n].tensor.numel() >= size]
            inside = light or (large if whole else inside)
        if not inside:
            return None
        frozen.update(n for n in value.inputs if n not in inside)
        todo += inside
    if whole:
        bases = {flow.rearranged(at) for at in bases}
    return (bases.pop(), tuple(sorted(frozen))) if len(bases) == 1 else None


def _is_norm(flow: Flow, norms: Container[int], number: int) -> bool:
    """Tells whether a value is a norm, or one times vectors and numbers that are no data."""
    for _ in range(_LARGEST):
        if number in norms:
            return True
        if (
            flow.values[number].op not in REARRANGING | {"mul"}
            or len(flow.predecessors[number]) != 1
        ):
            return False
        (number,) = flow.predecessors[number]
    return False


def _end(
    flow: Flow, norms: Container[int], last: int, shape: tuple[int, int]
) -> tuple[int, _Connection] | None:
    """Returns the first value of one stream's size that is a weighted sum of the last streams."""
    size = flow.values[last].tensor.numel() // shape[0]
    for value in flow.values[last + 1 :]:
        if (
            value.tensor.numel() == size
            and value.op in _LINEAR
            and flow.depends(value.number, last)
        ):
            connection = _connection(flow, norms, "collapse", value.number, last, shape)
            if connection is not None:
                return value.number, connection
    return None
