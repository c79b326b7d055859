"""The user's own batches, in the forms in which they may be given."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from ..trace.forward import Inputs
from .trial import Batches

Given = Callable[[int], Inputs] | Iterable[Inputs]
"""A function of the update's number, from 0, or something to go through such as a data loader; each item is what the
model is called with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """Short real trainings that are asked for."""

    batches: Given
    updates: int = 60
    """Of all trainings that look for the best rate, together, at most; as many again look for a warm-up, at most."""


def batches_of(given: Given, loss: Callable[..., Tensor] | None) -> Batches:
    """Items by number: those of a loader are kept, and it is begun again at its end.

    loss: of the output alone, or of the output and the item that it was computed from. The batches raise ValueError
    where a loader has none.
    """
    item = given if callable(given) else _Kept(given)

    def batch(number: int) -> tuple[Inputs, Callable[[Any], Tensor] | None]:
        inputs = item(number)
        return inputs, loss_of_output(loss, inputs)

    return batch


def loss_of_output(loss: Callable[..., Tensor] | None, inputs: Inputs) -> Callable[[Any], Tensor] | None:
    """The loss as a function of the output alone, for this item."""
    return partial(_swapped, loss, inputs) if loss is not None and _positional(loss) >= 2 else loss


def _swapped(loss: Callable[..., Tensor], inputs: Inputs, output: Any) -> Tensor:
    return loss(output, inputs)


def _positional(function: Callable[..., Any]) -> int:
    """How many positional arguments must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 1  # some that are written in C do not say
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in kinds and one.default is one.empty for one in parameters)


class _Kept:
    """A loader's items by number."""

    def __init__(self, loader: Iterable[Inputs]) -> None:
        self._loader, self._items = loader, list[Inputs]()
        self._left: Iterator[Inputs] = iter(loader)

    def __call__(self, number: int) -> Inputs:
        while number >= len(self._items):
            try:
                self._items.append(next(self._left))
            except StopIteration:
                if not self._items:
                    raise ValueError("the batches to train on are none: give a loader with at least one") from None
                return self._items[number % len(self._items)]
        return self._items[number]
