"""Checkpoints: weights and optimiser state by parameter name, with a SHA-256 manifest over every
file.

torch.load, safetensors and DCP all accept a flipped bit without a word, and
`optimizer.load_state_dict` accepts swapped parameters because its state is keyed by position. Here
names, shapes and every byte are checked.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..errors import UserError, option
from ..files import disk_errors, remove_folder, whole_folder
from ..limits.names import refuse_leading_out
from .together.parts import is_part, own_part, parted_as, whole

_MANIFEST = "MANIFEST.sha256"
_FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved step of a run: the folder `checkpoints/step-N`."""

    folder: Path

    @property
    def update(self) -> int:
        return int(self.folder.name.removeprefix("step-"))

    def verify(self, run: str | None = None) -> None:
        """Compare every file with the manifest, and the run that it is of with the identity `run`
        where that is given.

        Raises UserError naming the first file that differs; OSError where the disk fails.
        """
        for path in (self.folder, *(self.folder / name for name in (_MANIFEST, *_FILES))):
            refuse_leading_out(path)
        try:
            manifest = (self.folder / _MANIFEST).read_text(encoding="ascii")
        except (
            FileNotFoundError,
            IsADirectoryError,
            NotADirectoryError,
            UnicodeDecodeError,
        ) as error:
            raise UserError(
                f"{self.folder / _MANIFEST} is missing or damaged; this checkpoint cannot be "
                "trusted"
            ) from error
        lines = []
        for name in _FILES:
            if not (self.folder / name).is_file():
                raise UserError(
                    f"{self.folder / name} is missing; this checkpoint cannot be trusted"
                )
            lines.append(_line(self.folder / name))
            if lines[-1] not in manifest.splitlines():
                raise UserError(
                    f"{self.folder / name} is damaged: its SHA-256 is not the one in {_MANIFEST}"
                )
        if manifest != _manifest(lines):
            raise UserError(
                f"{self.folder / _MANIFEST} is damaged; this checkpoint cannot be trusted"
            )
        of_run = self.state().get("run") if run is not None else None
        if run is not None and not isinstance(of_run, str):
            raise UserError(
                f"{self.folder}: its state.json was written by another version: it names no run"
            )
        if of_run != run:
            raise UserError(
                f"{self.folder} is not a checkpoint of this run: it was saved with another "
                "configuration, seed or corpus; move it out of the folder"
            )

    def state(self) -> dict[str, Any]:
        """Returns the state that was saved beside the tensors. Raises UserError where it is not
        what this version saves.
        """
        file = self.folder / "state.json"
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{self.folder}: its state.json was written by another version: {error}"
            ) from error
        if not isinstance(state, dict):
            raise UserError(
                f"{self.folder}: its state.json was written by another version: it is no table"
            )
        return state

    def load_model(self, model: nn.Module) -> None:
        """Copy the weights into `model`. Raises UserError where names or shapes differ."""
        file = self.folder / _FILES[0]
        saved = read_tensors(file)
        wanted = _tensors(model)
        if saved.keys() != wanted.keys():
            differing = ", ".join(sorted(saved.keys() ^ wanted.keys())[:5])
            raise UserError(f"{file} is of another model: {differing} stand in only one of them")
        with torch.no_grad():
            for name, tensor in wanted.items():
                if tensor.shape != saved[name].shape:
                    raise UserError(
                        f"{file}: {name} is {tuple(saved[name].shape)}, the model's "
                        f"{tuple(tensor.shape)}"
                    )
                own_part(tensor).copy_(own_part(parted_as(saved[name], tensor)))

    def load_optimizer(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Restore the optimiser's state of every parameter by name. Raises UserError where it does
        not fit.
        """
        file = self.folder / _FILES[1]
        parameters = dict(model.named_parameters())
        optimizer.state.clear()
        for key, tensor in read_tensors(file).items():
            name, _, what = key.rpartition("/")
            if name not in parameters:
                raise UserError(f"{file} has state of {name}, which the model does not have")
            parameter = parameters[name]
            # torch's optimisers count steps in a scalar; everything else they keep has the
            # parameter's shape.
            if tensor.shape != (() if what == "step" else parameter.shape):
                raise UserError(
                    f"{file}: {key} is {tuple(tensor.shape)}, the parameter "
                    f"{tuple(parameter.shape)}"
                )
            state = tensor if what == "step" else parted_as(tensor, parameter)
            optimizer.state[parameter][what] = state.to(parameter.device)


_Tensors = dict[str, Tensor]


def contents(
    model: nn.Module, optimizer: torch.optim.Optimizer, *, keeps: bool = True
) -> tuple[_Tensors, _Tensors]:
    """Returns the model's tensors and the optimiser's, by name.

    Those of a sharded model are put together, one after the other, for which all of its processes
    call this. keeps: whether this process has a use for them.
    """
    moments = {
        f"{name}/{what}": tensor
        for name, parameter in model.named_parameters()
        for what, tensor in optimizer.state.get(parameter, {}).items()
        if isinstance(tensor, Tensor)
    }
    return _put_together(_tensors(model), keeps), _put_together(moments, keeps)


def _put_together(tensors: _Tensors, keeps: bool) -> _Tensors:
    found = {}
    for name, tensor in tensors.items():
        one = whole(tensor.detach())
        if keeps:
            found[name] = (one.cpu() if is_part(tensor) else one).contiguous()
    return found


def save(
    folder: Path, update: int, tensors: tuple[_Tensors, _Tensors], state: dict[str, Any]
) -> Checkpoint:
    """Write `folder/step-UPDATE`, whole or not at all, in place of one that stands there. Raises
    UserError on a full disk.

    tensors: as `contents` returns them.
    """
    target = folder / f"step-{update}"
    with disk_errors(f"saving {target}"), whole_folder(target, listed_files) as temporary:
        for name, saved in zip(_FILES, tensors, strict=False):
            save_file(saved, temporary / name)
        (temporary / _FILES[2]).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        (temporary / _MANIFEST).write_text(
            _manifest(_line(temporary / name) for name in _FILES), encoding="ascii"
        )
    return Checkpoint(target)


def existing(folder: Path) -> list[Checkpoint]:
    """Returns the checkpoints of a run, oldest first."""
    found = [
        Checkpoint(path)
        for path in folder.glob("step-*")
        if path.name.removeprefix("step-").isdecimal()
    ]
    return sorted(found, key=lambda checkpoint: checkpoint.update)


def metrics_bytes(folder: Path) -> int:
    """Returns how many bytes of metrics.jsonl the newest checkpoint counts on; 0 where there is
    none, or a damaged one.
    """
    try:
        state = existing(folder)[-1].state()
        # A run that goes on beyond its former end has dropped what it did there.
        return int((state["before_end"] or state)["metrics_bytes"])
    except (
        FileNotFoundError,
        IsADirectoryError,
        NotADirectoryError,
        UserError,
        LookupError,
        TypeError,
        ValueError,
    ):
        return 0


def listed_files(folder: Path) -> dict[str, str]:
    """Returns the files of a checkpoint, for its removal; nothing where the folder is none."""
    return dict.fromkeys((*_FILES, _MANIFEST), "") if (folder / _MANIFEST).is_file() else {}


def prune(folder: Path, *, keep_last: int, keep_updates: set[int]) -> None:
    """Remove all but the last `keep_last` checkpoints and those of `keep_updates`.

    Raises OSError, and UserError for one that holds a file of another's.
    """
    for checkpoint in existing(folder)[:-keep_last]:
        if checkpoint.update not in keep_updates:
            remove_folder(checkpoint.folder, listed_files)


def _from_step(update: int) -> str:
    return option("from_step", update)


def intact(
    folder: Path,
    *,
    update: int | None = None,
    run: str | None = None,
    asking: Callable[[int], str] = _from_step,
) -> Checkpoint | None:
    """Returns the newest checkpoint, or that of `update`, verified; None where there is none yet.

    run: the identity of the run that it must be of. Raises UserError naming the damaged file, and
    every intact checkpoint, newest first, with the words that ask for the newest of them.
    asking: how the caller's user asks for an update's checkpoint.
    """
    found = existing(folder)
    if update is not None and update not in [checkpoint.update for checkpoint in found]:
        updates = ", ".join(str(checkpoint.update) for checkpoint in found) or "none"
        raise UserError(f"{folder} has no checkpoint of update {update}; it has {updates}")
    if not found:
        return None
    wanted = next(c for c in reversed(found) if update is None or c.update == update)
    try:
        wanted.verify(run)
    except UserError as error:
        others = [checkpoint for checkpoint in reversed(found) if checkpoint != wanted]
        raise UserError(f"{error}. {_offer(others, run, asking)}") from error
    return wanted


def _offer(others: list[Checkpoint], run: str | None, asking: Callable[[int], str]) -> str:
    """others: newest first."""
    whole = [checkpoint.update for checkpoint in others if _is_intact(checkpoint, run)]
    if not whole:
        return (
            "No other checkpoint of the run is intact. Its config.toml and metrics.jsonl are as "
            "they were: train that configuration again in another folder, or put a copy of a "
            "checkpoint back"
        )
    names = ", ".join(f"step-{update}" for update in whole)
    return f"Intact, newest first: {names}. Add {asking(whole[0])} to take the newest of them"


def _is_intact(checkpoint: Checkpoint, run: str | None) -> bool:
    try:
        checkpoint.verify(run)
    except (UserError, OSError):
        return False
    return True


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns the parameters and persistent buffers by name; a tensor shared by two modules has one
    name.
    """
    return dict(model.named_parameters()) | persistent_buffers(model)


def persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Returns the buffers that a checkpoint keeps, by name."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Reads every tensor of a safetensors file. Raises UserError where it is damaged, or the disk
    does not give it.
    """
    with disk_errors(f"reading {file}"):
        try:
            return load_file(file)
        except SafetensorError as error:
            raise UserError(f"{file} is not a file of tensors: {error}") from error
        except RuntimeError as error:
            # Torch maps the file, and has the system's errors in its own words alone.
            number = re.search(r"unable to .*\((\d+)\)$", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(file)) from error


def _manifest(lines: Iterable[str]) -> str:
    return "".join(line + "\n" for line in lines)


def _line(file: Path) -> str:
    """Returns the line of a file in the format of sha256sum, so that `sha256sum -c` checks a
    checkpoint without us.
    """
    with file.open("rb") as stream:
        return f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {file.name}"
