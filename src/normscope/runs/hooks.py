"""What placements ask of the training loop."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from torch import nn

from ..model import profile, renormalise, scheduled_numbers, set_scheduled, unit_vectors
from ..optim import AdaptiveConfig, Permitted, adaptive_value
from ..train import Hooks
from ..train.replicas import ALONE, Group
from .output_change import OutputChange


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
        change = self.group.told(self.change.after_step() if self.group.first else math.nan)
        self.permitted.measured(change, self.adaptive.largest_change)
        return logged | ({"output_change": change} if math.isfinite(change) else {})

    def to_state(self) -> dict[str, Any]:
        return {"adaptive": asdict(self.permitted)}

    def restore(self, state: dict[str, Any]) -> None:
        self.permitted = Permitted(**state["adaptive"])
