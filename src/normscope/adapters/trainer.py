"""Hugging Face Trainer: the doctor's measurements over depth in its log history, and in what it reports to.

from normscope.adapters.trainer import NormScopeTrainerCallback
trainer.add_callback(NormScopeTrainerCallback(every_updates=100, trainer=trainer))
"""

from typing import Any

from ..doctor.monitor.loop import LoopMonitor
from ..doctor.trace.inputs import Inputs

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise ImportError(
        "NormScopeTrainerCallback needs Hugging Face transformers: pip install 'normscope[huggingface]'"
    ) from error


class NormScopeTrainerCallback(TrainerCallback):
    """Logs the measurements of `normscope.doctor.monitor` at the first update and every `every_updates`-th after it.

    batch: what the model is called with (by keyword, by position, or a function of the model) at every measurement, so
    that curves are free of the noise of batches; None takes each update's own.
    trainer: with it measurements go through its `log`, and so to TensorBoard, W&B and what else it reports to; without,
    a callback reaches its log history alone.
    Gradient norms are the training's, accumulated and not clipped; with float16 they are those of the scaled loss. With
    several processes the first one measures, and its gradients are those of its own part of the batch.
    """

    def __init__(self, every_updates: int = 100, batch: Inputs | None = None, trainer: Any = None) -> None:
        self._loop = LoopMonitor(every_updates, batch)
        self._trainer = trainer
        self._values: dict[str, float] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._loop.begin(kwargs["model"], state.global_step + 1)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Gradients are clipped by now, and no earlier call comes after backward.
        if state.is_world_process_zero:
            self._values = self._loop.measured(kwargs["model"], state.global_step + 1, before_clipping=False)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # By now the state counts this update, and measurements stand beside its loss.
        if self._values and self._trainer is not None:
            self._trainer.log(dict(self._values))
        elif self._values:
            state.log_history.append({**self._values, "epoch": state.epoch, "step": state.global_step})
        self._values = {}

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._loop.close()
