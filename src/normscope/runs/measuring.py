"""The measurements that a run makes over depth while it trains, of a model that several processes
may share.
"""

import importlib
import math
from typing import Any

from ..errors import UserError
from ..train import Objective, TrainConfig
from ..train.together.sharing import Sharing


class RunMeasurements:
    """Measures the model on one batch at every update that `train.monitor_every` names.

    One batch for all measurements, so that curves are free of the noise of batches. All processes
    call its methods; the first has the numbers.
    """

    def __init__(self, sharing: Sharing, objective: Objective, every_updates: int) -> None:
        # Late, because the doctor is not needed to train; and by name, because what it measures
        # changes no training, so that its source is no part of what identifies one.
        room = importlib.import_module("..monitor.measuring", __package__)
        batch = objective.micro_batch(0)
        self.sharing = sharing
        self.every_updates = every_updates
        self._is_due = room.is_due
        self._monitor: Any = None
        if sharing.group.first:
            self._monitor = room.Monitor(
                model=sharing.measured_model,
                inputs=lambda module: objective.loss_sums(module, batch),
                every_updates=every_updates,
            )

    def before_step(self, update: int) -> dict[str, float]:
        """Returns what is finite of the measurements before the step. Raises UserError for a model
        that cannot be measured.
        """
        if not self._is_due(update, self.every_updates):
            return {}
        norms = self.sharing.gradient_norms()
        with self.sharing.whole():
            return self.sharing.group.of_first(lambda: self._begun(update, norms))

    def after_step(self, update: int) -> dict[str, float]:
        """Returns what is finite of the measurements of the step."""
        if not self._is_due(update, self.every_updates):
            return {}
        with self.sharing.whole():
            return self.sharing.group.of_first(lambda: _finite(self._monitor.stepped(update)))

    def _begun(self, update: int, norms: dict[str, float]) -> dict[str, float]:
        try:
            return _finite(self._monitor(update, None, norms))
        except ValueError as error:
            raise UserError(
                f"this model cannot be measured, so leave out train.monitor_every: {error}"
            ) from error


def measured(sharing: Sharing, objective: Objective, train: TrainConfig) -> RunMeasurements | None:
    """Returns what measures a run; None where nothing is asked for."""
    if not train.monitor_every:
        return None
    return RunMeasurements(sharing, objective, train.monitor_every)


def _finite(measured: dict[str, float]) -> dict[str, float]:
    """Leaves out values that are not finite, which JSON does not have."""
    return {name: value for name, value in measured.items() if math.isfinite(value)}
