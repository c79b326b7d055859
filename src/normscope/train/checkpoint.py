"""Checkpoints: weights and optimiser state by parameter name, with a SHA-256 manifest over every file.

torch.load, safetensors and DCP all accept a flipped bit without a word, and `optimizer.load_state_dict` accepts swapped
parameters because its state is keyed by position. Here names, shapes and every byte are checked.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..errors import UserError
from ..files import disk_errors, remove_folder, whole_folder
from .nonfinite import persistent_buffers

_MANIFEST = "MANIFEST.sha256"
_FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved step of a run: the folder `checkpoints/step-N`."""

    folder: Path

    @property
    def update(self) -> int:
        return int(self.folder.name.removeprefix("step-"))

    def verify(self) -> None:
        """Compare every file with the manifest. Raises UserError naming the first file that differs."""
        try:
            manifest = (self.folder / _MANIFEST).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{self.folder / _MANIFEST} is missing or damaged; this checkpoint cannot be trusted"
            ) from error
        lines = []
        for name in _FILES:
            if not (self.folder / name).is_file():
                raise UserError(f"{self.folder / name} is missing; this checkpoint cannot be trusted")
            lines.append(_line(self.folder / name))
            if lines[-1] not in manifest.splitlines():
                raise UserError(f"{self.folder / name} is damaged: its SHA-256 is not the one in {_MANIFEST}")
        if manifest != _manifest(lines):
            raise UserError(f"{self.folder / _MANIFEST} is damaged; this checkpoint cannot be trusted")

    def state(self) -> dict[str, Any]:
        return json.loads((self.folder / "state.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]

    def load_model(self, model: nn.Module) -> None:
        """Copy the weights into `model`. Raises UserError where names or shapes differ."""
        file = self.folder / _FILES[0]
        saved = _load(file)
        wanted = _tensors(model)
        if saved.keys() != wanted.keys():
            differing = ", ".join(sorted(saved.keys() ^ wanted.keys())[:5])
            raise UserError(f"{file} is of another model: {differing} stand in only one of them")
        with torch.no_grad():
            for name, tensor in wanted.items():
                if tensor.shape != saved[name].shape:
                    raise UserError(f"{file}: {name} is {tuple(saved[name].shape)}, the model's {tuple(tensor.shape)}")
                tensor.copy_(saved[name])

    def load_optimizer(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Restore the optimiser's state of every parameter by name. Raises UserError where it does not fit."""
        file = self.folder / _FILES[1]
        parameters = dict(model.named_parameters())
        optimizer.state.clear()
        for key, tensor in _load(file).items():
            name, _, what = key.rpartition("/")
            if name not in parameters:
                raise UserError(f"{file} has state of {name}, which the model does not have")
            parameter = parameters[name]
            # torch's optimisers count steps in a scalar; everything else they keep has the parameter's shape.
            if tensor.shape != (() if what == "step" else parameter.shape):
                raise UserError(f"{file}: {key} is {tuple(tensor.shape)}, the parameter {tuple(parameter.shape)}")
            optimizer.state[parameter][what] = tensor.to(parameter.device)


def save(
    folder: Path, update: int, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]
) -> Checkpoint:
    """Write `folder/step-UPDATE`, whole or not at all. Raises UserError on a full disk."""
    target = folder / f"step-{update}"
    moments = {
        f"{name}/{what}": tensor
        for name, parameter in model.named_parameters()
        for what, tensor in optimizer.state.get(parameter, {}).items()
        if isinstance(tensor, Tensor)
    }
    with disk_errors(f"saving {target}"), whole_folder(target) as temporary:
        save_file({n: t.detach().contiguous() for n, t in _tensors(model).items()}, temporary / _FILES[0])
        save_file({n: t.detach().contiguous() for n, t in moments.items()}, temporary / _FILES[1])
        (temporary / _FILES[2]).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        (temporary / _MANIFEST).write_text(_manifest(_line(temporary / name) for name in _FILES), encoding="ascii")
    return Checkpoint(target)


def existing(folder: Path) -> list[Checkpoint]:
    """Checkpoints of a run, oldest first."""
    found = [Checkpoint(path) for path in folder.glob("step-*") if path.name.removeprefix("step-").isdecimal()]
    return sorted(found, key=lambda checkpoint: checkpoint.update)


def prune(folder: Path, *, keep_last: int, keep_updates: set[int]) -> None:
    """Remove all but the last `keep_last` checkpoints and those of `keep_updates`."""
    for checkpoint in existing(folder)[:-keep_last]:
        if checkpoint.update not in keep_updates:
            remove_folder(checkpoint.folder)


def intact(folder: Path, *, update: int | None = None, option: str = "--from-step") -> Checkpoint | None:
    """The newest checkpoint, or that of `update`, verified; None where there is none yet.

    Raises UserError naming the damaged file, and the newest intact checkpoint before it with the `option` that asks
    for it.
    """
    found = existing(folder)
    if update is not None and update not in [checkpoint.update for checkpoint in found]:
        updates = ", ".join(str(checkpoint.update) for checkpoint in found) or "none"
        raise UserError(f"{folder} has no checkpoint of update {update}; it has {updates}")
    candidates = [checkpoint for checkpoint in found if update is None or checkpoint.update <= update]
    if not candidates:
        return None
    try:
        candidates[-1].verify()
    except UserError as error:
        raise UserError(f"{error}. {_offer(candidates[:-1], option)}") from error
    return candidates[-1]


def _offer(older: list[Checkpoint], option: str) -> str:
    for checkpoint in reversed(older):
        try:
            checkpoint.verify()
        except UserError:
            continue
        update = checkpoint.update
        return f"The previous checkpoint, step-{update}, is intact: add {option} {update} to take it"
    return "No older checkpoint is intact: remove the run folder and start again"


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; a tensor shared by two modules has one name."""
    return dict(model.named_parameters()) | persistent_buffers(model)


def _load(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except SafetensorError as error:
        raise UserError(f"{file} is not a file of tensors: {error}") from error


def _manifest(lines: Iterable[str]) -> str:
    return "".join(line + "\n" for line in lines)


def _line(file: Path) -> str:
    """In the format of sha256sum, so that `sha256sum -c` checks a checkpoint without us."""
    with file.open("rb") as stream:
        return f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {file.name}"
