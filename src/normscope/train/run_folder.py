"""A run is a folder: config.toml, environment.json, metrics.jsonl, checkpoints/. Everything shown is read from here."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UserError
from .checkpoint import Checkpoint, existing, newest_intact
from .files import clear_unfinished, sync, write_atomically

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

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process. Raises UserError where another process trains it."""
        with (self.path / ".lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(f"{self.path} is being trained by another process; wait for it or stop it") from error
            clear_unfinished(self.path)
            clear_unfinished(self.checkpoints)
            yield

    def write_environment(self, environment: dict[str, Any]) -> None:
        write_atomically(self.path / "environment.json", json.dumps(environment, indent=1, sort_keys=True) + "\n")

    def environment(self) -> dict[str, Any]:
        """What the run was made on; empty before the first update."""
        file = self.path / "environment.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}

    def checkpoint(self, which: str) -> Checkpoint:
        """`last`, `best` (lowest validation loss) or an update's number, verified. Raises UserError."""
        if not self.is_run:
            raise UserError(f"{self.path} is not a run folder: it has no config.toml")
        last = newest_intact(self.checkpoints)
        if last is None:
            raise UserError(f"{self.path} has no checkpoint yet; train it first")
        if which == "last":
            return last
        if which == "best":
            best = last.state()["best_update"]
            return newest_intact(self.checkpoints, from_step=best or last.update) or last
        if not which.isdigit():
            raise UserError(f"a checkpoint is `last`, `best` or an update's number, got {which!r}")
        return newest_intact(self.checkpoints, from_step=int(which)) or last

    def has_checkpoint(self) -> bool:
        return bool(existing(self.checkpoints))

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
        """Keep the first `keep_bytes` (what a checkpoint has seen) and append from there."""
        folder.metrics_file.touch()
        os.truncate(folder.metrics_file, keep_bytes)
        self._stream = folder.metrics_file.open("a", encoding="utf-8")

    def append(self, event: Event) -> None:
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()

    def synced_bytes(self) -> int:
        """Put all lines on disk and return the file's length."""
        sync(Path(self._stream.name))
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
