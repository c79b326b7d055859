"""Hugging Face Trainer: the doctor's measurements over depth in its log history, and in what it
reports to.

from normscope.adapters.trainer import NormScopeTrainerCallback
trainer = transformers.Trainer(callbacks=[NormScopeTrainerCallback(every_updates=100)], ...)
"""

import inspect
from typing import Any

from ..doctor.trace.forward import Inputs
from ..errors import installation
from ..history.names import recipe_values
from ..monitor.loop import LoopMonitor
from ..report.words import significant

try:
    from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise ImportError(
        f"NormScopeTrainerCallback needs Hugging Face transformers: {installation('huggingface')}"
    ) from error


class NormScopeTrainerCallback(TrainerCallback):
    """Logs the measurements of `normscope.monitor` at the first update and every `every_updates`-th
    after it.

    They go through the Trainer's `log`: to its log history, and TensorBoard, W&B, MLflow and
    whatever else it reports to, beside the loss of the same update. It prints a short line of them.
    batch: what the model is called with (by keyword, by position, or a function of the model) at
    every measurement, so that curves are free of the noise of batches; None takes each update's
    own. Gradient norms are the training's, accumulated and not clipped; with float16 they are those
    of the scaled loss. With several processes the first one measures, and its gradients are those
    of its own part of the batch.
    """

    def __init__(self, every_updates: int = 100, batch: Inputs | None = None) -> None:
        self._loop = LoopMonitor(every_updates, batch)
        self._trainer: Any = None
        self._values: dict[str, float] = {}
        self._told = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer, self._told = _calling_trainer(), False

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._loop.begin(kwargs["model"], state.global_step + 1)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Gradients are clipped by now, and no earlier call comes after backward.
        if state.is_world_process_zero:
            self._values = self._loop.measured(
                kwargs["model"], state.global_step + 1, before_clipping=False
            )
            if self._values and not self._told:
                self._told = True
                self._values |= recipe_values(kwargs["optimizer"], args.max_grad_norm)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._values:
            self._values |= self._loop.stepped(state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # By now the state counts this update, and measurements stand beside its loss.
        if self._values:
            # Logging ends by taking back that the update's own loss should be logged.
            wanted = control.should_log
            handler = self._trainer.callback_handler
            told = handler.callbacks
            printing: list[Any] = [
                one for one in told if isinstance(one, PrinterCallback | ProgressCallback)
            ]
            handler.callbacks = [one for one in told if one not in printing]
            try:
                self._trainer.log(dict(self._values))
            finally:
                handler.callbacks = told
            for one in printing:
                one.on_log(args, state, control, logs={"normscope": _in_short(self._values)})
            control.should_log = wanted
        self._values = {}

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._loop.close()
        self._trainer = None


def _in_short(values: dict[str, float]) -> str:
    """Summarises values over all sub-layers for the terminal: "stream 0.94 to 1.2, gradients 0.13
    to 0.19 (37 values)".
    """
    parts = []
    for said, ending in (("stream", "/stream_square"), ("gradients", "/gradient_norm")):
        if found := [value for name, value in values.items() if name.endswith(ending)]:
            parts.append(f"{said} {significant(min(found), 2)} to {significant(max(found), 2)}")
    return f"{', '.join(parts)} ({len(values)} values)"


def _calling_trainer() -> Any:
    """Returns the Trainer that is calling: a callback is told of its model and its state, and not
    of the Trainer itself.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if isinstance(caller := frame.f_locals.get("self"), Trainer):
            return caller
        frame = frame.f_back
    raise RuntimeError("NormScopeTrainerCallback has to be called by a transformers.Trainer")
