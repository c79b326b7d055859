"""A model's weights before and after an update, put into it by turns."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class TwoWeights:
    """A model's weights before and after an update."""

    def __init__(self, model: nn.Module, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
        named = dict(model.named_parameters(remove_duplicate=False))
        for name, tensor in [*before.items(), *after.items()]:
            if name not in named:
                raise ValueError(f"{name} is no parameter of this {type(model).__name__}")
            if tensor.shape != named[name].shape:
                raise ValueError(f"{name} has shape {tuple(named[name].shape)}, got {tuple(tensor.shape)}")
        # By the parameter itself, so that one of several names is moved once.
        self._both = {
            id(named[name]): (named[name], _copy(before.get(name, named[name])), _copy(after.get(name, named[name])))
            for name in dict.fromkeys([*before, *after])
        }

    @torch.no_grad()
    def put_before(self) -> None:
        for weight, start, _ in self._both.values():
            weight.copy_(start)

    @torch.no_grad()
    def put_after(self) -> None:
        for weight, _, end in self._both.values():
            weight.copy_(end)

    @contextmanager
    def moved(self, module: nn.Module) -> Iterator[None]:
        """This module's own weights after the update, all others before it, while the context lasts."""
        own = [self._both[id(weight)] for weight in module.parameters() if id(weight) in self._both]
        try:
            with torch.no_grad():
                for weight, _, end in own:
                    weight.copy_(end)
            yield
        finally:
            with torch.no_grad():
                for weight, start, _ in own:
                    weight.copy_(start)


def _copy(weight: Tensor) -> Tensor:
    return weight.detach().clone()
