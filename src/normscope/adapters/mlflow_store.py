"""mlflow's store of files, read without its package: a folder a run, a file a quantity."""

from collections.abc import Iterator
from pathlib import Path

from ..history.meant import meant_by
from ..history.names import LoggedValues, history_of, update_in
from ..history.record import History, TrainingRecipe
from .stored_runs import StoredRun, the_run


def of_mlflow_store(folder: Path, wanted: str = "") -> History:
    """Returns the history of a run in mlflow's store of files: the run's folder, an experiment's,
    or the store's.

    Raises ValueError as `of_database` does, and naming the line that is no value.
    """
    run = folder
    if not is_mlflow_run(folder):
        found = {path.parent.name: path.parent for path in _metas(folder)}
        found = {name: path for name, path in found.items() if is_mlflow_run(path)}
        stored = [StoredRun(name, _run_name(path)) for name, path in sorted(found.items())]
        run = found[the_run(folder, stored, wanted).key]
    rows: list[LoggedValues] = []
    for file in _files(run / "metrics"):
        name = file.relative_to(run / "metrics").as_posix()
        with file.open(encoding="utf-8", errors="replace") as lines:
            rows += _file_rows(file, name, lines)
    settings = {one.name: one.read_text("utf-8", "replace") for one in _files(run / "params")}
    return history_of(str(run), rows, meant_by(settings, TrainingRecipe()))


def is_mlflow_run(folder: Path) -> bool:
    """Tells whether a folder is one run of mlflow's store of files."""
    return (folder / "metrics").is_dir() and (folder / "meta.yaml").is_file()


def is_mlflow_store(folder: Path) -> bool:
    """Tells whether runs of mlflow lie in a folder, or in those within it."""
    return any(is_mlflow_run(meta.parent) for meta in _metas(folder))


def _metas(folder: Path) -> Iterator[Path]:
    yield from folder.glob("*/meta.yaml")
    yield from folder.glob("*/*/meta.yaml")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _run_name(run: Path) -> str:
    """Returns the run's name, which its `meta.yaml` has in a line of its own."""
    for line in (run / "meta.yaml").read_text("utf-8", "replace").splitlines():
        if line.startswith("run_name: "):
            return line.removeprefix("run_name: ").strip("'\" ")
    return ""


def _file_rows(file: Path, name: str, lines: Iterator[str]) -> Iterator[LoggedValues]:
    """A time, a value and a step a line."""
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words:
            continue
        try:
            _, value, step, *_ = words
            yield update_in(int(step)), {name: float(value)}
        except ValueError as error:
            raise ValueError(
                f"{file}:{number}: this line is no time, value and step, as mlflow writes them"
            ) from error
