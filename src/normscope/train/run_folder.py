"""A run is a folder: config.toml, environment.json, metrics.jsonl, checkpoints/. Everything shown
is read from here.
"""

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import UserError, option
from ..files import clear_unfinished, disk_errors, is_unfinished, make_folders, write_atomically
from ..limits.kinds import sealed_lines
from ..limits.names import refuse_leading_out
from ..limits.ours import MARK, SealedJson, refuse_broken_seal
from ..processes.surroundings import LOCK, Held, hold
from ..settings.files import CONFIG_FILE, is_run, refuse_no_run
from ..settings.tables import read_toml
from .checkpoint import Checkpoint, intact, listed_files, metrics_bytes
from .device import KEYS, OPTIONAL_KEYS
from .metrics import DamagedMetrics, Event as Event, events_in
from .record import RunRecord, record_of

MAY_CHANGE = (
    "duration",
    "checkpoint_every",
    "keep_checkpoints",
    "input_workers",
    "parallel",
    "silent_seconds",
)
"""Settings of [train] that a run may get another value of, since no update of it depends on them
but by rounding.
"""

_ENVIRONMENT = SealedJson(
    format_name="normscope-environment",
    version=1,
    keys=KEYS,
    optional=OPTIONAL_KEYS,
    again="put it back as it was. Or remove it: the command that trains the run then writes it for "
    "this machine, and still refuses another configuration and other data, by what the "
    "checkpoints hold",
)


