"""How far the first update moves every sub-layer, of its own and by what comes in: two recorded passes compared."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ...measure.line import Line
from ...measure.unchanged import looked_at
from ..find.search import recorded_pass
from ..observe.streams import mean_square
from ..record import Stack
from ..result import FirstChange, StackChange
from ..trace.forward import Inputs, main_tensor
from ..trace.operations import Trace


def change_along(
    model: nn.Module, inputs: Inputs, line: Line, rate: float, stacks: Sequence[Stack]
) -> FirstChange | None:
    """What one update at that rate changes, with the model as it was afterwards.

    stacks: as they were measured with the same inputs; None without measurements, and where a pass does not
    take the same steps as the one in which they were measured, as where experts are chosen anew.
    """
    if not stacks or any(stack.end is None for stack in stacks):
        return None
    with looked_at(model):
        trace = recorded_pass(model, inputs)
        steps, output = _steps(trace), main_tensor(trace.output)
        if not all(_holds(trace, stack) for stack in stacks):
            return None
        # All else that was recorded need not stand beside the second pass.
        before = {n: trace.values[n].tensor for stack in stacks for n in _numbers(stack)}
        del trace
        with line.at(rate):
            after = recorded_pass(model, inputs)
            if _steps(after) != steps:
                return None
            changes = tuple(_stack(before, after, stack) for stack in stacks)
            return FirstChange(rate=rate, stacks=changes, output=_relative(output, main_tensor(after.output)))


def _numbers(stack: Stack) -> list[int]:
    places = [place for sublayer in stack.sublayers if (place := sublayer.measured.place) is not None]
    end = [] if stack.end is None else [stack.end]
    return end + [n for place in places for n in (place.stream, place.addend, *place.inputs)]


def _holds(trace: Trace, stack: Stack) -> bool:
    whole = stack.end is not None and all(sublayer.measured.place is not None for sublayer in stack.sublayers)
    return whole and max(_numbers(stack)) < len(trace.values)


def _steps(trace: Trace) -> list[tuple[str, torch.Size]]:
    return [(value.op, value.shape) for value in trace.values]


def _stack(before: Mapping[int, Tensor], after: Trace, stack: Stack) -> StackChange:
    stream, total, own, amplified = [], [], [], []
    for sublayer in stack.sublayers:
        place = sublayer.measured.place
        assert place is not None
        # With the weights after the update: what depends on nothing that is replaced was recorded with them.
        moved = after.again({n: before[n] for n in place.inputs}, place.addend)
        here, there = before[place.addend], after.values[place.addend].tensor
        stream.append(_square(after.values[place.stream].tensor - before[place.stream]))
        total.append(_square(there - here))
        own.append(_square(moved - here))
        amplified.append(_square(there - moved))
    assert stack.end is not None
    return StackChange(
        stream=tuple(stream),
        total=tuple(total),
        own=tuple(own),
        amplified=tuple(amplified),
        end=_square(after.values[stack.end].tensor - before[stack.end]),
    )


def _square(change: Tensor) -> float | None:
    found = mean_square(change)
    return found if math.isfinite(found) else None


def _relative(before: Tensor | None, after: Tensor | None) -> float | None:
    if before is None or after is None or not (square := mean_square(before)):
        return None
    change = _square(after - before)
    return None if change is None else change / square
