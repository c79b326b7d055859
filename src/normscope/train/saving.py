"""The progress of a run, written to its checkpoints and read from them."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .. import files
from ..errors import UserError
from ..provenance import source_sha256
from . import checkpoint
from .metrics import LogMark
from .run_folder import RunFolder
from .together.group import ALONE, Group

_UNFINISHED = "unfinished"
"""The key that the state of a checkpoint has where its update was not validated yet."""


@dataclass(slots=True)
class Progress:
    """The progress of a run; a checkpoint keeps it beside weights and optimiser state."""

    update: int = 0
    target_tokens: int = 0
    summed_lr: float = 0.0
    skipped_updates: int = 0
    best_nll_nats: float = math.inf
    best_update: int = 0

    def to_state(self) -> dict[str, Any]:
        # JSON has no infinity.
        best = self.best_nll_nats if math.isfinite(self.best_nll_nats) else None
        return {name: getattr(self, name) for name in self.__slots__} | {"best_nll_nats": best}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "Progress":
        """Reads the progress in a state. Raises KeyError for a state that lacks something."""
        values = {name: state[name] for name in cls.__slots__}
        return cls(
            **values
            | {
                "best_nll_nats": math.inf
                if values["best_nll_nats"] is None
                else values["best_nll_nats"]
            }
        )


class Saving:
    """The checkpoints of a run, and the progress that they keep beside weights and optimiser."""

    def __init__(
        self,
        folder: RunFolder,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        keep_last: int,
        say: Callable[[str], None],
        group: Group = ALONE,
    ) -> None:
        """say: takes notes for the user. group: of the processes, of which the first alone writes;
        all of them call every method.
        """
        self.group = group
        self.folder = folder.checkpoints
        self.model = model
        self.optimizer = optimizer
        self._refuse_moved = folder.refuse_moved
        self._metrics = folder.metrics_file
        self.keep_last, self.say = keep_last, say
        self.progress = Progress()
        self.identity = ""
        self._before_end: dict[str, Any] | None = None
        self._saved_update = 0
        self.unfinished = False
        """True where the run was stopped in the validation of its update, which is still to be
        done.
        """

    def restore(self, *, from_step: int | None, identity: str, updates: int) -> LogMark | None:
        """Go back to the newest checkpoint, or to that of an update; None where there is none to go
        back to.

        identity: of the run that it must be of. updates: of the whole run. Returns where its
        metrics stood. Raises UserError for a checkpoint that is damaged, or of another run.
        """
        self.identity = identity
        update = self.group.of_first(lambda: self._intact(from_step))
        if update is None:
            self.group.of_first(self._keep_metrics)
            return None
        mark = self.group.together(lambda: self._restore(self._of(update), updates))
        self.group.of_first(lambda: self._remove_later(update))
        return mark

    def _intact(self, from_step: int | None) -> int | None:
        found = checkpoint.intact(self.folder, update=from_step, run=self.identity)
        return None if found is None else found.update

    def _of(self, update: int) -> checkpoint.Checkpoint:
        return checkpoint.Checkpoint(self.folder / f"step-{update}")

    def _keep_metrics(self) -> None:
        """Keeps the log under another name where no checkpoint is left to go on from: a machine may
        not give these numbers again.
        """
        if not self._metrics.is_file() or not self._metrics.stat().st_size:
            return
        numbered = (
            self._metrics.with_name(f"metrics-{number}.jsonl") for number in itertools.count(1)
        )
        kept = next(file for file in numbered if not file.exists())
        with files.disk_errors(f"renaming {self._metrics}"):
            self._metrics.rename(kept)
            files.sync(kept.parent)
        self.say(
            f"note: {self.folder} holds no checkpoint of the updates in {self._metrics}; they are "
            f"done again, and the file is kept as {kept.name}"
        )

    def note_before_end(self, mark: LogMark) -> None:
        """Keep what a longer run goes on from, which does not validate where this one ends."""
        progress = self.progress.to_state()
        best = {name: progress[name] for name in ("best_nll_nats", "best_update")}
        self._before_end = best | mark.to_state()

    def save(self, mark: Callable[[], LogMark]) -> None:
        """Save, unless this update is saved. mark: says where the metrics on disk stand. Raises
        UserError.
        """
        if self._saved_update == self.progress.update:
            return
        tensors = checkpoint.contents(self.model, self.optimizer, keeps=self.group.first)
        self.group.of_first(lambda: self._write(mark, tensors))
        self._saved_update = self.progress.update

    def save_unfinished(self, mark: Callable[[], LogMark]) -> None:
        """Save before the validation of this update, which whoever goes on does first. mark, raises
        as `save`.
        """
        self.unfinished = True
        self.save(mark)

    def finish(self) -> None:
        """Note that the validation was done which a run that was stopped has owed: what is saved of
        its update is saved again.
        """
        if self.unfinished:
            self.unfinished, self._saved_update = False, 0

    def _write(self, mark: Callable[[], LogMark], tensors: Any) -> None:
        self._refuse_moved()
        bound: dict[str, Any] = {
            "run": self.identity,
            "source_sha256": source_sha256(),
            "before_end": self._before_end,
        }
        if self.unfinished:
            bound[_UNFINISHED] = True
        state = self.progress.to_state() | mark().to_state() | bound
        checkpoint.save(self.folder, self.progress.update, tensors, state)
        self.prune()

    def prune(self) -> None:
        """Remove the checkpoints that need not be kept; what the disk refuses to remove is said.

        The first process calls it alone.
        """
        keep = {self.progress.best_update} | (
            {self._before_end["best_update"]} if self._before_end else set()
        )
        try:
            checkpoint.prune(self.folder, keep_last=self.keep_last, keep_updates=keep)
            # What the disk refused to remove before.
            files.clear_unfinished(self.folder, checkpoint.listed_files)
        except (OSError, UserError) as error:
            self.say(
                f"note: an old checkpoint could not be removed ({error}); nothing is lost, and the "
                "run goes on"
            )

    def _restore(self, found: checkpoint.Checkpoint, updates: int) -> LogMark:
        found.load_model(self.model)
        found.load_optimizer(self.model, self.optimizer)
        state = found.state()
        try:
            if found.update >= updates:
                self._before_end = state["before_end"]
            elif state["before_end"] is not None:
                # What was done because the run ended there has not been done.
                state |= state["before_end"]
            self.progress, mark = Progress.of_state(state), LogMark.of_state(state)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{found.folder}: its state.json was written by another version: {error!r}"
            ) from error
        self._saved_update = found.update
        self.unfinished = state.get(_UNFINISHED, False) is True
        return mark

    def _remove_later(self, update: int) -> None:
        for later in checkpoint.existing(self.folder):
            if later.update > update:
                files.remove_folder(later.folder, checkpoint.listed_files)
        self.prune()  # a kill may have come between saving the newest and removing the oldest
