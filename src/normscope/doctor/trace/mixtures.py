"""Sums that no addition of two values shows: means over depth, by softmax weights over earlier
values, for every token on its own; of a stack, by a sum, a mean or an einsum with weights; and
those that a gate weighs for every feature of every token, (1 - z)·x + z·y with z a sigmoid, as
GTrXL's GRU does."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...measure.passes import has_arithmetic
from .flow import Flow
from .operations import (
    FUSED,
    REARRANGING,
    SOFTMAX,
    STACKING,
    UNREPEATABLE,
    Origin,
    Ref,
    Trace,
    TracedValue,
    walked,
)

_WEIGHING = frozenset({"bmm", "mm", "mul", "sum", "unbind"})
_LARGEST = 100
"""Operations between the stacked values and their mean."""


@dataclass(frozen=True, slots=True)
class _Mixture:
    """A value that is a weighted mean of others of its size; the weights are positive and add up to
    1.
    """

    sources: tuple[int, ...]
    weights: int
    """Number of the softmax, or of the operation that computes softmax and mean in one."""
    by_parameter: bool
    """True where the weights are a softmax over products of the values with one trained vector, and
    of nothing else.
    """
    key_norms: int
    """The number of norms that the values pass before these products."""
    normed: bool = False
    """True where it is the mean of x / RMS(x) of each of its sources x, rather than of x."""


def mixture_of(flow: Flow, value: TracedValue, norms: Container[int]) -> _Mixture | None:
    """Returns the mean over depth that a value is, with the earlier values in it; None where it is
    none.

    norms: the numbers of the values that are norms.
    """
    if (
        not (value.op in _WEIGHING or _is_fused(value))
        or not value.is_data
        or not has_arithmetic(value.tensor)
    ):
        return None
    stacked = flow.dominators[value.number]
    while (
        stacked >= 0
        and flow.values[stacked].op not in STACKING
        and value.number - stacked <= _LARGEST
    ):
        stacked = flow.dominators[stacked]
    if stacked < 0 or flow.values[stacked].op not in STACKING or value.number - stacked > _LARGEST:
        return None
    size = value.tensor.numel()
    sources = _sources(flow, stacked, size)
    inside = flow.between(stacked, value.number)[1:]
    softmaxes = [n for n in inside if flow.values[n].op in SOFTMAX or _is_fused(flow.values[n])]
    if not sources or len(softmaxes) != 1:
        return None
    (weights,) = softmaxes
    if any(n in norms for n in flow.between(weights, value.number)):
        return None  # a norm of the mean, or what multiplies that
    normed = _normed(flow, value, sources)
    if normed is None:
        return None
    keys, width = flow.between(stacked, weights)[1:], flow.values[sources[0]].shape[-1]
    products = [
        flow.values[n] for n in keys if flow.is_product(flow.values[n]) or _is_fused(flow.values[n])
    ]
    given = [flow.values[n] for one in products for n in one.inputs if not flow.values[n].is_data]
    return _Mixture(
        sources=tuple(sources),
        weights=weights,
        # One query is often repeated for every token.
        by_parameter=len(products) == len(given) == 1
        and width in (given[0].tensor.numel(), given[0].shape[-1]),
        key_norms=sum(n in norms for n in keys),
        normed=normed,
    )


def _is_fused(value: TracedValue) -> bool:
    return FUSED in value.op and value.output == 0


def _sources(flow: Flow, stacked: int, size: int) -> list[int]:
    """Returns the values that were put into a stack, piece by piece or in stacks of their own, each
    piece of this size; empty for other stacks.
    """
    found: list[int] = []
    for number in flow.values[stacked].inputs:
        if not flow.values[number].tensor.numel():
            # A stack often starts from an empty one.
            continue
        inner = flow.rearranged(number, any_size=True)
        pieces = (
            [number]
            if flow.values[number].is_data and flow.values[number].tensor.numel() == size
            else []
        )
        if flow.values[inner].op in STACKING:
            pieces = _sources(flow, inner, size) or pieces
        if not pieces:
            return []
        found += pieces
    return found


def _normed(flow: Flow, value: TracedValue, sources: Sequence[int]) -> bool | None:
    """Tells whether the value is z / RMS(z) where z takes the place of every source; None where it
    is neither this nor z.
    """
    if value.tensor.is_meta:
        return None
    like = flow.values[sources[0]].tensor
    generator = torch.Generator().manual_seed(0)
    # Its tokens are of many sizes, so that a norm shows.
    z = torch.randn(like.shape, generator=generator, dtype=torch.float64)
    z = (
        z * (0.5 + torch.rand((*like.shape[:-1], 1), generator=generator, dtype=torch.float64))
    ).to(like)
    # Of different sources each has its own shape in the stack.
    held = {n: z.reshape(flow.values[n].shape) for n in sources}
    try:
        mean = flow.trace.again(held, value.number).reshape(z.shape)
    except UNREPEATABLE:
        return None
    if _close(mean, z):
        return False
    return True if _close(mean, torch.nn.functional.rms_norm(z, z.shape[-1:])) else None


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-2)


_REDUCING = frozenset({"sum", "mean", "bmm", "mm", "mv"})
_ON_THE_WAY = _REDUCING | REARRANGING | {"mul", "div"}
_LONGEST = 24
"""Operations between the stack and its sum."""
_CLOSE = 1e-3


@dataclass(frozen=True, slots=True)
class _StackedSum:
    """A value that is Σ w_i x_i of values x_i of its shape, each times one number."""

    pieces: tuple[int, ...]
    weights: tuple[float, ...]
    origin: Origin
    """The origin of the weights."""


def stacked_sums(trace: Trace) -> dict[int, _StackedSum]:
    """Returns every sum over a stack, by its number; a plain sum that only adds to an earlier one
    is rewritten as x + F.
    """
    found: dict[int, _StackedSum] = {}
    plain: dict[tuple[int, ...], int] = {}
    for value in trace.values:
        one = _stacked_sum(trace, value)
        if one is None:
            continue
        if one.origin > Origin.CONSTANT or set(one.weights) != {1.0}:
            found[value.number] = one
            continue
        *before, last = one.pieces
        earlier = plain.get(tuple(before), before[0] if len(before) == 1 else None)
        plain[one.pieces] = value.number
        if not before:
            _rewrite(value, "alias", torch.ops.aten.alias.default, last)
        elif earlier is not None:
            _rewrite(value, "add", torch.ops.aten.add.Tensor, earlier, last)
        else:
            found[value.number] = one
    return found


def _rewrite(value: TracedValue, op: str, function: object, *inputs: int) -> None:
    value.op = op
    value.inputs = inputs
    value.output = 0
    value.function = function
    value.args = tuple(map(Ref, inputs))
    value.kwargs = {}


def _stacked_sum(trace: Trace, value: TracedValue) -> _StackedSum | None:
    adds_vectors = value.op in _ON_THE_WAY and value.shape[-1:] > (1,)
    if not value.is_data or not adds_vectors or not has_arithmetic(value.tensor):
        return None
    way, at = list[TracedValue](), value
    while at.op in _ON_THE_WAY and len(way) < _LONGEST:
        data = [n for n in at.inputs if trace.values[n].is_data]
        if len(data) != 1:
            return None
        way.append(at)
        at = trace.values[data[0]]
    if at.op not in STACKING or not any(step.op in _REDUCING for step in way):
        return None
    pieces = tuple(dict.fromkeys(at.inputs))
    alike = [one for n in pieces if (one := trace.values[n]).is_data and one.shape == value.shape]
    if sum(one.tensor.dtype == value.tensor.dtype for one in alike) < len(at.inputs):
        return None
    weights = _weights(trace, value, way, pieces)
    if weights is None:
        return None
    given = [
        trace.values[n].origin for step in way for n in step.inputs if not trace.values[n].is_data
    ]
    origin = max(given, default=Origin.CONSTANT)
    # What is trained may start at 0, as DenseFormer's weights do.
    kept = {
        n: weight
        for n, weight in zip(pieces, weights, strict=True)
        if weight or origin > Origin.CONSTANT
    }
    return _StackedSum(tuple(kept), tuple(kept.values()), origin) if kept else None


def _weights(
    trace: Trace, value: TracedValue, way: list[TracedValue], pieces: tuple[int, ...]
) -> list[float] | None:
    """Returns the factor of each piece; None where that is not one number for all of its
    entries.
    """
    if value.tensor.is_meta:
        return [1.0] * len(pieces) if {step.op for step in way} == {"sum"} else None
    if len(pieces) > value.tensor.numel():
        return None
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn((len(pieces), *value.shape), generator=generator, dtype=torch.float64)
    given = {n: z.to(value.tensor) for n, z in zip(pieces, drawn, strict=True)}
    try:
        made = trace.again(given, value.number)
    except UNREPEATABLE:
        return None
    flat, wanted = drawn.flatten(1).T, made.detach().cpu().double().flatten()
    weights = torch.linalg.lstsq(flat, wanted[:, None]).solution[:, 0]
    if float((flat @ weights - wanted).abs().max()) > _CLOSE * max(1.0, float(wanted.abs().max())):
        return None
    return [float(f"{weight:.6g}") if abs(weight) > 1e-6 else 0.0 for weight in weights.tolist()]


@dataclass(frozen=True, slots=True)
class _Blend:
    """A value that lies between two others, as far from the first as its gate is open."""

    first: int
    second: int
    gate: int


def blends(flow: Flow) -> dict[int, _Blend]:
    """All of them by their number, but for those that one matrix makes time and again, as a
    recurrence's steps do.
    """
    found = {value.number: one for value in flow.values if (one := _blend(flow, value))}
    made_by = {number: _matrices(flow, one.gate) for number, one in found.items()}

    def is_made_again(number: int) -> bool:
        others = [some for other, some in made_by.items() if other != number]
        return any(made_by[number] & some for some in others)

    return {number: one for number, one in found.items() if not is_made_again(number)}


def _blend(flow: Flow, value: TracedValue) -> _Blend | None:
    if (
        value.op != "add"
        or not value.is_data
        or len(flow.predecessors[value.number]) != 2
        or len(value.inputs) != 2
    ):
        return None
    pairs = [value.inputs, value.inputs[::-1]]
    return next((one for first, second in pairs if (one := _of(flow, first, second))), None)


def _of(flow: Flow, left: int, right: int) -> _Blend | None:
    """left + z·(y - left), or (1 - z)·x + z·y."""
    for y, gate in _products(flow, right):
        if (difference := _difference(flow, y)) and flow.rearranged(
            difference[1]
        ) == flow.rearranged(left):
            return _Blend(left, difference[0], gate)
        for x, rest in _products(flow, left):
            if _is_rest(flow, rest, gate):
                return _Blend(x, y, gate)
    return None


def _products(flow: Flow, number: int) -> list[tuple[int, int]]:
    """Returns the pairs of a value and a gate of which a value is the product; a gate is a sigmoid
    or 1 minus one.
    """
    value = flow.values[number]
    if value.op != "mul" or len(flow.predecessors[number]) != 2:
        return []
    pairs = [flow.predecessors[number], flow.predecessors[number][::-1]]
    return [
        (x, gate)
        for x, gate in pairs
        if flow.values[x].shape == flow.values[gate].shape and _is_gate(flow, gate)
    ]


def _is_gate(flow: Flow, number: int) -> bool:
    value = flow.values[flow.rearranged(number)]
    if (
        value.op in ("rsub", "sub")
        and len(value.inputs) <= 2
        and len(flow.predecessors[value.number]) == 1
    ):
        value = flow.values[flow.rearranged(flow.predecessors[value.number][0])]
    return value.op == "sigmoid" and bool(flow.through_weights[value.number])


def _difference(flow: Flow, number: int) -> tuple[int, int] | None:
    value = flow.values[flow.rearranged(number)]
    data = [a.number for a in value.args if isinstance(a, Ref)]
    return (data[0], data[1]) if value.op == "sub" and len(data) == len(value.args) == 2 else None


def _is_rest(flow: Flow, number: int, gate: int) -> bool:
    """Tells whether a value is 1 minus the gate."""
    value = flow.values[flow.rearranged(number)]
    return value.op == "rsub" and [flow.rearranged(n) for n in value.inputs] == [
        flow.rearranged(gate)
    ]


def _matrices(flow: Flow, number: int) -> frozenset[int]:
    """Returns the numbers of the matrices that a value is made with last."""
    way = walked(
        number, lambda n: () if flow.is_weight_product(flow.values[n]) else flow.predecessors[n]
    )
    last = [n for n in way if flow.is_weight_product(flow.values[n])]
    inputs = [flow.values[n] for product in last for n in flow.values[product].inputs]
    given = [one.number for one in inputs if not one.is_data and one.tensor.ndim > 1]
    return frozenset(leaf.number for n in given for leaf in flow.trace.leaves(n))
