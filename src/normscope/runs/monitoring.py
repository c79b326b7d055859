"""The doctor's measurements over depth while a run trains."""

import importlib
import math
from typing import Any

from torch import nn

from ..errors import UserError
from ..train import Objective, TrainConfig
from ..train.protocol import Monitors


def run_monitor(model: nn.Module, objective: Objective, train: TrainConfig) -> Monitors | None:
    """Measures the model on the first batch of the training, at every update that `train.monitor_every` names.

    One batch for all measurements, so that curves are free of the noise of batches. None where none are asked for.
    """
    if not train.monitor_every:
        return None
    # Late, because the doctor is not needed to train; and by name, because what it measures changes no training, so
    # that its source is no part of what identifies one.
    monitor = importlib.import_module("..doctor.monitor", __package__).Monitor
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
