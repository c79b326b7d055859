"""TensorBoard: the scalars of a run's events, beside metrics.jsonl, which stays the record."""

import time
from pathlib import Path
from types import TracebackType
from typing import Any

from ..files import disk_errors

_NOT_SCALARS = {"event", "update", "updates", "gradient_norms", "reason"}


class TensorBoardLog:
    """A listener of the training loop that writes an event file, which is opened with the first
    event.

    torch's SummaryWriter would write in a thread of its own, which prints a traceback when the disk
    is full.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: Any = None

    def __enter__(self) -> "TensorBoardLog":
        return self

    def __call__(self, event: dict[str, Any]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        kind = "train" if event["event"] == "update" else event["event"]
        if kind == "initialisation":
            return  # gradient norms by parameter, which are no scalars of the run
        start = "" if kind == "monitor" else f"{kind}/"  # whose names say enough
        scalars = {
            f"{start}{name}": value for name, value in event.items() if name not in _NOT_SCALARS
        }
        with disk_errors(f"writing into {self.folder}"):
            if self._file is None:
                self._open(event["update"])
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
            self._write(step=event["update"], summary=Summary(value=values))

    def _open(self, first_update: int) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self.folder.mkdir(parents=True, exist_ok=True)
        # Files are read in the order of their names.
        name = f"events.out.tfevents.{time.time():.6f}"
        # Unbuffered, so that nothing is left to write, and to fail again, when the file is closed.
        self._file = (self.folder / name).open("wb", buffering=0)
        self._write(file_version="brain.Event:2")
        # Hides what an earlier process wrote beyond the checkpoint that this one went on from.
        self._write(step=first_update, session_log=SessionLog(status=SessionLog.START))

    def _write(self, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        RecordWriter(self._file).write(Event(wall_time=time.time(), **content).SerializeToString())

    def __exit__(
        self, *exception: type[BaseException] | BaseException | TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