class RunFolder:
    """Paths and files of one run. A folder that has `config.toml` is a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / CONFIG_FILE
        self.metrics_file = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.vocabularies = path / "vocabularies"
        self.environment_file = path / "environment.json"
        self._held: os.stat_result | None = None
        """The folder while this process holds it, wherever it is moved to."""

    @property
    def is_run(self) -> bool:
        return is_run(self.path)

    @property
    def is_free(self) -> bool:
        """True where a new run may begin: no folder yet, an empty one, or what a kill left of one
        that never began.
        """
        with disk_errors(f"reading {self.path}"):
            if not self.path.is_dir():
                return not self.path.exists()
            ours = {LOCK, "vocabularies", "checkpoints"}
            begun = self.checkpoints.is_dir() and any(self.checkpoints.iterdir())
            return not begun and all(
                p.name in ours or is_unfinished(p) for p in self.path.iterdir()
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process; its folder is made if need be. Raises UserError naming who
        has it, and for a link that would have the run written, or removed, elsewhere.
        """
        for name in ("checkpoints", "vocabularies", "metrics.jsonl", "tensorboard"):
            refuse_leading_out(self.path / name)
        with ExitStack() as held:
            try:
                with disk_errors(f"opening the run folder {self.path}"):
                    make_folders(self.checkpoints)
                    held.enter_context(hold(self.path))
                    clear_unfinished(self.path)
                    clear_unfinished(self.checkpoints, listed_files)
            except Held as error:
                raise UserError(
                    f"{self.path} is being trained by another process{error.holder}; wait for it "
                    "or stop it"
                ) from error
            self._held = self.path.stat()
            try:
                yield
            except (OSError, UserError):
                self.refuse_moved()
                raise
            finally:
                self._held = None

    def refuse_moved(self) -> None:
        """Raise UserError where the folder that this process holds is no longer at its path:
        nothing is saved there.
        """
        with suppress(FileNotFoundError, NotADirectoryError):  # any other says that the disk fails
            if self._held is None or os.path.samestat(self._held, self.path.stat()):
                return
        raise UserError(
            f"{self.path} was renamed or removed while its run was trained, and another folder of "
            "that name is not its own; put it back, and the same command goes on from its newest "
            "checkpoint"
        ) from None

    def write_config(self, toml: str) -> None:
        """Write the configuration, which makes the folder a run, with its own SHA-256 in the last
        line.
        """
        write_atomically(self.config_file, sealed_lines(toml))

    def config_table(self) -> dict[str, Any]:
        """Returns the run's configuration. Raises UserError where the file is not as it was
        written.
        """
        with disk_errors(f"reading {self.config_file}"):
            if self.config_file.is_file():
                refuse_broken_seal(
                    self.config_file,
                    again=(
                        "put it back as it was; to train with other settings, choose another folder"
                    ),
                )
            return read_toml(self.config_file)

    def identity(self, data_fingerprint: str) -> str:
        """Returns a SHA-256 of all that the run's numbers depend on by its user's choice: its
        configuration and its data.

        Each of its checkpoints keeps it. Settings that may change (MAY_CHANGE) are left out. Of the
        file as it stands, so that a later version, which may know more settings, finds the same.
        """
        table = self.config_table()
        train = {
            key: value for key, value in table.get("train", {}).items() if key not in MAY_CHANGE
        }
        text = json.dumps([table | {"train": train}, data_fingerprint], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def write_environment(self, environment: dict[str, Any]) -> None:
        """Write down what the run is made on, and what binds its other files to it: `identity` and
        vocabularies.
        """
        bound = {
            "run": self.identity(environment["data_fingerprint"]),
            "vocabularies_sha256": _sha256_of(self.vocabularies),
        }
        with disk_errors(f"writing into {self.path}"):
            write_atomically(self.environment_file, _ENVIRONMENT.text(environment | bound))

    def environment(self) -> dict[str, Any]:
        """Returns the environment that the run was made in; empty before the first update. Raises
        UserError for a damaged file.
        """
        with disk_errors(f"reading {self.environment_file}"):
            if not self.environment_file.is_file():
                return {}
            return _ENVIRONMENT.read(self.environment_file)

    def has_its_vocabularies(self) -> bool:
        """Tells whether the vocabularies are those that the run began with."""
        expected = self.environment().get("vocabularies_sha256")
        with disk_errors(f"reading {self.vocabularies}"):
            return expected is None or _sha256_of(self.vocabularies) == expected

    def refuse_other_vocabularies(self) -> None:
        """Raise UserError where the vocabularies are not those that the run began with."""
        if not self.has_its_vocabularies():
            raise UserError(
                f"{self.vocabularies} is damaged: it is not as it was when the run began. Run the "
                "command that trained the run again: it writes the vocabularies again from the "
                "corpus"
            )

    def checkpoint(self, which: str) -> Checkpoint:
        """`last`, `best` (lowest validation loss) or an update's number, verified. Raises
        UserError.
        """
        refuse_no_run(self.path)
        if which not in ("last", "best") and not which.isdecimal():
            raise UserError(f"a checkpoint is `last`, `best` or an update's number, got {which!r}")
        update = int(which) if which.isdecimal() else None
        run = self.environment().get("run")
        with disk_errors(f"reading {self.checkpoints}"):
            found = intact(self.checkpoints, update=update, run=run, asking=_which)
            if found is None:
                if self.is_finished:
                    raise UserError(
                        f"{self.path} is finished and has lost its checkpoints ({self.checkpoints} "
                        f"holds none): put them back, or move its {self.metrics_file.name} away, "
                        "and the same command trains it again"
                    )
                raise UserError(f"{self.path} has no checkpoint yet; train it first")
            best = found.state()["best_update"]
            if which != "best" or best in (0, found.update):  # 0: nothing has been validated yet
                return found
            return intact(self.checkpoints, update=best, run=run, asking=_which) or found

    @property
    def is_finished(self) -> bool:
        """True where the run has reached its end; the line that says so is written after the last
        checkpoint.
        """
        return self.last_event == "finished"

    @property
    def last_event(self) -> str:
        """The last event of the metrics; empty without one, and where a line is damaged."""
        try:
            last = self.ending()
        except DamagedMetrics:
            return ""  # resuming it tells whether a line that was to be kept is damaged
        return "" if last is None else str(last["event"])

    def ending(self) -> Event | None:
        """Returns the last of the metrics lines; None where there is none yet. Raises as `events`
        does.
        """
        with self._metrics() as events:
            last = deque(events, maxlen=1)
        return last[0] if last else None

    def events(self) -> list[Event]:
        """Returns all metrics lines; one still being written is left out.

        Raises UserError for a damaged file, and for one that lacks lines which the newest
        checkpoint counts on.
        """
        with self._metrics() as events:
            return list(events)

    def record(self) -> RunRecord:
        """Returns all metrics lines as columns, which take a tenth of the memory. Raises as
        `events` does.
        """
        with self._metrics() as events:
            return record_of(events)

    @contextmanager
    def _metrics(self) -> Iterator[Iterator[Event]]:
        with disk_errors(f"reading {self.metrics_file}"):
            yield events_in(self.metrics_file, after_bytes=metrics_bytes(self.checkpoints))


def _which(update: int) -> str:
    return option("checkpoint", str(update), python="which")


def _sha256_of(folder: Path) -> str:
    """Returns the SHA-256 over the names and contents of a folder's files, with those below it; of
    nothing where it is absent.
    """
    found = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MARK):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        found.update(f"{file.relative_to(folder).as_posix()} {content}\n".encode())
    return found.hexdigest()
