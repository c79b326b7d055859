"""Histories out of the files that trainings leave: one function a format, each ends in `record.history_of`."""

from collections.abc import Iterable, Mapping
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

from ..limits.reading import parse_json, read_json, read_text
from .record import History, LoggedValues, TrainingRecipe, history_of, numbers_in, update_in

EVENT_FILES = "events.out.tfevents."
_ALL = 0
"""Of TensorBoard's reader: keep every value, where it would keep a sample."""


def of_event_files(path: Path) -> History:
    """An event file, or a folder with some. Raises ValueError as `history_of` does, and where there is no scalar.

    TensorBoard leaves what was torn at the end out, and hides what a resumed training wrote beyond its checkpoint.
    """
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    reader = EventAccumulator(str(path), size_guidance={SCALARS: _ALL, TENSORS: _ALL})
    reader.Reload()
    rows: list[LoggedValues] = []
    for tag in reader.Tags()["scalars"]:
        rows += [(int(one.step), {tag: float(one.value)}) for one in reader.Scalars(tag)]
    for tag in reader.Tags()["tensors"]:
        # Newer writers keep scalars as tensors without a dimension.
        for one in reader.Tensors(tag):
            array = make_ndarray(one.tensor_proto)
            if array.ndim == 0 and array.dtype.kind in "fi":
                rows.append((int(one.step), {tag: float(array)}))
    if not rows:
        raise ValueError(f"{path} holds no scalar")
    return history_of(str(path), rows)


def of_events(source: str, events: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> History:
    """The history of a run. config: the table of its config.toml. Raises ValueError for a run without an update."""
    return history_of(source, [row for event in events for row in _event_rows(event)], _config_recipe(config))


def _event_rows(event: Mapping[str, Any]) -> Iterable[LoggedValues]:
    update = update_in(event.get("update"))
    match event.get("event"):
        case "update" | "monitor":
            yield update, numbers_in({name: value for name, value in event.items() if name != "update"})
        case "validation":
            yield update, numbers_in({"validation/nll_nats": event.get("nll_nats")})
        case "skipped" | "non-finite":
            yield update, {"loss_nats": nan}


def _config_recipe(config: Mapping[str, Any]) -> TrainingRecipe:
    """From what a resolved configuration holds."""
    optimizer, train = (_table(config.get(name)) for name in ("optimizer", "train"))
    divides = optimizer.get("name") != "sgd" if "name" in optimizer else None
    known = numbers_in({"clip": train.get("clip_norm", inf), "epsilon": optimizer.get("epsilon") if divides else None})
    return TrainingRecipe(clip_norm=known.get("clip"), divides=divides, epsilon=known.get("epsilon"))


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


TRAINER_STATE = "trainer_state.json"


def of_trainer_state(file: Path) -> History:
    """Raises ValueError for a file that holds no log history, and as `history_of` does."""
    table = read_json(file, infinite=True)
    log = table.get("log_history") if isinstance(table, dict) else None
    if not isinstance(log, list) or not all(isinstance(entry, dict) and "step" in entry for entry in log):
        raise ValueError(f"{file} has no `log_history` with a `step` in every entry: is it a {TRAINER_STATE}?")
    rows = [(update_in(entry["step"]), _unfiltered(numbers_in(_without_summary(entry)))) for entry in log]
    return history_of(str(file), rows, TrainingRecipe(classes=_classes(file.parent / "config.json")))


def _without_summary(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The last entry tells the mean loss of the whole training, which is no loss of its update."""
    return {name: value for name, value in entry.items() if name not in ("step", "epoch", "train_loss")}


def _unfiltered(values: dict[str, float]) -> dict[str, float]:
    """With NaN for the loss of exactly 0 that the Trainer writes in its place (`logging_nan_inf_filter`)."""
    filtered = values.get("loss") == 0 and not isfinite(values.get("grad_norm", 0.0))
    return values | {"loss": nan} if filtered else values


def _classes(config: Path) -> int | None:
    """The vocabulary of the model that lies beside it."""
    try:
        size = parse_json(read_text(config)).get("vocab_size")
    except (OSError, ValueError, AttributeError):
        return None
    return size if isinstance(size, int) and size > 1 else None


WANDB_LINES = "wandb-history.jsonl"
_STEPS = ("train/global_step", "trainer/global_step", "global_step", "_step")
"""The framework's own count of updates before W&B's count of calls."""


def of_wandb_lines(file: Path) -> History:
    """Raises ValueError naming the line that is no JSON object, and as `history_of` does."""
    rows: list[dict[str, float]] = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                rows.append(numbers_in(parse_json(line, infinite=True)))
            except (ValueError, AttributeError, RecursionError) as error:
                raise ValueError(f"{file}:{number}: this line is no JSON object") from error
    return history_of(str(file), of_steps(rows))


def of_steps(lines: list[dict[str, float]]) -> list[LoggedValues]:
    """Each line at the update that it says it is of; one that does not say so is left out."""
    name = next((step for step in _STEPS if any(step in line for line in lines)), None)
    return [(update_in(line[name]), line) for line in lines if name in line] if name else []
