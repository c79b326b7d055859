"""Sentence pairs with a label each, as lines of a tab-separated file under a line of column names."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import UserError
from ..sources.lines import read_lines

HELD_OUT_EVERY = 10
"""Without a file to validate on, every tenth pair is held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairColumns:
    """Names of the three columns that are read; a file may have others."""

    label: str = "label"
    first: str = "sentence1"
    second: str = "sentence2"


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """One line."""

    label: str
    first: str
    second: str
    line: int
    """Counted from 1, the line of column names included."""


def read_pairs(path: Path, columns: PairColumns) -> list[LabelledPair]:
    """All pairs of a file, without quoting: a quotation mark is a character as any other.

    Raises UserError, naming file and line, for what `read_lines` refuses, for columns that are missing or there twice,
    a line with more or fewer columns than the first one, and an empty label or sentence.
    """
    pairs = list(_pairs(path, columns))
    if not pairs:
        raise UserError(f"{path}: no pairs, only the line of column names; give one pair a line below it")
    return pairs


def _pairs(path: Path, columns: PairColumns) -> Iterator[LabelledPair]:
    lines = read_lines(path)
    _, header = next(lines)
    names = [name.strip() for name in header.split("\t")]
    places = [_place(path, names, name) for name in (columns.label, columns.first, columns.second)]
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) != len(names):
            raise UserError(
                f"{path}:{number}: {len(cells)} column(s), and the first line names {len(names)}; part columns by one "
                "tab each, and have no tabs inside a sentence"
            )
        for place in places:
            if not cells[place].strip():
                raise UserError(f"{path}:{number}: {names[place]} is empty; fill it in, or leave the line out")
        label, first, second = (cells[place].strip() for place in places)
        yield LabelledPair(label, first, second, number)


def _place(path: Path, names: list[str], wanted: str) -> int:
    count = names.count(wanted)
    if count == 1:
        return names.index(wanted)
    if count:
        raise UserError(f"{path}:1: {count} columns are named {wanted!r}; give each a name of its own")
    there = ", ".join(repr(name) for name in names)
    raise UserError(
        f"{path}:1: no column {wanted!r}; the first line names {there}: say which to read with --label-column, "
        "--first-column and --second-column"
    )


def hold_out(pairs: Sequence[LabelledPair]) -> tuple[list[LabelledPair], list[LabelledPair]]:
    """Training pairs, and every tenth, which is validated on."""
    held_out = pairs[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    return [pair for i, pair in enumerate(pairs) if (i + 1) % HELD_OUT_EVERY], list(held_out)


def label_names(path: Path, pairs: Sequence[LabelledPair]) -> tuple[str, ...]:
    """The distinct labels, sorted. Raises UserError for a single one: there is nothing to tell apart."""
    names = tuple(sorted({pair.label for pair in pairs}))
    if len(names) < 2:
        raise UserError(f"{path}: every pair to train on has the label {names[0]!r}; at least two labels are needed")
    return names


def refuse_unknown_labels(path: Path, pairs: Sequence[LabelledPair], names: Sequence[str]) -> None:
    """Raise UserError for a label that the training pairs do not have."""
    for pair in pairs:
        if pair.label not in names:
            raise UserError(
                f"{path}:{pair.line}: label {pair.label!r} is not among those of the training pairs, {_listed(names)}"
            )


def largest_share(pairs: Sequence[LabelledPair]) -> float:
    """Accuracy of the best constant answer."""
    return max(Counter(pair.label for pair in pairs).values()) / len(pairs)


def _listed(names: Sequence[str], most: int = 10) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
