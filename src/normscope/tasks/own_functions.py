"""The functions of a user's file that make a task: found by their names, called, and their mistakes
told in a line.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import UserError, error_line
from ..optim.groups import GroupsConfig, given_groups
from ..settings.files import OwnFile, factory_in
from ..train.device import seed_data
from .own_batches import IGNORED, Source, a_value, labels_in, source_of

CONTRACT = (
    "a model of your own is a Python file with build(), which returns a torch.nn.Module, "
    "batches(), which returns a DataLoader, a list or a function of the batch's number, and where "
    "wanted validation(), loss(model, batch), metrics(model, batch) and groups(model)"
)
_TAKEN_BY_METRICS = 2
"""Arguments: the model and a batch, as loss() takes them."""
_METRIC_NAME = re.compile(r"[\w-]{1,40}", re.ASCII)
_HELD = 8
"""Batches of the training that are validated on where there is no validation()."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of the user's, which has run, and the name of the function in it that builds the
    model.
    """

    file: Path
    factory: str

    @classmethod
    def opened(cls, factory: str, imports: Sequence[str]) -> "ModelFile":
        """Opens the file of a factory. Raises UserError where the file has not run: it does on the
        user's word alone.
        """
        named = factory_in(factory)
        assert named is not None
        path = named[0].resolve()
        own = next(file for file in map(OwnFile.of, imports) if file.path == path)
        if not own.has_run:
            raise UserError(
                f"the model is that of {path}, which runs on your word alone: --trust (trust=True "
                f"in Python) runs it as it was when the run began, and --import {path} whatever it "
                "holds"
            )
        return cls(path, named[1])

    def build(self) -> nn.Module:
        """Returns the model, drawn with the random numbers that there are. Raises UserError."""
        with torch.device("cpu"):
            made = self.call(self.factory, self._function(self.factory, needed=True))
        if not isinstance(made, nn.Module):
            also = (
                "; the batches are for batches() to return"
                if isinstance(made, tuple | Mapping)
                else ""
            )
            raise self.wrong(
                f"{self.factory}() returned {a_value(made)}, and must return a torch.nn.Module "
                f"alone{also}"
            )
        return made

    def sources(self) -> tuple[Source, Source, bool]:
        """Returns the batches of the training and of the validation, and whether the latter are the
        user's. Raises UserError.
        """
        train = self._source("batches", self._function("batches", needed=True))
        validation = self._function("validation", needed=False)
        if validation is not None:
            return train, self._source("validation", validation), True
        held = range(min(_HELD, train.count or _HELD))
        return train, source_of([train.batch(number, 0) for number in held], "batches"), False

    def _source(self, name: str, function: Callable[..., Any]) -> Source:
        # Data are the same in runs of all seeds.
        seed_data(0)
        with torch.device("cpu"):
            if _takes(function) == 1:
                return source_of(lambda number: self.call(name, function, number), name)
            try:
                return source_of(self.call(name, function), name)
            except UserError as error:
                raise error if str(self.file) in str(error) else self.wrong(str(error)) from error

    def output(self, model: nn.Module, batch: Any) -> Any:
        """Returns the model's output for a batch; its loss where the file has a loss() of its own.
        Raises UserError.
        """
        own = self._function("loss", needed=False)
        if own is not None:
            return self._scalar(self.call("loss", own, model, batch), "loss() returned")
        if isinstance(batch, Mapping):
            return self.call("the model", lambda: model(**batch))
        if isinstance(batch, list | tuple) and len(batch) == 2:
            return self.call("the model", model, batch[0])
        raise self.wrong(
            f"a batch is {a_value(batch)}; without loss(model, batch) it must be a mapping, which "
            "the model takes by keyword and gives a loss for, or a pair (inputs, labels)"
        )

    def loss(self, output: Any, batch: Any) -> Tensor:
        """Returns the mean loss of a batch, from `output`. Raises UserError."""
        if self.has_loss:
            scalar: Tensor = output
            return scalar
        if isinstance(batch, Mapping):
            found = (
                output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
            )
            if found is None:
                raise self.wrong(
                    f"the model gave {a_value(output)} without a loss for a batch of "
                    f"{', '.join(map(str, batch))}; put labels into the batch, or write "
                    "loss(model, batch)"
                )
            return self._scalar(found, "the loss of the model is")
        labels = labels_in(batch)
        if labels is None or labels.is_floating_point() or not _fit(output, labels):
            shape = f" of shape {tuple(output.shape)}" if isinstance(output, Tensor) else ""
            of = f" of {labels.dtype} and shape {tuple(labels.shape)}" if labels is not None else ""
            raise self.wrong(
                f"the model gave {a_value(output)}{shape} for labels{of}; without loss(model, "
                "batch) it must give logits, with a last dimension more than whole numbers as "
                "labels have"
            )
        return functional.cross_entropy(
            output.flatten(0, -2), labels.flatten(), ignore_index=IGNORED
        )

    @property
    def has_loss(self) -> bool:
        """True where the file has a loss() of its own."""
        return self._function("loss", needed=False) is not None

    @property
    def has_other_metrics(self) -> bool:
        """Whether the file has a metrics() that takes something else than a model and a batch,
        which nothing asks for.
        """
        found = getattr(OwnFile(self.file).module, "metrics", None)
        return callable(found) and _takes(found) != _TAKEN_BY_METRICS

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, float]:
        """What the file's metrics() says of a batch, by name: means over its targets; nothing where
        there is none. Raises UserError.
        """
        own = getattr(OwnFile(self.file).module, "metrics", None)
        if not callable(own) or _takes(own) != _TAKEN_BY_METRICS:
            return {}
        told = self.call("metrics", own, model, batch)
        if not isinstance(told, Mapping):
            raise self.wrong(
                f"metrics() returned {a_value(told)}, and must return numbers by their names, such "
                "as {'accuracy': 0.9}, each the mean over the batch"
            )
        return {self._metric_name(name): self._metric(name, told[name]) for name in told}

    def _metric_name(self, name: Any) -> str:
        if not isinstance(name, str) or not _METRIC_NAME.fullmatch(name):
            raise self.wrong(
                f"metrics() names a number {name!r:.60}: a name is a word of at most 40 letters, "
                "digits, hyphens and underscores"
            )
        return name

    def _metric(self, name: str, value: Any) -> float:
        is_scalar = isinstance(value, Tensor) and value.numel() == 1
        number = value.item() if is_scalar else value
        if not isinstance(number, int | float) or not math.isfinite(number):
            raise self.wrong(
                f"metrics() gave {name} as {a_value(value)}, and must give a finite number, the "
                "mean over the batch"
            )
        if name == "accuracy" and not 0 <= number <= 1:
            raise self.wrong(
                f"metrics() gave an accuracy of {number:g}: it is the share of right answers, from "
                "0 to 1"
            )
        return float(number)

    def groups(self) -> Callable[[nn.Module], list[dict[str, Any]]] | None:
        """Returns the function groups() of the file, where it has one."""
        own = self._function("groups", needed=False)
        return (
            None
            if own is None
            else lambda model: self._grouped(model, self.call("groups", own, model))
        )

    def _grouped(self, model: nn.Module, given: Any) -> list[dict[str, Any]]:
        if not isinstance(given, Sequence):
            raise self.wrong(
                f"groups() returned {a_value(given)}, and must return a list of parameter groups"
            )
        # What is a generator, as `model.parameters()` is, can be read once alone.
        listed = [
            {**group, "params": list(group["params"])}
            if isinstance(group, Mapping) and "params" in group
            else group
            for group in given
        ]
        try:
            given_groups(model, listed, GroupsConfig(), peak_lr=1.0, weight_decay=0.0)
        except ValueError as error:
            raise self.wrong(f"groups(): {error}") from error
        return listed

    def call(self, name: str, function: Callable[..., Any], *given: Any) -> Any:
        """Call the user's code. Raises UserError with the place for whatever it raises."""
        try:
            return function(*given)
        except UserError:
            raise
        except Exception as error:
            called = name if name.startswith("the ") else f"{name}()"
            raise self.wrong(f"{called} raised {error_line(error)}") from error

    def wrong(self, what: str) -> UserError:
        """Returns the user's mistake in this file."""
        return UserError(f"{self.file}: {what}")

    def _scalar(self, found: Any, what: str) -> Tensor:
        if isinstance(found, Tensor) and found.numel() == 1:
            return found.reshape(())
        shape = (
            f"a tensor of shape {tuple(found.shape)}"
            if isinstance(found, Tensor)
            else a_value(found)
        )
        raise self.wrong(
            f"{what} {shape}, and must be one number, the mean over the batch's targets"
        )

    def _function(self, name: str, *, needed: bool) -> Any:
        found = getattr(OwnFile(self.file).module, name, None)
        if found is None and needed:
            raise self.wrong(f"there is no function {name}(); {CONTRACT}")
        if found is not None and not callable(found):
            raise self.wrong(f"{name} is {a_value(found)}, and must be a function; {CONTRACT}")
        return found


def _fit(output: Any, labels: Tensor) -> bool:
    return (
        isinstance(output, Tensor)
        and output.is_floating_point()
        and output.shape[:-1] == labels.shape
    )


def _takes(function: Callable[..., Any]) -> int:
    """Arguments that a function must be given."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.default is one.empty and one.kind in kinds for one in parameters)
