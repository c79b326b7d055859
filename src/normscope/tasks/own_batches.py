"""Batches of a user's own by their numbers: from a function, a list, a data loader, or whatever can
be gone through.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from ..errors import UserError
from ..train.device import seed_data

IGNORED = -100
"""The label of what is no target, as torch's and transformers' losses have it."""


@dataclass(frozen=True, slots=True)
class OwnBatch:
    """A batch as the user's code gave it, and the number of targets in its mean loss."""

    value: Any
    targets: int

    @classmethod
    def of(cls, value: Any) -> "OwnBatch":
        return cls(value, targets_in(value))

    def to(self, device: torch.device) -> "OwnBatch":
        """The same with its tensors on `device`."""
        return OwnBatch(
            _mapped(self.value, lambda one: one.to(device, non_blocking=True)), self.targets
        )

    def pin_memory(self) -> "OwnBatch":
        """The same with its tensors in pinned memory; torch's DataLoader calls it by this name."""
        return OwnBatch(_mapped(self.value, lambda one: one.pin_memory()), self.targets)


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        found = {key: _mapped(one, function) for key, one in value.items()}
        return found if type(value) is dict else _as(value, found)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(one, function) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(_mapped(one, function) for one in value)
    return value


def _as(value: Mapping[Any, Any], found: dict[Any, Any]) -> Any:
    """Returns a mapping in the class that the user's code knows, such as transformers'
    BatchEncoding, where that takes a dictionary.
    """
    try:
        return type(value)(found)  # type: ignore[call-arg]
    except TypeError:
        return found


def labels_in(value: Any) -> Tensor | None:
    """Returns the tensor of labels where it is plain: `labels` of a mapping, or the second of a
    pair.
    """
    found = value.get("labels") if isinstance(value, Mapping) else None
    if isinstance(value, list | tuple) and len(value) == 2:
        found = value[1]
    return found if isinstance(found, Tensor) else None


def targets_in(value: Any) -> int:
    """Labels that count; without labels, rows of the first tensor, and 1 where there is none."""
    labels = labels_in(value)
    if labels is not None:
        return max(
            1, int((labels != IGNORED).sum()) if not labels.is_floating_point() else labels.numel()
        )
    tensors = list[Tensor]()
    _mapped(value, tensors.append)
    return len(tensors[0]) if tensors and tensors[0].ndim else 1


def digest(values: Iterable[Any]) -> str:
    """Returns a SHA-256 of the tensors, arrays and plain values in some batches."""
    found = hashlib.sha256()

    def take(value: Any) -> None:
        if isinstance(value, Tensor):
            found.update(f"{value.dtype} {tuple(value.shape)}".encode())
            found.update(
                value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            )
        elif isinstance(value, np.ndarray):
            found.update(
                f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes()
            )
        elif isinstance(value, Mapping):
            for key in sorted(value, key=str):
                found.update(str(key).encode())
                take(value[key])
        elif isinstance(value, list | tuple):
            for one in value:
                take(one)
        else:
            # Objects of classes of their own print where they lie in memory.
            found.update(
                repr(value).encode()
                if isinstance(value, str | int | float)
                else str(type(value)).encode()
            )

    for value in values:
        take(value)
    return found.hexdigest()


class Source(ABC):
    """Batches by their numbers, from 0 over all epochs."""

    count: int | None = None
    """Batches of an epoch; None where there is no end."""
    words: str
    """The description of the source."""
    exact: bool = True
    """True where the batch of a number is the same whenever it is asked for, so that a run resumes
    exactly.
    """

    @abstractmethod
    def batch(self, number: int, seed: int) -> Any: ...


class _Numbered(Source):
    """A function of the batch's number; what it draws is a function of the number and the seed."""

    words = "a function of the batch's number"

    def __init__(self, function: Callable[[int], Any]) -> None:
        self.function = function

    def batch(self, number: int, seed: int) -> Any:
        seed_data(seed, number)
        return self.function(number)


