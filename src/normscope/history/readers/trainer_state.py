"""Hugging Face Trainer's `trainer_state.json`, which lies in every checkpoint and holds the whole log history."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...limits.reading import parse_json, read_json, read_text
from ..record import History, Recipe
from .rows import history_of, numbers_in

FILE = "trainer_state.json"


def of_trainer_state(file: Path) -> History:
    """Raises ValueError for a file that holds no log history, and as `history_of` does."""
    table = read_json(file, infinite=True)
    log = table.get("log_history") if isinstance(table, dict) else None
    if not isinstance(log, list) or not all(isinstance(entry, dict) and "step" in entry for entry in log):
        raise ValueError(f"{file} has no `log_history` with a `step` in every entry: is it a {FILE}?")
    rows = [(int(entry["step"]), numbers_in(_without_summary(entry))) for entry in log]
    return history_of(str(file), rows, Recipe(classes=_classes(file.parent / "config.json")))


def _without_summary(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The last entry tells the mean loss of the whole training, which is no loss of its update."""
    return {name: value for name, value in entry.items() if name not in ("step", "epoch", "train_loss")}


def _classes(config: Path) -> int | None:
    """The vocabulary of the model that lies beside it."""
    try:
        size = parse_json(read_text(config)).get("vocab_size")
    except (OSError, ValueError, AttributeError):
        return None
    return size if isinstance(size, int) and size > 1 else None
