"""The reading of logs of runs, of other libraries and ours, for the doctor, without what trains."""

import re
import sys
from dataclasses import replace
from pathlib import Path

from ..adapters.databases import of_database
from ..adapters.mlflow_store import is_mlflow_run, is_mlflow_store, of_mlflow_store
from ..adapters.stored_runs import RUN_SIGN
from ..adapters.wandb_datastore import of_datastore
from ..errors import UserError, user_errors
from ..history.beside import beside
from ..history.episodes import is_flat
from ..history.explain import Explanation, beside_good, explain
from ..history.little import hardly_falls
from ..history.reading import readers
from ..history.reading.pasted import of_printed, of_printed_lines
from ..history.reading.readers import TRAINER_STATE
from ..history.reading.tables import is_table, of_table
from ..history.record import History
from ..limits.home import from_home
from ..limits.reading import parse_json
from ..train import RunFolder
from .frequencies import Counting

KINDS = (
    f"a run folder of NormScope or its metrics.jsonl, a {TRAINER_STATE} of Hugging Face's Trainer "
    "or the folder around it, TensorBoard's event files or their folder, W&B's "
    f"{readers.WANDB_LINES} or run-ID.wandb, mlflow's folder or database, trackio's database, a "
    "table (.csv), lines of JSON with a step and a loss, or what a trainer printed"
)
STANDARD_INPUT = "-"


def explained_log(
    log: Path, *, warmup_updates: int | None = None, baseline: Path | None = None
) -> Explanation:
    """Returns a log, explained. Raises UserError.

    warmup_updates: as it was meant, in place of what the log's own settings say. baseline: the log
    of a good training of the same.
    """
    history = history_at(from_home(log))
    if warmup_updates is not None:
        recipe = replace(history.recipe, warmup_updates=warmup_updates)
        history = replace(history, recipe=recipe)
    found = explain(history)
    if baseline is None:
        return found
    good = history_at(from_home(baseline))
    with user_errors(ValueError):
        return beside_good(found, beside(history, good))


def explained_run(target: str) -> Explanation | None:
    """Returns the history of a target that is a run folder with updates; None for any other
    target.
    """
    path = from_home(target)
    if not path.is_dir() or not RunFolder(path).is_run:
        return None
    try:
        return explain(run_history(path))
    except UserError:
        # Without an update there is no history; what is damaged is told where the checkpoint is
        # opened.
        return None


def beside_model(
    explanation: Explanation, *, classes: int | None, counting: Counting | None
) -> Explanation:
    """Explained anew beside what is known of the model, where its loss is flat or hardly falls:
    only then its targets are counted.

    classes: of its output; None where that is not known. What the log itself says goes before.
    Raises UserError as the user's batches do.
    """
    history = explanation.history
    if not is_flat(history) and not hardly_falls(history):
        return explanation
    recipe = history.recipe
    if recipe.classes is None:
        recipe = replace(recipe, classes=classes)
    if recipe.unigram_nats is None and not recipe.unigram_counted and counting is not None:
        found = counting()
        if found is not None:
            recipe = replace(recipe, unigram_nats=found.nats, unigram_counted=found.over)
    again = explain(replace(history, recipe=recipe))
    return again if explanation.good is None else beside_good(again, explanation.good)


def history_at(path: Path) -> History:
    """Returns the history in a log. Raises UserError, one line, for what is no log or has no loss.

    path: a file or a folder, - for what is piped into the command; where several runs lie in it,
    the one that is meant stands behind a #.
    """
    try:
        if str(path) == STANDARD_INPUT:
            return of_printed_lines("standard input", sys.stdin)
        if path.is_dir():
            return _of_folder(path)
        if path.is_file():
            return _of_file(path)
        store, sign, run = str(path).rpartition(RUN_SIGN)
        if sign and Path(store).is_dir():
            return of_mlflow_store(Path(store), run)
        if sign and Path(store).is_file():
            return of_database(Path(store), run)
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise UserError(said if str(path) in said else f"{path}: {said}") from error
    raise UserError(f"no such file or folder: {path}")


