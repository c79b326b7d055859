"""The doctor's measurements over depth while a model trains, as flat names that any logger takes."""

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn
from torch.distributed.tensor import DTensor

from ...measure import gradient_norms
from ..identify.found import FoundStack
from ..identify.model import Inputs, streams_in
from ..identify.stacks import as_stacks
from .observed import ObservedStack, ObservedSublayer
from .streams import observed_stacks


@dataclass(slots=True, kw_only=True)
class Monitor:
    """Measures a model at its first update and at every `every_updates`-th after it: 1, 1 + N, 1 + 2N, …

    In a loop of one's own, after the backward pass and before gradients are clipped:

        monitor = Monitor(model=model, inputs=batch, every_updates=100)
        ...
        loss.backward()
        log(monitor(update))    # {} at updates that are not measured

    The stream is measured in evaluation mode with the weights before the update, in a forward pass of its own; modes,
    gradients, buffers and random numbers stay as they are, so a training is the same with a monitor and without.
    Gradients are those of the training. Models whose parameters are sharded over processes are refused: a forward pass
    of one process alone would wait for the others.
    """

    model: nn.Module
    inputs: Inputs | None = None
    """What the model is called with, as `find_stacks` takes it; None: every measurement brings its own."""
    every_updates: int = 100
    _stacks: tuple[FoundStack, ...] = field(default=(), init=False)
    """Found at the first measurement: training changes weights, not wiring."""

    def __post_init__(self) -> None:
        check_every(self.every_updates)
        if sharded := [name for name, p in self.model.named_parameters() if isinstance(p, DTensor)]:
            raise ValueError(f"{sharded[0]} is sharded over processes; measure such a model before it is sharded")

    def __call__(
        self, update: int, inputs: Inputs | None = None, gradients: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """The measurements at this update, counted from 1, by name; {} where it is not due.

        inputs: in place of those of the monitor. gradients: norms by parameter; None takes them of `.grad`.
        Raises ValueError as `find_stacks` does at the first measurement. A training is not ended by one that fails
        later, as with weights that are no longer finite: it is left out with a warning.
        """
        if not is_due(update, self.every_updates):
            return {}
        given = self.inputs if inputs is None else inputs
        if given is None:
            raise ValueError("nothing to measure the model with: give the monitor inputs, or each measurement its own")
        norms = gradient_norms(self.model) if gradients is None else gradients
        try:
            observed = self._observed(given)
        except ValueError as error:
            if not self._stacks:
                raise
            warnings.warn(f"no measurement at update {update}: {error}", RuntimeWarning, stacklevel=2)
            return {}
        return named_measurements(self._stacks, observed, norms)

    def _observed(self, inputs: Inputs) -> tuple[ObservedStack, ...]:
        graph, streams = streams_in(self.model, inputs)
        if [len(stream.branches) for stream in streams] != [len(stack.sublayers) for stack in self._stacks]:
            self._stacks = tuple(as_stacks(streams))
        return observed_stacks(self.model, graph, streams)


def check_every(every_updates: int) -> None:
    """Raises ValueError unless it is at least 1."""
    if every_updates < 1:
        raise ValueError(
            f"every_updates={every_updates}: measure every 1st, 2nd, … update; leave the monitor out for none"
        )


def is_due(update: int, every_updates: int) -> bool:
    """Whether an update, counted from 1, is measured: the first, and every so many after it."""
    return (update - 1) % every_updates == 0


def named_measurements(
    stacks: Sequence[FoundStack], observed: Sequence[ObservedStack], gradients: Mapping[str, float]
) -> dict[str, float]:
    """Measurements as `normscope/<stack>/block_<number>/<kind>/<quantity>`, and `normscope/<stack>/<quantity>`.

    Quantities of a sub-layer are `stream_square`, `share`, `correlation` and `gradient_norm`, of a stack
    `source_square` and `end_square`, all as `ObservedSublayer` and `ObservedStack` have them; gradient norms are taken
    of `gradients`, by parameter, over the sub-layer's parameters that have one. What is not known has no name.
    """
    found: dict[str, float | None] = {}
    for name, stack, seen in zip(_stack_names(stacks), stacks, observed, strict=True):
        found[f"normscope/{name}/source_square"] = seen.source_square
        found[f"normscope/{name}/end_square"] = seen.end_square
        for place, sublayer in zip(_sublayer_names(stack), seen.sublayers, strict=True):
            at = f"normscope/{name}/{place}"
            found[f"{at}/stream_square"] = sublayer.stream_square
            found[f"{at}/share"] = sublayer.share
            found[f"{at}/correlation"] = sublayer.correlation
            found[f"{at}/gradient_norm"] = _norm_over(sublayer, gradients)
    return {name: value for name, value in found.items() if value is not None}


def _norm_over(sublayer: ObservedSublayer, gradients: Mapping[str, float]) -> float | None:
    norms = [gradients[name] for name in sublayer.parameters if name in gradients]
    return math.hypot(*norms) if norms else None


def _stack_names(stacks: Sequence[FoundStack]) -> list[str]:
    """The stack's path in the model, `stack` for the model itself; several of one name are numbered."""
    return _numbered([stack.name or "stack" for stack in stacks])


def _sublayer_names(stack: FoundStack) -> list[str]:
    digits = max(2, len(str(stack.blocks)))
    return _numbered([f"block_{sub.block:0{digits}}/{sub.kind}" for sub in stack.sublayers])


def _numbered(names: Sequence[str]) -> list[str]:
    """The second `a` is `a_2`, and so on."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found
