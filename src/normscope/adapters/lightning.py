"""Lightning: the doctor's measurements over depth in the trainer's loggers.

from normscope.adapters.lightning import NormScopeCallback
trainer = lightning.Trainer(callbacks=[NormScopeCallback(every_updates=100)], ...)
"""

import importlib
from typing import Any

from ..doctor.trace.forward import Inputs
from ..errors import installation
from ..history.names import recipe_values
from ..monitor.loop import LoopMonitor


def _callback_classes() -> tuple[Any, ...]:
    """Returns the callback classes of both names of the library where both are installed: the
    trainer of each takes callbacks of its own alone.
    """
    found = []
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            found.append(importlib.import_module(name).Callback)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] != name.partition(".")[0]:
                raise
    if not found:
        raise ImportError(f"NormScopeCallback needs Lightning: {installation('lightning')}")
    return tuple(found)


class NormScopeCallback(*_callback_classes()):  # type: ignore[misc]
    """Logs the measurements of `normscope.monitor` at the first update and every `every_updates`-th
    after it.

    What is measured is the first module that `training_step` calls: the LightningModule, or the
    model in it.
    batch: what that is called with (by keyword, by position, or a function of it) at every
    measurement, so that curves are free of the noise of batches; None takes each update's own.
    Gradient norms are the training's, accumulated, unscaled and not clipped. In the loggers
    measurements stand at the step of the same update's loss, which Lightning counts from 0. With
    several processes the first one measures.
    """

    def __init__(self, every_updates: int = 100, batch: Inputs | None = None) -> None:
        super().__init__()
        self._loop = LoopMonitor(every_updates, batch)
        self._step = 0
        self._values = dict[str, float]()
        self._told = False

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_global_zero:
            self._loop.begin(pl_module, trainer.global_step + 1)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if not trainer.is_global_zero:
            return
        self._log(trainer)  # of another optimiser, in the same batch
        self._step = trainer.global_step
        self._values = self._loop.measured(pl_module, self._step + 1, before_clipping=True)
        if self._values and not self._told:
            self._told = True
            self._values |= recipe_values(optimizer, trainer.gradient_clip_val)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # Lightning says nothing between the optimiser's step and this.
        self._log(trainer)

    def _log(self, trainer: Any) -> None:
        if self._values:
            self._values |= self._loop.stepped(self._step + 1)
            # Not by the module's `log`, which keeps only every so many-th update of its own count.
            for logger in trainer.loggers:
                logger.log_metrics(self._values, step=self._step)
        self._values = {}

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._loop.close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._loop.close()
