"""A monitor for the training loop of a framework, which calls back at certain moments and shows little else."""

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..doctor.trace.forward import Inputs
from .measuring import Monitor, check_every, is_due
from .watch import Watch


class LoopMonitor:
    """Opens a `Watch` where an update that is due begins, and measures before its optimiser's step.

    The model is the outermost module that the update calls. batch: what it is called with at every measurement; None
    takes what the update's first batch calls it with.
    """

    def __init__(self, every_updates: int, batch: Inputs | None) -> None:
        check_every(every_updates)
        self.every_updates, self.batch = every_updates, batch
        self._monitor: Monitor | None = None
        self._watch: Watch | None = None

    def begin(self, model: nn.Module, update: int) -> None:
        """A batch of the update, counted from 1, is about to be computed; several of one update may be announced."""
        if not is_due(update, self.every_updates):
            self.close()
        elif self._watch is None:
            self._watch = Watch(model)

    def measured(self, model: nn.Module, update: int, *, before_clipping: bool) -> dict[str, float]:
        """The measurements of `Monitor`; {} for an update that is not due, or whose beginning was not announced.

        before_clipping: whether `.grad` is complete and not clipped yet; otherwise gradients are those that were seen
        as backward left them. Raises ValueError as `Monitor` does, and where the model was not called.
        """
        watch = self._watch
        if watch is None or not is_due(update, self.every_updates):
            return {}
        self.close()
        # What a framework trains is often only a shell around the model.
        model, args, kwargs = watch.called or (model, (), {})
        if self.batch is not None:
            inputs = _beside(model, self.batch)
        elif watch.called is not None:
            inputs = lambda module: module(*args, **kwargs)  # noqa: E731
        else:
            raise ValueError(
                f"no module of this {type(model).__name__} was called in a way that hooks see: give a batch"
            )
        if self._monitor is None or self._monitor.model is not model:
            self._monitor = Monitor(model=model, every_updates=self.every_updates)
        return self._monitor(update, inputs, None if before_clipping else watch.gradient_norms(model))

    def stepped(self, update: int) -> dict[str, float]:
        """What `Monitor.stepped` says after the optimiser's step; {} where the update was not measured."""
        return {} if self._monitor is None else self._monitor.stepped(update)

    def close(self) -> None:
        """Leave the model without hooks, as at the end of training or after an error."""
        if self._watch is not None:
            self._watch.close()
        self._watch = None


def _beside(model: nn.Module, batch: Inputs) -> Inputs:
    """The batch on the device of the model's parameters."""
    device = next((parameter.device for parameter in model.parameters()), None)
    if callable(batch) or device is None:
        return batch
    moved: Inputs = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, batch)
    return moved
