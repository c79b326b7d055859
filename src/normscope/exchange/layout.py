"""What a folder that transformers saved holds, and what a layout has to say to become a run of ours."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..errors import UserError
from ..limits.reading import read_json, shown
from ..tasks.text_task import TextTask
from ..train.checkpoint import read_tensors
from .forms import Names

WEIGHTS = "model.safetensors"


def configuration(folder: Path) -> dict[str, Any]:
    """What `config.json` says. Raises UserError where it cannot be read or is no table."""
    path = folder / "config.json"
    try:
        found = read_json(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a folder that transformers saved") from error
    except ValueError as error:
        raise UserError(f"{path}: no JSON ({error})") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: no table of settings, but {shown(found)}")
    return found


def refuse_other_types(path: Path, theirs: Mapping[str, Any], types: Mapping[str, tuple[type, ...]]) -> None:
    """Raise UserError where a value that is read is of another type; True is no number."""
    for key, kinds in types.items():
        if key in theirs and type(theirs[key]) not in kinds:
            allowed = " or ".join(kind.__name__ for kind in kinds)
            raise UserError(f"{path}: {key} is {shown(theirs[key])}; it must be of type {allowed}")


def _weights_file(folder: Path) -> Path:
    path = folder / WEIGHTS
    if not path.is_file():
        raise UserError(
            f"{path} is missing; weights in another format or in several files become one with "
            "transformers.AutoModelForPreTraining.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER, "
            'max_shard_size="1000GB")'
        )
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """What became of a checkpoint: where it and our model differ, in our names and in theirs."""

    task: str
    """Of the run that was made."""
    drawn: tuple[str, ...]
    """Weights of ours that the checkpoint lacks, left as they were drawn."""
    unused: tuple[str, ...]
    """Weights of the checkpoint that our model has no place for."""


class ImportedLayout(ABC):
    """One kind of model in transformers, whose formula is a placement's."""

    model_type: str
    """As `config.json` calls it."""
    task: ClassVar[TextTask]
    table: ClassVar[str]
    """The name of its table of tokens."""
    has_spare_rows: ClassVar[bool] = False
    """Whether its table may have more rows than its tokeniser has tokens."""
    unneeded: ClassVar[tuple[str, ...]] = ()
    """Names of tensors that need no place: copies and buffers."""

    @abstractmethod
    def read_config(self, path: Path, theirs: Mapping[str, Any]) -> Any:
        """Our configuration of the model. Raises UserError, naming `path`, for what ours does not compute."""

    @abstractmethod
    def wanted_sizes(self, config: Any) -> dict[str, tuple[int | None, int]]:
        """Names and sizes of some matrices, from which a file of other sizes is told; None is any."""

    @abstractmethod
    def names(self, model: Any) -> Names:
        """The name of every tensor of ours there."""

    def full_name(self, name: str) -> str:
        """A name in the file as the whole model has it."""
        return name

    def is_needed(self, name: str) -> bool:
        """Whether our tensor of that name must be in a checkpoint."""
        return True

    def taken(self, name: str, tensor: Tensor) -> Tensor:
        """A tensor of theirs as ours of that name holds it."""
        return tensor

    @abstractmethod
    def check(self, model: Any, tensors: Mapping[str, Tensor]) -> None:
        """Raise UserError where two tensors differ of which ours has one."""

    def check_sizes(self, folder: Path, config: Any) -> None:
        """Raise UserError where `config.json` asks for other tables or blocks than the file holds."""
        path = _weights_file(folder)
        try:
            with safe_open(path, "pt") as file:
                names = file.keys()
                found = {self.full_name(name): tuple(file.get_slice(name).get_shape()) for name in names}
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from error
        except SafetensorError as error:
            raise UserError(f"{path} is not a file of tensors: {error}") from error
        for name, sizes in self.wanted_sizes(config).items():
            there = found.get(name)
            if there is None:
                raise UserError(f"{path} lacks {name}, which {folder / 'config.json'} asks for")
            if len(there) != 2 or any(size not in (None, rows) for size, rows in zip(sizes, there, strict=True)):
                asked = tuple("any" if size is None else size for size in sizes)
                raise UserError(f"{path}: {name} is {there}, and config.json asks for {asked}")

    def tensors(self, folder: Path) -> dict[str, Tensor]:
        """Tensors of the checkpoint under the names of the whole model, float32. Raises UserError."""
        return {self.full_name(name): tensor.float() for name, tensor in read_tensors(_weights_file(folder)).items()}

    def rows(self, tensors: Mapping[str, Tensor]) -> int:
        """Rows of the table of tokens. Raises UserError without one."""
        if self.table not in tensors:
            raise UserError(f"the checkpoint lacks {self.table}: it is not of the layout {self.model_type!r}")
        return len(tensors[self.table])

    @torch.no_grad()
    def fill(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> ImportedRun:
        """Copy a checkpoint's weights into `model`. Raises UserError where one is missing or has another shape."""
        parameters = dict(model.named_parameters())
        pairs = self.names(model)
        lacking = {ours for ours, theirs in pairs.items() if theirs not in tensors}
        needed = sorted(filter(self.is_needed, lacking))
        if needed:
            raise UserError(
                f"the checkpoint lacks {pairs[needed[0]]}" + (f" and {len(needed) - 1} more" * (len(needed) > 1))
            )
        self.check(model, tensors)
        for ours, theirs in pairs.items():
            if ours in lacking:
                continue
            there, here = tensors[theirs], parameters[ours]
            if there.shape != here.shape:
                raise UserError(f"{theirs} is {tuple(there.shape)} in the checkpoint, and {tuple(here.shape)} here")
            here.copy_(self.taken(ours, there))
        known = {*pairs.values(), *self.unneeded}
        return ImportedRun(
            task=self.task.name, drawn=tuple(sorted(lacking)), unused=tuple(sorted(set(tensors) - known))
        )
