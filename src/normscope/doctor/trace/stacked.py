"""Values that were stacked and are added up again: torch.stack(outputs).sum(0), a mean, or an einsum with weights."""

from dataclasses import dataclass

import torch

from .flow import REARRANGING, STACKING
from .operations import Call, Origin, Ref, Trace, TracedValue

_REDUCING = frozenset({"sum", "mean", "bmm", "mm", "mv"})
_ON_THE_WAY = _REDUCING | REARRANGING | {"mul", "div"}
_LARGEST = 24
"""Operations between the stack and its sum."""
_CLOSE = 1e-3


@dataclass(frozen=True, slots=True)
class StackedSum:
    """A value that is Σ w_i x_i of values x_i of its shape, each times one number."""

    pieces: tuple[int, ...]
    weights: tuple[float, ...]
    origin: Origin
    """Of the weights."""


def stacked_sums(trace: Trace) -> dict[int, StackedSum]:
    """Every sum over a stack, by its number; a plain sum that only adds to an earlier one is rewritten as x + F."""
    found: dict[int, StackedSum] = {}
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
    value.op, value.inputs = op, inputs
    value.call = Call(function, tuple(map(Ref, inputs)), {}, 0)


def _stacked_sum(trace: Trace, value: TracedValue) -> StackedSum | None:
    if not value.is_data or value.op not in _ON_THE_WAY or value.shape[-1:] <= (1,):
        return None
    way, at = list[TracedValue](), value
    while at.op in _ON_THE_WAY and len(way) < _LARGEST:
        data = [n for n in at.inputs if trace.values[n].is_data]
        if len(data) != 1:
            return None
        way.append(at)
        at = trace.values[data[0]]
    if at.op not in STACKING or not any(step.op in _REDUCING for step in way):
        return None
    pieces = tuple(dict.fromkeys(at.inputs))
    if len(pieces) < len(at.inputs) or any(_is_other(trace.values[n], value) for n in pieces):
        return None
    weights = _weights(trace, value, way, pieces)
    if weights is None:
        return None
    given = [trace.values[n].origin for step in way for n in step.inputs if not trace.values[n].is_data]
    origin = max(given, default=Origin.CONSTANT)
    # What is trained may start at 0, as DenseFormer's weights do.
    kept = {n: weight for n, weight in zip(pieces, weights, strict=True) if weight or origin > Origin.CONSTANT}
    return StackedSum(tuple(kept), tuple(kept.values()), origin) if kept else None


def _is_other(piece: TracedValue, value: TracedValue) -> bool:
    return not piece.is_data or piece.shape != value.shape or piece.tensor.dtype != value.tensor.dtype


def _weights(trace: Trace, value: TracedValue, way: list[TracedValue], pieces: tuple[int, ...]) -> list[float] | None:
    """What each piece is multiplied with; None where that is not one number for all of its entries."""
    if value.tensor.is_meta:
        return [1.0] * len(pieces) if {step.op for step in way} == {"sum"} else None
    if len(pieces) > value.tensor.numel():
        return None
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn((len(pieces), *value.shape), generator=generator, dtype=torch.float64)
    made = trace.again({n: z.to(value.tensor) for n, z in zip(pieces, drawn, strict=True)}, value.number)
    flat, wanted = drawn.flatten(1).T, made.detach().cpu().double().flatten()
    weights = torch.linalg.lstsq(flat, wanted[:, None]).solution[:, 0]
    if float((flat @ weights - wanted).abs().max()) > _CLOSE * max(1.0, float(wanted.abs().max())):
        return None
    return [float(f"{weight:.6g}") if abs(weight) > 1e-6 else 0.0 for weight in weights.tolist()]
