"""A run is a folder: config.toml, environment.json, metrics.jsonl, checkpoints/. Everything shown is read from here."""

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import REPLACED, UNFINISHED, clear_unfinished, disk_errors, make_folders, sync, write_atomically
from .checkpoint import Checkpoint, intact

Event = dict[str, Any]


class RunFolder:
    """Paths and files of one run. `config.toml` is written last, so a folder that has it is a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.metrics_file = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.vocabularies = path / "vocabularies"

    @property
    def is_run(self) -> bool:
        return self.config_file.is_file()

    @property
    def is_free(self) -> bool:
        """True where a new run may begin: no folder yet, an empty one, or what a kill left of one that never began."""
        if not self.path.is_dir():
            return not self.path.exists()
        ours = {".lock", "vocabularies", "checkpoints", "environment.json"}
        begun = self.checkpoints.is_dir() and any(self.checkpoints.iterdir())
        return not begun and all(
            p.name in ours or p.name.startswith((UNFINISHED, REPLACED)) for p in self.path.iterdir()
        )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process; its folder is made if need be. Raises UserError where another one has it."""
        with disk_errors(f"opening the run folder {self.path}"):
            make_folders(self.checkpoints)
            handle = (self.path / ".lock").open("w")
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(f"{self.path} is being trained by another process; wait for it or stop it") from error
            clear_unfinished(self.path)
            clear_unfinished(self.checkpoints)
            yield

    def write_environment(self, environment: dict[str, Any]) -> None:
        with disk_errors(f"writing into {self.path}"):
            write_atomically(self.path / "environment.json", json.dumps(environment, indent=1, sort_keys=True) + "\n")

    def environment(self) -> dict[str, Any]:
        """What the run was made on; empty before the first update."""
        file = self.path / "environment.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}

    def checkpoint(self, which: str) -> Checkpoint:
        """`last`, `best` (lowest validation loss) or an update's number, verified. Raises UserError."""
        if not self.is_run:
            raise UserError(f"{self.path} is not a run folder: it has no config.toml")
        if which not in ("last", "best") and not which.isdecimal():
            raise UserError(f"a checkpoint is `last`, `best` or an update's number, got {which!r}")
        update = int(which) if which.isdecimal() else None
        found = intact(self.checkpoints, update=update, option="--checkpoint")
        if found is None:
            raise UserError(f"{self.path} has no checkpoint yet; train it first")
        best = found.state()["best_update"]
        if which != "best" or best in (0, found.update):  # 0: nothing has been validated yet
            return found
        return intact(self.checkpoints, update=best, option="--checkpoint") or found

    @property
    def is_finished(self) -> bool:
        """True where the run has reached its end; the line that says so is written after the last checkpoint."""
        return [event["event"] for event in self.events()[-1:]] == ["finished"]

    def events(self) -> list[Event]:
        """All metrics lines; one still being written is left out. Raises UserError on a damaged file."""
        if not self.metrics_file.is_file():
            return []
        events = []
        for number, line in enumerate(self.metrics_file.read_text(encoding="utf-8").splitlines(keepends=True), 1):
            if not line.endswith("\n"):
                break
            try:
                events.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise UserError(f"{self.metrics_file}:{number}: not a line of JSON") from error
        return events


class MetricsLog:
    """Append-only metrics.jsonl: one JSON line an event, and no clock in it, so that runs compare by bytes."""

    def __init__(self, folder: RunFolder, keep_bytes: int) -> None:
        """Keep the first `keep_bytes` (what a checkpoint has seen) and append from there.

        Raises UserError where the file is shorter: it has lost lines that cannot be written again.
        """
        self.file = folder.metrics_file
        with disk_errors(f"opening {self.file}"):
            # Unbuffered, so that nothing is left to write, and to fail again, when the file is closed.
            self._stream = self.file.open("ab", buffering=0)
            # A checkpoint counts on the file's lines, and a power cut may take a name that its folder never kept.
            sync(self.file.parent)
        length = os.fstat(self._stream.fileno()).st_size
        if length < keep_bytes:
            self.close()
            raise UserError(
                f"{self.file} has {length} bytes, but the checkpoint was saved after {keep_bytes}: lines are missing. "
                "Put the file back as it was, go on from an older checkpoint (--from-step), or start in another folder"
            )
        self._stream.truncate(keep_bytes)

    def append(self, event: Event) -> None:
        line = (json.dumps(event, allow_nan=False) + "\n").encode()
        with disk_errors(f"writing {self.file}"):
            if self._stream.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def synced_bytes(self) -> int:
        """Put all lines on disk and return the file's length."""
        with disk_errors(f"writing {self.file}"):
            sync(self.file)
        return os.fstat(self._stream.fileno()).st_size

    def close(self) -> None:
        self._stream.close()
