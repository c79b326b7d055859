"""W&B's datastore, `run-ID.wandb`: a log of protocol buffers that only the package wandb knows how to read."""

import importlib
from pathlib import Path
from typing import Any

from ..doctor.history.readers.rows import history_of, numbers_in
from ..doctor.history.readers.wandb_lines import of_steps
from ..doctor.history.record import History
from ..errors import UserError
from ..limits.reading import parse_json


def of_datastore(file: Path) -> History:
    """The history in a datastore. Raises UserError without wandb, ValueError as `history_of` does."""
    try:
        records: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
        datastore: Any = importlib.import_module("wandb.sdk.internal.datastore")
    except ImportError as error:
        raise UserError(
            f"{file}: W&B's datastore can be read by the package wandb alone, which is not installed (pip install "
            "wandb). Or export the run's history as JSON lines (wandb-history.jsonl) and give that file"
        ) from error
    store = datastore.DataStore()
    lines: list[dict[str, float]] = []
    try:
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            record = records.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                lines.append(_line(record.history))
    except (AssertionError, OSError) as error:
        # A run that was killed ends in a torn block: what came before it is whole.
        if not lines:
            raise ValueError(f"{file} is no datastore of W&B: {error}") from error
    return history_of(str(file), of_steps(lines))


def _line(history: Any) -> dict[str, float]:
    named = {item.key or "/".join(item.nested_key): item.value_json for item in history.item}
    values = numbers_in({name: parse_json(text, infinite=True) for name, text in named.items()})
    return values if "_step" in values else values | {"_step": float(history.step.num)}
