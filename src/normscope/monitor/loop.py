"""A monitor for the training loop of a framework, which calls back at certain moments and shows
little else.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..doctor.trace.forward import Inputs
from .measuring import Monitor, check_every, is_due


class _UpdateRecorder:
    """While it is open, what the outermost called module is given, and the norm of every gradient
    as backward left it.

    For loops that show neither the batch nor the gradients before they are clipped. It hangs hooks
    on every module and parameter, so it should be open for the updates that are measured and no
    others; `close` takes them off. A gradient that is accumulated over several batches counts as it
    is after the last one; where one is scaled against underflow (float16), or averaged over
    processes later, it counts as it is before.
    """

    def __init__(self, model: nn.Module) -> None:
        self.called: tuple[nn.Module, tuple[Any, ...], dict[str, Any]] | None = None
        """The module of the model that was called first, and its arguments."""
        self._norms: dict[int, Tensor] = {}
        self._calls = [
            module.register_forward_pre_hook(self._call, with_kwargs=True)
            for module in model.modules()
        ]
        self._gradients = [
            parameter.register_post_accumulate_grad_hook(self._gradient)  # type: ignore[no-untyped-call]
            for parameter in model.parameters()
            if parameter.requires_grad
        ]

    def _call(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.called is None:
            self.called = module, args, kwargs
            # Only the outermost call is wanted; the ones inside it need not be asked.
            for handle in self._calls:
                handle.remove()

    def _gradient(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self._norms[id(parameter)] = _norm(parameter.grad)

    def gradient_norms(self, model: nn.Module) -> dict[str, float]:
        """Returns the Frobenius norms by parameter name of those of the model's parameters that had
        a gradient meanwhile.
        """
        found = {
            name: self._norms[id(p)] for name, p in model.named_parameters() if id(p) in self._norms
        }
        # One transfer for all of them.
        values = torch.stack(list(found.values())).tolist() if found else []
        return dict(zip(found, values, strict=True))

    def close(self) -> None:
        """Take the hooks off; what was seen stays."""
        for handle in [*self._calls, *self._gradients]:
            handle.remove()


def _norm(gradient: Tensor) -> Tensor:
    dense = gradient.detach().to_dense() if gradient.layout != torch.strided else gradient.detach()
    norm: Tensor = torch.linalg.vector_norm(dense, dtype=torch.float32)
    return norm


class LoopMonitor:
    """Opens a `_UpdateRecorder` where an update that is due begins, and measures before its
    optimiser's step.

    The model is the outermost module that the update calls. batch: what it is called with at every
    measurement; None takes what the update's first batch calls it with.
    """

    def __init__(self, every_updates: int, batch: Inputs | None) -> None:
        check_every(every_updates)
        self.every_updates, self.batch = every_updates, batch
        self._monitor: Monitor | None = None
        self._recorder: _UpdateRecorder | None = None

    def begin(self, model: nn.Module, update: int) -> None:
        """A batch of the update, counted from 1, is about to be computed; several of one update may
        be announced.
        """
        if not is_due(update, self.every_updates):
            self.close()
        elif self._recorder is None:
            self._recorder = _UpdateRecorder(model)

    def measured(self, model: nn.Module, update: int, *, before_clipping: bool) -> dict[str, float]:
        """Returns the measurements of `Monitor`; {} for an update that is not due, or whose
        beginning was not announced.

        before_clipping: whether `.grad` is complete and not clipped yet; otherwise gradients are
        those that were seen as backward left them. Raises ValueError as `Monitor` does, and where
        the model was not called.
        """
        recorder = self._recorder
        if recorder is None or not is_due(update, self.every_updates):
            return {}
        self.close()
        # What a framework trains is often only a shell around the model.
        model, args, kwargs = recorder.called or (model, (), {})
        if self.batch is not None:
            inputs = _beside(model, self.batch)
        elif recorder.called is not None:
            inputs = lambda module: module(*args, **kwargs)  # noqa: E731
        else:
            raise ValueError(
                f"no module of this {type(model).__name__} was called in a way that hooks see: "
                "give a batch"
            )
        if self._monitor is None or self._monitor.model is not model:
            self._monitor = Monitor(model=model, every_updates=self.every_updates)
        return self._monitor(
            update, inputs, None if before_clipping else recorder.gradient_norms(model)
        )

    def stepped(self, update: int) -> dict[str, float]:
        """Returns the measurements of `Monitor.stepped` after the optimiser's step; {} where the
        update was not measured.
        """
        return {} if self._monitor is None else self._monitor.stepped(update)

    def close(self) -> None:
        """Leave the model without hooks, as at the end of training or after an error."""
        if self._recorder is not None:
            self._recorder.close()
        self._recorder = None


def _beside(model: nn.Module, batch: Inputs) -> Inputs:
    """Returns the batch on the device of the model's parameters."""
    device = next((parameter.device for parameter in model.parameters()), None)
    if callable(batch) or device is None:
        return batch
    moved: Inputs = tree_map(
        lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, batch
    )
    return moved
