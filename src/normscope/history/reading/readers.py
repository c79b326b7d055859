"""The readers of logs: TensorBoard's event files, the events of a run, the Trainer's state, and
lines of JSON.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...limits.reading import parse_json, read_json, read_text
from ...report.words import counted
from ..names import LoggedValues, history_of, names_in, numbers_in, plain, update_in
from ..record import History, TrainingRecipe

EVENT_FILES = "events.out.tfevents."
_ALL = 0
"""The setting of TensorBoard's reader that keeps every value, where it would keep a sample."""


def of_event_files(path: Path) -> History:
    """An event file, or a folder with some. Raises ValueError as `history_of` does, and where there
    is no scalar.

    TensorBoard leaves what was torn at the end out, and hides what a resumed training wrote beyond
    its checkpoint.
    """
    from tensorboard.backend.event_processing.event_accumulator import (
        SCALARS,
        TENSORS,
        EventAccumulator,
    )
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


def of_events(
    source: str, events: Iterable[Mapping[str, Any]], config: Mapping[str, Any]
) -> History:
    """Returns the history of a run. config: the table of its config.toml. Raises ValueError for a
    run without an update.
    """
    return history_of(
        source, [row for event in events for row in _event_rows(event)], _config_recipe(config)
    )


def _event_rows(event: Mapping[str, Any]) -> Iterable[LoggedValues]:
    update = update_in(event.get("update"))
    match event.get("event"):
        case "update" | "monitor":
            yield (
                update,
                numbers_in({name: value for name, value in event.items() if name != "update"}),
            )
        case "validation":
            yield update, numbers_in({"validation/nll_nats": event.get("nll_nats")})
        case "skipped" | "non-finite":
            yield update, {"loss_nats": math.nan}


def _config_recipe(config: Mapping[str, Any]) -> TrainingRecipe:
    """Makes a recipe from a resolved configuration."""
    tables = (config.get(name) for name in ("optimizer", "train"))
    optimizer, train = (table if isinstance(table, Mapping) else {} for table in tables)
    divides = optimizer.get("name") != "sgd" if "name" in optimizer else None
    epsilon = optimizer.get("epsilon") if divides else None
    known = numbers_in({"clip_norm": train.get("clip_norm", math.inf), "epsilon": epsilon})
    return TrainingRecipe(
        clip_norm=known.get("clip_norm"), divides=divides, epsilon=known.get("epsilon")
    )


TRAINER_STATE = "trainer_state.json"


def of_trainer_state(file: Path) -> History:
    """The Trainer's log history, or a list of objects, as pandas writes records.

    Raises ValueError for a file that holds neither, and as `history_of` does.
    """
    table = read_json(file, infinite=True)
    if isinstance(table, list) and table and all(isinstance(one, dict) for one in table):
        objects = [numbers_in(one) for one in table]
        return of_rows(file, objects, range(1, len(objects) + 1), "object")
    log = table.get("log_history") if isinstance(table, dict) else None
    if not isinstance(log, list) or not all(
        isinstance(entry, dict) and "step" in entry for entry in log
    ):
        raise ValueError(
            f"{file} has no `log_history` with a `step` in every entry: is it a {TRAINER_STATE}?"
        )
    rows = []
    for entry in log:
        # The last entry tells the mean loss of the whole training, which is no loss of its update.
        values = numbers_in(
            {
                name: value
                for name, value in entry.items()
                if name not in ("step", "epoch", "train_loss")
            }
        )
        # The Trainer writes a loss of exactly 0 in place of NaN (`logging_nan_inf_filter`).
        if values.get("loss") == 0 and not math.isfinite(values.get("grad_norm", 0.0)):
            values["loss"] = math.nan
        rows.append((update_in(entry["step"]), values))
    return history_of(
        str(file), rows, TrainingRecipe(classes=_classes(file.parent / "config.json"))
    )


def _classes(config: Path) -> int | None:
    """Returns the vocabulary of the model that lies beside it."""
    try:
        size = parse_json(read_text(config)).get("vocab_size")
    except (OSError, ValueError, AttributeError):
        return None
    return size if isinstance(size, int) and size > 1 else None


WANDB_LINES = "wandb-history.jsonl"
STEPS = (
    "train/global_step",
    "trainer/global_step",
    "global_step",
    "_step",
    "step",
    "train/step",
    "steps",
    "current_steps",
    "iteration",
    "train/iteration",
    "iter",
    "num_updates",
    "update",
    "updates",
    "n_updates",
    "optimizer_step",
    "it",
)
"""Names of the count of updates, the first that a log has: the framework's own before W&B's count
of calls, and that before words which anybody may use for something else."""


def of_lines(file: Path, recipe: TrainingRecipe | None = None) -> History:
    """Lines of JSON, each with a count of updates, as W&B and many loops of one's own write them.

    Raises ValueError naming the line that is no JSON object, where none has a count, with the names
    that are read, and as `history_of` does.
    """
    rows: list[dict[str, float]] = []
    numbers: list[int] = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                rows.append(numbers_in(parse_json(line, infinite=True)))
            except (ValueError, AttributeError, RecursionError) as error:
                raise ValueError(f"{file}:{number}: this line is no JSON object") from error
            numbers.append(number)
    return of_rows(file, rows, numbers, "line", recipe)


def of_rows(
    source: Path | str,
    rows: Sequence[Mapping[str, float]],
    numbers: Sequence[int],
    noun: str,
    recipe: TrainingRecipe | None = None,
    left_out: Sequence[str] = (),
) -> History:
    """Returns the history of rows that say themselves of which update they are. numbers: of each
    row, as its file counts them. noun: what a row is there, such as "line".

    Raises ValueError where no row has a count of updates, and as `history_of` does.
    """
    step = step_name(rows)
    if rows and step is None:
        raise ValueError(
            f"{source} has no count of updates in its {noun}s; names that are read: "
            f"{', '.join(STEPS)}; it has: {names_in(rows)}"
        )
    found: list[LoggedValues] = []
    without: list[int] = []
    for row, number in zip(rows, numbers, strict=True):
        if step is None or step not in row:
            without.append(number)
            continue
        values = {name: value for name, value in row.items() if name != step}
        try:
            found.append((update_in(row[step]), values))
        except ValueError as error:
            raise ValueError(f"{source}:{number}: {error}") from error
    if without:
        left_out = (
            *left_out,
            f"{counted(len(without), noun)} without a `{step}`, the first is {noun} {without[0]:,}",
        )
    return history_of(str(source), found, recipe, left_out)


def step_name(rows: Iterable[Mapping[str, float]]) -> str | None:
    """Returns the name by which rows say of which update they are; None where none does."""
    names = {name for row in rows for name in row}
    by_plain_name = {plain(name): name for name in sorted(names, reverse=True)}
    return next((by_plain_name[step] for step in STEPS if step in by_plain_name), None)
