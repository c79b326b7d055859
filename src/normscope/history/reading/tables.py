"""Logs as tables: CSV as pandas, Lightning's CSVLogger, and downloads of W&B and TensorBoard."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...limits.reading import shown
from ...report.words import counted, joined
from ..meant import meant_by, settings_beside
from ..names import LOSS_NAMES, plain
from ..record import History, TrainingRecipe
from .readers import STEPS, of_rows

_SEPARATORS = ",;\t"
_INDEX = "the unnamed first column"
"""The name for a column of rows that pandas writes for a frame without an index of its own."""
_RUN_SEPARATOR = " - "
"""The sign between a run's name and a quantity's in W&B's tables; such a table has two columns more
for each, with the ends of a range.
"""
_RANGE_ENDS = ("__MIN", "__MAX")


def of_table(file: Path) -> History:
    """A table with a line of names, and then a line for each update or for each value.

    A cell without a number is left out, and counted. Raises ValueError naming the line that has
    more cells than there are names, as `of_rows` does, and for a table of several runs.
    """
    with file.open(encoding="utf-8-sig", newline="") as stream:
        separator = _separator(stream.readline())
        stream.seek(0)
        lines = csv.reader(stream, delimiter=separator, strict=True)
        try:
            names = _names(file, next(lines, []))
            rows, numbers, texts = _rows(file, names, lines)
        except csv.Error as error:
            raise ValueError(f"{file}:{lines.line_num}: {error}") from error
    recipe = meant_by(settings_beside(file), TrainingRecipe())
    left_out = [*_text_words(texts), *_empty_words(rows, numbers)]
    return of_rows(file, rows, numbers, "line", recipe, left_out)


def is_table(first: str) -> bool:
    """Tells whether a file's first line names columns, and a count of updates is among them."""
    names = [plain(name) for name in first.split(_separator(first))]
    return len(names) > 1 and any(name in STEPS for name in names)


def _separator(first: str) -> str:
    """Returns the sign that stands most often in the line of names."""
    return max(_SEPARATORS, key=first.count)


def _names(file: Path, first: Sequence[str]) -> list[str]:
    """Returns the columns' names, a W&B run's own taken away, and "" for those that are not read.

    Raises ValueError for a table without names, with one twice, or of several runs.
    """
    names = [name.strip() for name in first]
    if not any(names) or all(_number(name) is not None for name in names):
        raise ValueError(f"{file}:1: the first line has to name the columns, such as step,loss,lr")
    runs = {name.rpartition(_RUN_SEPARATOR)[0] for name in names if _RUN_SEPARATOR in name}
    if len(runs) > 1:
        raise ValueError(
            f"{file}:1: columns of {counted(len(runs), 'run')}: download one run at a time; it has "
            f"{joined([shown(run) for run in sorted(runs)[:4]])}"
        )
    names = [name.rpartition(_RUN_SEPARATOR)[2] for name in names]
    names = ["" if name.endswith(_RANGE_ENDS) else name for name in names]
    if not names[0] and not any(plain(name) in STEPS for name in names):
        names[0] = STEPS[0]
    repeated = [name for at, name in enumerate(names) if name and name in names[:at]]
    if repeated:
        raise ValueError(f"{file}:1: the column {shown(repeated[0])} stands twice")
    if [plain(name) for name in names] == ["wall_time", "step", "value"]:
        # TensorBoard's download of one scalar says which one in the file's name alone.
        names[2] = "loss" if "loss" in file.stem.lower() else names[2]
    return names


def _rows(
    file: Path, names: Sequence[str], lines: Iterator[list[str]]
) -> tuple[list[Mapping[str, float]], list[int], dict[str, list[int]]]:
    """Returns each line's numbers by name, which line of the file it is, and by column the lines
    whose cell is no number.
    """
    rows: list[Mapping[str, float]] = []
    numbers: list[int] = []
    texts: dict[str, list[int]] = {}
    for number, cells in enumerate(lines, 2):
        if len(cells) > len(names):
            raise ValueError(
                f"{file}:{number}: {len(cells)} cells, and the first line names "
                f"{counted(len(names), 'column')}"
            )
        row: dict[str, float] = {}
        for name, cell in zip(names, cells, strict=False):
            if not name or not cell.strip():
                continue
            value = _number(cell)
            if value is None:
                texts.setdefault(name, []).append(number)
            else:
                row[name] = value
        if row:
            rows.append(row)
            numbers.append(number)
    return rows, numbers, texts


def _number(cell: str) -> float | None:
    """Returns a cell's number, "nan" and "inf" among them; None of any other text."""
    try:
        value = float(cell)
    except ValueError:
        return None
    # Python takes 1_000 for a number, which no writer of tables writes.
    return None if "_" in cell else value


def _empty_words(rows: Sequence[Mapping[str, float]], numbers: Sequence[int]) -> list[str]:
    """Notes that a loss is missing in a few lines: pandas writes NaN as nothing. Lightning writes a
    line for each quantity, so that most lines are without a loss.
    """
    names = {name for row in rows for name in row if plain(name) in LOSS_NAMES}
    if len(names) != 1:
        return []
    (loss,) = names
    empty = [number for row, number in zip(rows, numbers, strict=True) if loss not in row]
    if not empty or 2 * len(empty) > len(rows):
        return []
    return [
        f"{counted(len(empty), 'empty cell')} of `{loss}`, the first in line {empty[0]:,}: pandas "
        "writes a loss that is no number so"
    ]


def _text_words(texts: Mapping[str, Sequence[int]]) -> list[str]:
    """Returns the cells of a table that are text, by column."""
    return [
        f"{counted(len(lines), 'cell')} of `{name}` that {'is' if len(lines) == 1 else 'are'} no "
        f"number, the first in line {lines[0]:,}"
        for name, lines in texts.items()
    ]