def run_history(path: Path) -> History:
    """Returns the history of a run of ours. Raises UserError where a file of it is damaged."""
    folder = RunFolder(path)
    with user_errors(ValueError, said=lambda error: f"{folder.metrics_file}: {error}"):
        # A metrics.jsonl may be all that is left of a run.
        config = folder.config_table() if folder.is_run else {}
        return readers.of_events(str(path), folder.events(), config)


def _of_folder(path: Path) -> History:
    if RunFolder(path).is_run:
        return run_history(path)
    states = [
        *path.glob(TRAINER_STATE),
        *sorted(path.glob(f"checkpoint-*/{TRAINER_STATE}"), key=_number, reverse=True),
    ]
    if states:
        return readers.of_trainer_state(states[0])
    if any(path.glob(f"{readers.EVENT_FILES}*")):
        return readers.of_event_files(path)
    for inside in (path / "files" / readers.WANDB_LINES, path / readers.WANDB_LINES):
        if inside.is_file():
            return readers.of_lines(inside)
    if stores := sorted(path.glob("run-*.wandb")):
        return of_datastore(stores[0])
    if is_mlflow_run(path) or is_mlflow_store(path):
        return of_mlflow_store(path)
    tables = [path / "metrics.csv", *sorted(path.glob("version_*/metrics.csv"), key=_number)]
    if found := [table for table in tables if table.is_file()]:
        return of_table(found[-1])
    raise UserError(f"{path} holds no log that can be read: give {KINDS}")


def _of_file(path: Path) -> History:
    if path.name == "metrics.jsonl" and not _is_of_others(path):
        return run_history(path.parent)
    if path.name == TRAINER_STATE:
        return readers.of_trainer_state(path)
    if path.name.startswith(readers.EVENT_FILES):
        return readers.of_event_files(path)
    if path.suffix == ".wandb":
        return of_datastore(path)
    if path.name == "wandb-summary.json":
        raise UserError(f"{path} holds the last values of a run, not its history: give {KINDS}")
    if path.suffix in (".db", ".sqlite", ".sqlite3"):
        return of_database(path)
    if path.suffix == ".jsonl":
        return readers.of_lines(path)
    if path.suffix == ".json":
        return readers.of_trainer_state(path)
    if path.suffix in (".csv", ".tsv"):
        return of_table(path)
    return _of_text(path)


def _of_text(path: Path) -> History:
    """Reads a log whose ending does not tell its kind: by its first line a table or lines of JSON,
    else what a trainer printed.
    """
    with path.open("rb") as lines:
        first = lines.readline(_MOST_LETTERS)
    if b"\0" in first:
        raise UserError(f"{path} is no log that can be read: give {KINDS}")
    line = first.decode("utf-8", "replace")
    if _is_object(line):
        return readers.of_lines(path)
    return of_table(path) if is_table(line) else of_printed(path)


def _is_object(line: str) -> bool:
    try:
        return isinstance(parse_json(line, infinite=True), dict)
    except (ValueError, RecursionError):
        return False


_MOST_LETTERS = 1_000_000
"""The letters of a line that are examined; a file without an end of a line does not fill the
memory.
"""


def _is_of_others(metrics: Path) -> bool:
    """Tells whether a metrics.jsonl, which is a name that anybody may give, lies in no run of ours,
    and its first line is a JSON object that is no event of ours.
    """
    if RunFolder(metrics.parent).is_run:
        return False
    with metrics.open(encoding="utf-8", errors="replace") as lines:
        line = lines.readline(_MOST_LETTERS)
    try:
        first = parse_json(line, infinite=True)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "event" not in first


def _number(state: Path) -> int:
    """Returns the number at the end of the name of the folder around a file."""
    found = re.search(r"(\d+)$", state.parent.name)
    return int(found[1]) if found else -1
