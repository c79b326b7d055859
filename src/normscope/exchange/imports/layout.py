"""What a layout of transformers has to say so that its checkpoints become runs of ours."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...errors import UserError
from ...tasks.text_task import TextTask
from ..forms import Names
from . import folder as saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
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
    task: ClassVar[TextTask[Any, Any]]
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
        found = {self.full_name(name): shape for name, shape in saved.shapes(folder).items()}
        saved.refuse_other_sizes(folder, found, self.wanted_sizes(config))

    def tensors(self, folder: Path) -> dict[str, Tensor]:
        """Tensors of the checkpoint under the names of the whole model, float32. Raises UserError."""
        return {self.full_name(name): tensor for name, tensor in saved.tensors(folder).items()}

    def rows(self, tensors: Mapping[str, Tensor]) -> int:
        """Rows of the table of tokens. Raises UserError without one."""
        if self.table not in tensors:
            raise UserError(f"the checkpoint lacks {self.table}: it is not of the layout {self.model_type!r}")
        return len(tensors[self.table])

    @torch.no_grad()
    def fill(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> Imported:
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
        return Imported(task=self.task.name, drawn=tuple(sorted(lacking)), unused=tuple(sorted(set(tensors) - known)))
