"""The doctor's measurements at some of a training's updates."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn
from torch.distributed.tensor import DTensor

from ..doctor.find.search import streams_in
from ..doctor.identify.stacks import as_stacks
from ..doctor.observe.streams import measured_stacks
from ..doctor.record import Stack
from ..doctor.trace.forward import Inputs
from ..measure import gradient_norms
from .inner import Inner, logit_deviation, look_inside
from .names import named_measurements, named_updates
from .steps import Step


@dataclass(slots=True, kw_only=True)
class Monitor:
    """Measures a model at its first update and at every `every_updates`-th after it: 1, 1 + N, 1 + 2N, …

    In a loop of one's own, after the backward pass and before gradients are clipped:

        monitor = Monitor(model=model, inputs=batch, every_updates=100)
        ...
        loss.backward()
        log(monitor(update))            # {} at updates that are not measured
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        log(monitor.stepped(update))    # how far the step moved each sub-layer

    The stream is measured in evaluation mode with the weights before the update, in a forward pass of its own; modes,
    gradients, buffers and random numbers stay as they are, so a training is the same with a monitor and without.
    Gradients are those of the training. From a measurement to `stepped`, or to the next call, it holds a copy of the
    sub-layers' matrices. Models whose parameters are sharded over processes are refused: a forward pass
    of one process alone would wait for the others.
    """

    model: nn.Module
    inputs: Inputs | None = None
    """What the model is called with, as `find_stacks` takes it; None: every measurement brings its own."""
    every_updates: int = 100
    _stacks: tuple[Stack, ...] = field(default=(), init=False)
    """Found at the first measurement: training changes weights, not wiring."""
    _before_step: "_BeforeStep | None" = field(default=None, init=False)

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
        self._before_step = None
        if not is_due(update, self.every_updates):
            return {}
        given = self.inputs if inputs is None else inputs
        if given is None:
            raise ValueError("nothing to measure the model with: give the monitor inputs, or each measurement its own")
        norms = gradient_norms(self.model) if gradients is None else gradients
        try:
            stacks, inner, deviation = self._measured(given)
        except ValueError as error:
            if not self._stacks:
                raise
            warnings.warn(f"no measurement at update {update}: {error}", RuntimeWarning, stacklevel=2)
            return {}
        names = [name for stack in stacks for sublayer in stack.sublayers for name in sublayer.measured.matrices]
        self._before_step = _BeforeStep(update, stacks, Step(self.model, names))
        found = named_measurements(stacks, inner, norms)
        return found if deviation is None else found | {"normscope/logit_deviation": deviation}

    def stepped(self, update: int) -> dict[str, float]:
        """How far the optimiser's step moved the matrices of each sub-layer; {} where the update was not measured.

        To be called after the step of the same update: `…/update_norm` is the norm of what was added, `…/update_ratio`
        that norm over the weights' own before. A ratio that jumps shows a spike before the loss does.
        """
        before, self._before_step = self._before_step, None
        if before is None or before.update != update:
            return {}
        return named_updates(before.stacks, before.step.moved())

    def _measured(self, inputs: Inputs) -> tuple[tuple[Stack, ...], list[Inner], float | None]:
        graph, streams = streams_in(self.model, inputs)
        if [len(stream.branches) for stream in streams] != [len(stack.sublayers) for stack in self._stacks]:
            self._stacks = tuple(as_stacks(streams))
        inner = [look_inside(graph, stream) for stream in streams]
        return measured_stacks(self.model, graph, streams, self._stacks), inner, logit_deviation(graph, streams)


@dataclass(frozen=True, slots=True)
class _BeforeStep:
    """A measured update whose step has not been taken."""

    update: int
    stacks: tuple[Stack, ...]
    step: Step


def check_every(every_updates: int) -> None:
    """Raises ValueError unless it is at least 1."""
    if every_updates < 1:
        raise ValueError(
            f"every_updates={every_updates}: measure every 1st, 2nd, … update; leave the monitor out for none"
        )


def is_due(update: int, every_updates: int) -> bool:
    """Whether an update, counted from 1, is measured: the first, and every so many after it."""
    return (update - 1) % every_updates == 0
