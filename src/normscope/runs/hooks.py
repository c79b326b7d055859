"""What happens around the updates of a run: numbers that a placement schedules, and measurements over depth."""

import importlib
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..model import Stack, profile, renormalise, scheduled_numbers, set_scheduled, unit_vectors
from ..model.linear import in_mode
from ..optim import AdaptiveConfig, Permitted, adaptive_value
from ..train import Hooks, Objective, TrainConfig
from ..train.group import ALONE, Group
from ..train.protocol import Monitors


class OutputChange:
    """The output of a model's last stack on one batch, before an update and after it: ‖f(θ + δ) - f(θ)‖ / ‖f(θ)‖.

    The change of the output by a change δ of the weights is what Liu et al. 2020 (arXiv:2004.08249, section 4.2) call
    amplification where it grows with depth. Two forward passes in evaluation mode, which draw no random numbers and
    leave the model as it was; norms over all features of all tokens.
    """

    def __init__(self, model: nn.Module, forward: Callable[[], object]) -> None:
        """forward: passes the batch through the model. Raises ValueError for a model without a stack."""
        stacks = [module for module in model.modules() if isinstance(module, Stack)]
        if not stacks:
            raise ValueError("the model has no stack of blocks, whose output could be measured")
        self.model, self.forward, self.last_stack = model, forward, stacks[-1]
        self._before = torch.empty(0)

    def before_step(self) -> None:
        """Keep the output as it is."""
        self._before = self._output()

    def after_step(self) -> float:
        """By how much it has changed, as a share of its own size; NaN where one of them is not finite."""
        before = self._before.double()
        change = torch.linalg.vector_norm(self._output().double() - before) / torch.linalg.vector_norm(before)
        return float(change)

    @torch.no_grad()
    def _output(self) -> Tensor:
        seen: list[Tensor] = []
        watched = self.last_stack.register_forward_hook(lambda stack, inputs, output: seen.append(output))
        try:
            with in_mode(self.model, training=False):
                self.forward()
        finally:
            watched.remove()
        return seen[-1]


class PlacementHooks(Hooks):
    """Initial values taken from the first batch, numbers that follow a schedule, and weights kept at length 1."""

    def __init__(self, model: nn.Module, adaptive: AdaptiveConfig, *, drawn: bool) -> None:
        """adaptive: with `over` in updates. drawn: False for weights learned elsewhere, which are not profiled."""
        self.model, self.adaptive, self.drawn = model, adaptive, drawn
        self.scheduled, self.unit_vectors = scheduled_numbers(model), unit_vectors(model)

    def before_first_batch(self, forward: Callable[[], object]) -> None:
        if self.drawn:
            profile(self.model, forward)

    def before_update(self, update: int) -> dict[str, float]:
        return self._moved(update)

    def after_update(self) -> dict[str, float]:
        renormalise(self.unit_vectors)
        return {}

    def _moved(self, counted: int) -> dict[str, float]:
        """The scheduled numbers, put where they stand after so many updates that count."""
        value = adaptive_value(self.adaptive, counted)
        set_scheduled(self.scheduled, value)
        return dict.fromkeys(self.scheduled, value)


class ControlledHooks(PlacementHooks):
    """The same with a controller: the numbers move only while updates change the output little enough."""

    def __init__(
        self,
        model: nn.Module,
        adaptive: AdaptiveConfig,
        *,
        drawn: bool,
        forward: Callable[[], object],
        group: Group = ALONE,
    ) -> None:
        """forward: passes the batch through the model that its output is measured on; the first process does that.

        Raises ValueError where no number of the model follows a schedule.
        """
        super().__init__(model, adaptive, drawn=drawn)
        if not self.scheduled:
            raise ValueError("no number of this placement's formula follows a schedule")
        self.group, self.change = group, OutputChange(model, forward)
        self.permitted, self.due = Permitted(), False

    def before_update(self, update: int) -> dict[str, float]:
        moved = self._moved(self.permitted.next_update())
        self.due = (update - 1) % self.adaptive.measure_every == 0
        if self.due and self.group.first:
            self.change.before_step()
        return moved

    def after_update(self) -> dict[str, float]:
        """The change that was measured, where it is finite."""
        logged = super().after_update()
        if not self.due:
            return logged
        # One of several processes decides for all: machines need not agree in the last bit.
        change = self.group.from_first(self.change.after_step() if self.group.first else math.nan)
        self.permitted.measured(change, self.adaptive.largest_change)
        return logged | ({"output_change": change} if math.isfinite(change) else {})

    def to_state(self) -> dict[str, Any]:
        return {"adaptive": asdict(self.permitted)}

    def restore(self, state: dict[str, Any]) -> None:
        self.permitted = Permitted(**state["adaptive"])


def run_monitor(model: nn.Module, objective: Objective, train: TrainConfig) -> Monitors | None:
    """Measures the model on the first batch of the training, at every update that `train.monitor_every` names.

    One batch for all measurements, so that curves are free of the noise of batches. None where none are asked for.
    """
    if not train.monitor_every:
        return None
    # Late, because the doctor is not needed to train; and by name, because what it measures changes no training, so
    # that its source is no part of what identifies one.
    monitor = importlib.import_module("..monitor", __package__).Monitor
    batch = objective.micro_batch(0)
    return _RunMonitor(
        monitor(
            model=model, inputs=lambda module: objective.loss_sums(module, batch), every_updates=train.monitor_every
        )
    )


class _RunMonitor:
    def __init__(self, monitor: Any) -> None:
        """monitor: a `normscope.monitor.Monitor`."""
        self._monitor = monitor

    def __call__(self, update: int) -> dict[str, float]:
        try:
            return _finite(self._monitor(update))
        except ValueError as error:
            raise UserError(f"this model cannot be measured, so leave out train.monitor_every: {error}") from error

    def stepped(self, update: int) -> dict[str, float]:
        return _finite(self._monitor.stepped(update))


def _finite(measured: dict[str, float]) -> dict[str, float]:
    """Without what is not finite, which JSON does not have."""
    return {name: value for name, value in measured.items() if math.isfinite(value)}
