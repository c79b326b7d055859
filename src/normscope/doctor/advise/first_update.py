"""A model along its first update: loss, spread between tokens, and how far every sub-layer moves, at each rate."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...measure.line import Line, Make, bottom, first_updates
from ...measure.unchanged import left_unchanged, looked_at
from ..find.search import recorded_pass
from ..observe.gradients import Backward, backward, loss_of, spread_of
from ..observe.streams import mean_square
from ..record import Stack
from ..result import FirstChange, StackChange
from ..trace.forward import Inputs, call_with, main_tensor
from ..trace.operations import Trace

# N = rows of an output (tokens, or examples), C = its last dimension


STEPS_A_DECADE = 3
_LOWEST, _HIGHEST = -7, 4
RATES_AT_LEAST = _HIGHEST + 1 - _LOWEST
"""Steps about the rate at which the first update is as long as the weights."""
_NEVER_BELOW = -21
_OPENING_RATE = 1e-2
"""Of that rate: enough for a gate that starts at 0 to let a gradient through, too little to change anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstUpdate:
    """What one update at each of `rates` does to the batch it was made from, by forward passes alone."""

    reach: float
    """The rate at which the update is as long as the weights themselves."""
    rates: tuple[float, ...]
    """Rising, a third of a decade apart."""
    losses: tuple[float, ...]
    """Loss in nats after it; NaN or infinite where it is not finite."""
    spreads: tuple[float, ...]
    """Mean squared difference between the rows of the output and their mean row, over what it is before the update."""
    loss_before: float
    shut_weights: int
    """How many weights have a gradient of zero throughout before the update, as behind a gate that starts at 0."""

    def spread_falls_to(self, level: float) -> float | None:
        """The rate at which the spread first falls to `level`, between rates by logarithms; None where it never does.

        A spread that rises back later does not count: what was lost is lost to a training that went through it.
        """
        previous: tuple[float, float] | None = None
        for rate, spread in zip(self.rates, self.spreads, strict=True):
            now = math.log(max(spread, 1e-30)) if math.isfinite(spread) else -math.inf
            if now <= math.log(level):
                if previous is None or now == -math.inf:
                    return rate
                share = (previous[1] - math.log(level)) / (previous[1] - now)
                return math.exp(previous[0] + share * (math.log(rate) - previous[0]))
            previous = math.log(rate), now
        return None

    @property
    def critical_rate(self) -> float | None:
        """Where the loss along the update is lowest, by a parabola through three rates. None where none lowers it."""
        losses = [loss if math.isfinite(loss) else math.inf for loss in self.losses]
        at = min(range(len(losses)), key=losses.__getitem__)
        if losses[at] >= self.loss_before:
            return None
        if at in (0, len(losses) - 1) or not math.isfinite(losses[at + 1]):
            return self.rates[at]
        return bottom(self.rates[at - 1 : at + 2], losses[at - 1 : at + 2])

    @property
    def rise_rate(self) -> float | None:
        """Where the loss is back at what it was before the update, beyond its lowest; None where it stays below."""
        losses = [loss if math.isfinite(loss) else math.inf for loss in self.losses]
        at = min(range(len(losses)), key=losses.__getitem__)
        for place in range(at + 1, len(losses)):
            low, high = losses[place - 1], losses[place]
            if high >= self.loss_before:
                share = 0.5 if math.isinf(high) or high == low else (self.loss_before - low) / (high - low)
                step = math.log(self.rates[place] / self.rates[place - 1])
                return self.rates[place - 1] * math.exp(step * share)
        return None


_RateWatch = Callable[[int, int], None]


def first_update(
    model: nn.Module,
    inputs: Inputs,
    loss: Callable[[Any], Tensor] | None,
    make: Make,
    watch: _RateWatch = lambda done, total: None,
    start: Backward | None = None,
) -> tuple[FirstUpdate, Line]:
    """Take the gradient, let the optimiser say where it would go, and look along that line, which is returned too.

    make: an optimiser over one weight, as `first_updates` wants it. Where weights lie behind a gate that starts at 0,
    their gradient is that of a short way along the first one. In evaluation mode; the model is left as it was.
    watch: told how many rates were looked at, and how many there are; more may be added.
    start: the backward pass on these inputs with this loss, where there was one already; its gradients are cleared.
    Raises ValueError for a loss that is not finite, or that no trained weight has an influence on.
    """
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    watch(0, RATES_AT_LEAST)
    start = start or _passed(model, inputs, loss)
    with left_unchanged(model):
        gradients = start.gradients
        shut = [name for name in gradients if not start.gradient_norms[name]]
        direction = first_updates(weights, gradients, make)
        if not shut:
            gradients.clear()
        line = Line(weights, direction)
        if not line.reach:
            raise ValueError("the first update moves no weight: is every learning rate 0, or every weight frozen?")
        if shut:
            with line.at(_OPENING_RATE * line.reach):
                opened = _passed(model, inputs, loss).gradients
            gradients |= {name: opened[name] for name in shut if name in opened}
            line = Line(weights, first_updates(weights, gradients, make))
            gradients.clear()
        with torch.no_grad():
            return _along(line, model, inputs, loss, start, len(shut), watch), line


def _along(
    line: Line,
    model: nn.Module,
    inputs: Inputs,
    loss: Callable[[Any], Tensor] | None,
    start: Backward,
    shut: int,
    watch: _RateWatch,
) -> FirstUpdate:
    seen: dict[int, tuple[float, float]] = {}

    spread_before = start.spread or 1.0
    with line.moving() as move:

        def look(step: int) -> None:
            move(line.reach * 10 ** (step / STEPS_A_DECADE))
            output = call_with(model, inputs)
            seen[step] = float(loss_of(output, loss)[0]), spread_of(output)
            watch(len(seen), max(len(seen), RATES_AT_LEAST))

        for step in range(_LOWEST, _HIGHEST + 1):
            look(step)
        # A deep stack without a skip may be past it all at the lowest rate.
        while seen[min(seen)][1] < spread_before / 2 and min(seen) > _NEVER_BELOW:
            look(min(seen) - 1)
    ordered = sorted(seen.items())
    return FirstUpdate(
        reach=line.reach,
        rates=tuple(line.reach * 10 ** (step / STEPS_A_DECADE) for step, _ in ordered),
        losses=tuple(loss for _, (loss, _) in ordered),
        spreads=tuple(spread / spread_before for _, (_, spread) in ordered),
        loss_before=start.loss_nats,
        shut_weights=shut,
    )


def _passed(model: nn.Module, inputs: Inputs, loss: Callable[[Any], Tensor] | None) -> Backward:
    return backward(model, lambda: call_with(model, inputs), loss)


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
