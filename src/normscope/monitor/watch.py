"""One update of somebody else's training loop, watched: what the model is called with, and its complete gradients."""

from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn


class Watch:
    """While it is open, what the outermost called module is given, and the norm of every gradient as backward left it.

    For loops that show neither the batch nor the gradients before they are clipped. It hangs hooks on every module and
    parameter, so it should be open for the updates that are measured and no others; `close` takes them off. A gradient
    that is accumulated over several batches counts as it is after the last one; where one is scaled against underflow
    (float16), or averaged over processes later, it counts as it is before.
    """

    def __init__(self, model: nn.Module) -> None:
        self.called: tuple[nn.Module, tuple[Any, ...], dict[str, Any]] | None = None
        """The module of the model that was called first, and its arguments."""
        self._norms: dict[int, Tensor] = {}
        self._calls = [module.register_forward_pre_hook(self._call, with_kwargs=True) for module in model.modules()]
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
        """Frobenius norms by parameter name of those of the model's parameters that had a gradient meanwhile."""
        found = {name: self._norms[id(p)] for name, p in model.named_parameters() if id(p) in self._norms}
        # One transfer for all of them.
        values = torch.stack(list(found.values())).tolist() if found else []
        return dict(zip(found, values, strict=True))

    def close(self) -> None:
        """Take the hooks off; what was seen stays."""
        for handle in [*self._calls, *self._gradients]:
            handle.remove()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def _norm(gradient: Tensor) -> Tensor:
    dense = gradient.detach().to_dense() if gradient.layout != torch.strided else gradient.detach()
    norm: Tensor = torch.linalg.vector_norm(dense, dtype=torch.float32)
    return norm
