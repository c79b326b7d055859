"""TensorBoard: the scalars of a run's events, beside metrics.jsonl, which stays the record."""

from pathlib import Path
from types import TracebackType
from typing import Any

_NOT_SCALARS = {"event", "update", "updates", "gradient_norms", "reason"}


class TensorBoardLog:
    """A listener of the training loop that writes event files. The files are opened with the first event."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: Any = None

    def __enter__(self) -> "TensorBoardLog":
        return self

    def __call__(self, event: dict[str, Any]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # After a resume, what an earlier process wrote beyond the checkpoint is hidden.
            self._writer = SummaryWriter(self.folder, purge_step=event["update"])
        kind = {"update": "train", "initialisation": "train"}.get(event["event"], event["event"])
        for name, value in event.items():
            if name not in _NOT_SCALARS:
                self._writer.add_scalar(f"{kind}/{name}", value, event["update"])

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._writer is not None:
            self._writer.close()
