"""What the logs of runs, of other libraries and ours, tell the doctor: read without what trains."""

import re
from pathlib import Path

from ..adapters.wandb_datastore import of_datastore
from ..errors import UserError, user_errors
from ..history import record
from ..history.explain import Explanation, explain
from ..history.record import TRAINER_STATE, History
from ..train import RunFolder

KINDS = (
    f"a run folder of NormScope or its metrics.jsonl, a {TRAINER_STATE} of Hugging Face's Trainer "
    "or the folder around it, TensorBoard's event files or their folder, or W&B's "
    f"{record.WANDB_LINES} or run-ID.wandb"
)


def explained_log(log: Path) -> Explanation:
    """A log, explained. Raises UserError."""
    return explain(history_at(log.expanduser()))


def explained_run(target: str) -> Explanation | None:
    """The history of a target that is a run folder with updates; None for any other target."""
    path = Path(target).expanduser()
    if not path.is_dir() or not RunFolder(path).is_run:
        return None
    try:
        return explain(run_history(path))
    except UserError:
        # Without an update there is no history; what is damaged is told where the checkpoint is
        # opened.
        return None


def history_at(path: Path) -> History:
    """The history in a log. Raises UserError, one line, for what is no log or has no loss."""
    try:
        if path.is_dir():
            return _of_folder(path)
        if path.is_file():
            return _of_file(path)
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise UserError(said if str(path) in said else f"{path}: {said}") from error
    raise UserError(f"no such file or folder: {path}")


def run_history(path: Path) -> History:
    """The history of a run of ours. Raises UserError where a file of it is damaged."""
    folder = RunFolder(path)
    with user_errors(ValueError, said=lambda error: f"{folder.metrics_file}: {error}"):
        # A metrics.jsonl may be all that is left of a run.
        config = folder.config_table() if folder.is_run else {}
        return record.of_events(str(path), folder.events(), config)


def _of_folder(path: Path) -> History:
    if RunFolder(path).is_run:
        return run_history(path)
    states = [
        *path.glob(TRAINER_STATE),
        *sorted(path.glob(f"checkpoint-*/{TRAINER_STATE}"), key=_number, reverse=True),
    ]
    if states:
        return record.of_trainer_state(states[0])
    if any(path.glob(f"{record.EVENT_FILES}*")):
        return record.of_event_files(path)
    for inside in (path / "files" / record.WANDB_LINES, path / record.WANDB_LINES):
        if inside.is_file():
            return record.of_wandb_lines(inside)
    if stores := sorted(path.glob("run-*.wandb")):
        return of_datastore(stores[0])
    raise UserError(f"{path} holds no log that can be read: give {KINDS}")


def _of_file(path: Path) -> History:
    if path.name == "metrics.jsonl":
        return run_history(path.parent)
    if path.name == TRAINER_STATE:
        return record.of_trainer_state(path)
    if path.name.startswith(record.EVENT_FILES):
        return record.of_event_files(path)
    if path.suffix == ".wandb":
        return of_datastore(path)
    if path.name in ("wandb-summary.json", "output.log"):
        raise UserError(
            f"{path} holds the last values of a run or its output, not its history: give {KINDS}"
        )
    if path.suffix == ".jsonl":
        return record.of_wandb_lines(path)
    if path.suffix == ".json":
        return record.of_trainer_state(path)
    raise UserError(f"{path} is no log that can be read: give {KINDS}")


def _number(state: Path) -> int:
    found = re.search(r"(\d+)$", state.parent.name)
    return int(found[1]) if found else -1
