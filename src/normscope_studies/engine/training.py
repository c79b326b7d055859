"""A small model trained in this process, update by update, so that a study can look at it in between."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn

from normscope.model import profile, renormalise, scheduled_numbers, set_scheduled, unit_vectors
from normscope.optim import AdaptiveConfig, OptimizerConfig, ScheduleConfig, make_optimizer
from normscope.optim.schedules import adaptive_value, factor
from normscope.tasks.protocol import TrainingBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """How a model is trained. Schedules are in updates."""

    optimizer: OptimizerConfig
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    adaptive: AdaptiveConfig = field(default_factory=AdaptiveConfig)
    updates: int
    """The horizon of the schedules."""


class Training:
    """As a run's training in one process, without dropout's masks, clipping or checkpoints.

    Initial values that a placement takes from a batch come from the first one.
    """

    def __init__(self, model: nn.Module, batch: Callable[[int], TrainingBatch], plan: TrainingPlan) -> None:
        """batch: the training's batches, counted from 0."""
        self.model, self.batch, self.plan = model, batch, plan
        first = batch(0)
        profile(model, lambda: first.run(model))
        self.optimizer = make_optimizer(model, plan.optimizer)
        self.vectors = unit_vectors(model)
        self.numbers = scheduled_numbers(model)
        self.update = 0
        """Of those that were taken, the last."""
        self._peaks = [group["lr"] for group in self.optimizer.param_groups]

    def backward(self) -> float:
        """Put the gradients of the next update's batch in place; its loss in nats before that update."""
        update = self.update + 1
        if self.numbers:
            set_scheduled(self.numbers, adaptive_value(self.plan.adaptive, update))
        self.optimizer.zero_grad()
        batch = self.batch(update - 1)
        loss = batch.loss(batch.run(self.model))
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def step(self) -> None:
        """Take the update whose gradients are in place."""
        self.update += 1
        scale = factor(self.plan.schedule, self.update, horizon_updates=self.plan.updates)
        for group, peak in zip(self.optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * scale
        self.optimizer.step()
        renormalise(self.vectors)
