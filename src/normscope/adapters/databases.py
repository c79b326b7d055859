"""Databases of experiments, mlflow's and trackio's, read without the packages that write them.

A file is opened for reading alone, and only tables are asked, by statements that stand here: a
view, a trigger or a function of a stranger's file does not run.
"""

import contextlib
import math
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..history.meant import meant_by
from ..history.names import LoggedValues, history_of, numbers_in, update_in
from ..history.record import History, TrainingRecipe
from ..limits.reading import parse_json
from .stored_runs import RUN_SIGN, StoredRun, the_run


def of_database(file: Path, wanted: str = "") -> History:
    """Returns the history of a run in mlflow's or trackio's database. wanted: the run's name, or as
    much of its number as tells it apart; "" for the only one.

    Raises ValueError as `history_of` does, for another database, and where it is not plain which
    run is meant.
    """
    try:
        with contextlib.closing(_opened(file)) as database:
            columns = {name: _columns(database, name) for name in _tables(database)}
            if {"key", "value", "step", "run_uuid"} <= columns.get("metrics", set()):
                return _of_mlflow(file, database, wanted)
            if {"run_name", "step", "metrics"} <= columns.get("metrics", set()):
                return _of_trackio(file, database, wanted, columns)
    except sqlite3.Error as error:
        raise ValueError(f"{file} is no database that can be read: {error}") from error
    raise ValueError(
        f"{file} is neither a database of mlflow's nor one of trackio's: it has no table `metrics` "
        "with a run, a step and values"
    )


def _opened(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro", uri=True)
    database.execute("PRAGMA query_only = ON")
    database.execute("PRAGMA trusted_schema = OFF")
    return database


def _tables(database: sqlite3.Connection) -> list[str]:
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [str(name) for (name,) in found]


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    found = database.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    return {str(name) for (name,) in found}


def _of_mlflow(file: Path, database: sqlite3.Connection, wanted: str) -> History:
    """A row for each value; NaN stands as 0 beside a column that says so."""
    found = database.execute(
        "SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time"
    )
    run = the_run(file, [StoredRun(str(key), str(name or "")) for key, name in found], wanted)
    parameters = database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (run.key,))
    settings = {str(name): value for name, value in parameters}
    values = database.execute(
        "SELECT step, key, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp",
        (run.key,),
    )
    rows: list[LoggedValues] = []
    for step, name, value, is_nan in values:
        rows += [(update_in(step), numbers_in({str(name): math.nan if is_nan else value}))]
    return history_of(_source(file, run), rows, meant_by(settings, TrainingRecipe()))


def _of_trackio(
    file: Path, database: sqlite3.Connection, wanted: str, columns: Mapping[str, set[str]]
) -> History:
    """A row for each call, with a JSON object; older versions know runs by their names alone."""
    by_number = "run_id" in columns["metrics"]
    select = (
        "SELECT run_id, run_name FROM metrics GROUP BY run_id, run_name ORDER BY MIN(id)"
        if by_number
        else "SELECT run_name, run_name FROM metrics GROUP BY run_name ORDER BY MIN(id)"
    )
    found = [StoredRun(str(key), str(name)) for key, name in database.execute(select)]
    run = the_run(file, found, wanted)
    settings: dict[str, Any] = {}
    if "configs" in columns:
        asked = "run_id" if "run_id" in columns["configs"] else "run_name"
        for (text,) in database.execute(
            f"SELECT config FROM configs WHERE {asked} = ?",  # one of two words that stand here
            (run.key if asked == "run_id" else run.name,),
        ):
            settings |= _object(text)
    key = "run_id" if by_number else "run_name"
    calls = database.execute(
        f"SELECT step, metrics FROM metrics WHERE {key} = ? ORDER BY id", (run.key,)
    )
    rows = [(update_in(step), numbers_in(_object(text))) for step, text in calls]
    return history_of(_source(file, run), rows, meant_by(settings, TrainingRecipe()))


def _object(text: str | bytes) -> dict[str, Any]:
    decoded = text.decode("utf-8") if isinstance(text, bytes) else str(text)
    value = parse_json(decoded, infinite=True)
    return value if isinstance(value, dict) else {}


def _source(store: Path, run: StoredRun) -> str:
    return f"{store}{RUN_SIGN}{run.name or run.key}"