class _Listed(Source):
    """A sequence of batches, in its order in every epoch."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items, self.count = items, len(items)
        self.words = f"a {type(items).__name__} of {self.count:,}, in its order"

    def batch(self, number: int, seed: int) -> Any:
        seed_data(seed, number)
        return self.items[number % len(self.items)]


class _Loaded(Source):
    """A data loader over a data set with places: its sampler is asked for the order of an epoch,
    under the run's seed.

    An order is drawn whole and not gone through, so that any batch can be fetched by its number, by
    any process.
    """

    def __init__(self, loader: "DataLoader[Any]") -> None:
        self.loader = loader
        self._orders: dict[tuple[int, int], list[Any]] = {}
        once = self._order(0, 0)
        self._orders.clear()
        self._length, self.exact = len(once), once == self._order(0, 0)
        self.count, self.words = self._length, f"a DataLoader of {self._length:,} batches an epoch"

    def batch(self, number: int, seed: int) -> Any:
        epoch, place = divmod(number, self._length)
        order = self._order(epoch, seed)
        if len(order) != self._length:
            raise UserError(
                f"the sampler of the DataLoader gives {len(order)} batches in an epoch, and gave "
                f"{self._length}"
            )
        seed_data(seed, number)
        return self.loader.collate_fn(self._items(order[place]))

    def _items(self, places: Any) -> Any:
        data: Any = self.loader.dataset
        if self.loader.batch_sampler is None:
            return data[places]
        at_once = getattr(data, "__getitems__", None)
        return at_once(places) if at_once is not None else [data[place] for place in places]

    def _order(self, epoch: int, seed: int) -> list[Any]:
        if (epoch, seed) not in self._orders:
            by: Any = (
                self.loader.sampler
                if self.loader.batch_sampler is None
                else self.loader.batch_sampler
            )
            seed_data(seed, epoch, 0)
            drawn = torch.initial_seed()
            for one in {id(one): one for one in (self.loader, self.loader.sampler, by)}.values():
                if hasattr(one, "set_epoch"):
                    one.set_epoch(epoch)
                if isinstance(generator := getattr(one, "generator", None), torch.Generator):
                    generator.manual_seed(drawn)
            # The next epoch's is drawn while batches of this one are still asked for.
            kept = list(self._orders.items())[-1:]
            self._orders = {**dict(kept), (epoch, seed): list(by)}
        return self._orders[epoch, seed]


class _Passed(Source):
    """Something that can only be gone through, again and again: a later batch is reached through
    all before it.
    """

    words, exact = "gone through from its beginning, without an order that is known", False

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items
        self._going, self._next = self._again_and_again(), math.inf

    def batch(self, number: int, seed: int) -> Any:
        if number < self._next:
            seed_data(seed, 0)
            self._going, self._next = self._again_and_again(), 0
        found = next(islice(self._going, number - int(self._next), None))
        self._next = number + 1
        return found

    def _again_and_again(self) -> Iterator[Any]:
        while True:
            item = nothing = object()
            for item in self.items:
                yield item
            if item is nothing:
                raise UserError("batches() gave nothing to go through")


def source_of(given: Any, name: str) -> Source:
    """Returns the batches, by their numbers, that the function of that name returned. Raises
    UserError where they are none.
    """
    if isinstance(given, DataLoader):
        return (
            _Passed(given)
            if isinstance(given.dataset, IterableDataset)
            else _filled(_Loaded(given), name)
        )
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return _filled(_Listed(given), name)
    if isinstance(given, Iterator):
        raise UserError(
            f"{name}() returned {a_value(given)}, which can be gone through once alone; return a "
            "list, a DataLoader, an object whose __iter__ starts again, or a function of the "
            "batch's number"
        )
    if isinstance(given, Iterable):
        return _Passed(given)
    if callable(given):
        return _Numbered(given)
    raise UserError(
        f"{name}() returned {a_value(given)}; it must return a DataLoader, a list of batches, "
        "something else to go through, or a function of the batch's number"
    )


def _filled(source: _Listed | _Loaded, name: str) -> Source:
    if not source.count:
        raise UserError(f"{name}() returned {source.words}: there must be at least one batch")
    return source


def a_value(value: Any) -> str:
    """Describes the value of a function of the user's."""
    return "None" if value is None else f"an object of class {type(value).__name__}"
