"""Labelled sentences, and pairs of sentences: tables read with their places, and token ids of them.

TSV without quoting, as GLUE's files are; CSV with it; Parquet.
"""

# B = sequences of a batch, P = rows of a split, T = tokens of a sequence

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, option
from .documents.tokeniser import CLS, PAD, SEP, TextTokeniser
from .lines import read_lines
from .sources import parquet_rows

KNOWN_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "MRPC": ("Quality", "#1 String", "#2 String"),
    "RTE": ("label", "sentence1", "sentence2"),
    "SST-2": ("label", "sentence"),
}
"""The columns of each data set of GLUE: the label's first, then those of one sentence or of two."""
_PACKED = (".gz", ".xz", ".zst")


class LabelledRow(NamedTuple):
    """One sentence, or a pair, with its label."""

    label: str
    sentences: tuple[str, ...]
    """One, or two."""
    place: str
    """File and line, or file and row, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledTable:
    """The rows of one file."""

    file: Path
    columns: tuple[str, ...]
    """The columns that were read, the label's first."""
    rows: Sequence[LabelledRow]

    @property
    def labels(self) -> tuple[str, ...]:
        """The distinct labels, sorted."""
        return tuple(sorted({row.label for row in self.rows}))

    @property
    def majority(self) -> str:
        """The most frequent label; of several the first in order."""
        counts = Counter(row.label for row in self.rows)
        return min(counts, key=lambda label: (-counts[label], label))


def read_labelled(file: Path, columns: Sequence[str] | None = None) -> LabelledTable:
    """Reads a table: `.tsv` (also `.txt`), `.csv` or `.parquet`; text may be packed (`.gz` …).

    columns: names of the label's column and of one column of sentences or two; None for those of
    MRPC, RTE or SST-2, whichever the file has. Raises UserError, naming file and line, for columns
    that are missing or there twice, a row with more or fewer cells than there are columns, an
    empty label or sentence, a file without rows, and all that the readers of files refuse.
    """
    names, cells = _opened(file)
    wanted = tuple(columns) if columns is not None else _known(file, names)
    if not 2 <= len(wanted) <= 3:
        raise UserError(
            f"{option('columns')} names the label's column and one or two of sentences, such as "
            f"label,question,answer; got {','.join(wanted)}"
        )
    at = [_place_of(file, names, name) for name in wanted]
    rows = []
    for place, row in cells:
        if len(row) != len(names):
            raise UserError(
                f"{place}: {len(row)} column(s), and the first line names {len(names)}; give every "
                "line as many, and part them by one tab in a .tsv and by commas in a .csv"
            )
        label, *sentences = (row[number].strip() for number in at)
        for name, text in zip(wanted, (label, *sentences), strict=True):
            if not text:
                raise UserError(f"{place}: {name} is empty; fill it in, or leave the line out")
        rows.append(LabelledRow(label, tuple(sentences), place))
    if not rows:
        raise UserError(f"{file}: no rows below the names of the columns; give a sentence a line")
    return LabelledTable(file=file, columns=wanted, rows=rows)


_Cells = Iterator[tuple[str, Sequence[str]]]
"""Place and cells of each row."""


def _opened(file: Path) -> tuple[list[str], _Cells]:
    """Names of the columns, and the rows."""
    kind = (file.with_suffix("") if file.suffix in _PACKED else file).suffix.lower()
    if kind == ".parquet":
        names, rows = parquet_rows(file)
        return names, ((f"{file}, row {number}", row) for number, row in rows)
    if kind not in (".tsv", ".txt", ".csv"):
        raise UserError(
            f"{file}: labelled sentences are read from .tsv, .csv and .parquet (text also as .gz, "
            ".xz or .zst); give one of these, with a name that ends so"
        )
    lines = _csv_rows(file) if kind == ".csv" else _tsv_rows(file)
    first = next(lines, None)
    if first is None:
        raise UserError(f"{file}: no names of columns in its first line")
    return [name.strip() for name in first[1]], lines


def _tsv_rows(file: Path) -> _Cells:
    # A quotation mark is a character as any other: sentences of MRPC have single ones.
    for number, line in read_lines(file):
        yield f"{file}:{number}", line.split("\t")


def _csv_rows(file: Path) -> _Cells:
    reader = csv.reader((f"{line}\n" for _, line in read_lines(file)), strict=True)
    begun = 1
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise UserError(
                f"{file}:{reader.line_num}: no CSV ({error}); quote a sentence that holds a comma, "
                'a quotation mark or a line break, and write " in it as ""'
            ) from error
        if row is None:
            return
        if row:
            yield f"{file}:{begun}", row
        begun = reader.line_num + 1


def _known(file: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of the first data set of GLUE whose columns are all there."""
    for columns in KNOWN_COLUMNS.values():
        if set(columns) <= set(names):
            return columns
    known = "; ".join(f"{task}: {', '.join(columns)}" for task, columns in KNOWN_COLUMNS.items())
    raise UserError(
        f"{file}: its columns are {_listed(names)}, and not those of a data set that is known "
        f"({known}); say which to read with {option('columns')}: LABEL,SENTENCE or "
        "LABEL,FIRST,SECOND"
    )


def _place_of(file: Path, names: Sequence[str], wanted: str) -> int:
    count = names.count(wanted)
    if count == 1:
        return names.index(wanted)
    if count:
        raise UserError(
            f"{file}: {count} columns are named {wanted!r}; give each a name of its own"
        )
    raise UserError(
        f"{file}: no column {wanted!r}; its columns are {_listed(names)}: say which to read with "
        f"{option('columns')}"
    )


def _listed(names: Sequence[str], most: int = 10) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledSplit:
    """Token ids with labels; every list has one entry a row."""

    tokens_T: Sequence[NDArray[np.int64]]
    """[CLS] first [SEP], and second [SEP] of a pair."""
    segments_T: Sequence[NDArray[np.int64]]
    """0 up to the first [SEP], then 1."""
    labels_P: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels_P)

    def __getitem__(self, row: int) -> dict[str, NDArray[np.int64] | int]:
        """Returns one row by the names that models of transformers have for its parts."""
        return {
            "input_ids": self.tokens_T[row],
            "token_type_ids": self.segments_T[row],
            "labels": int(self.labels_P[row]),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledData:
    """The data on which a classifier of sentences is trained and judged."""

    labels: tuple[str, ...]
    """The labels by their numbers."""
    majority: int
    """The most frequent label among the rows to train on."""
    train: LabelledSplit
    dev: LabelledSplit
    pad: int
    """The id that fills rows of a batch up."""
    cut: int
    """Rows of both splits that were longer than a sequence may be."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all that training and judging read: labels and token ids."""
        digest = hashlib.sha256(json.dumps(self.labels).encode())
        for name, split in (("train", self.train), ("dev", self.dev)):
            digest.update(f"{name} {len(split)}".encode())
            for array in (split.labels_P, *split.tokens_T, *split.segments_T):
                digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return digest.hexdigest()

    def batch(self, rows: Sequence[Mapping[str, NDArray[np.int64] | int]]) -> dict[str, Tensor]:
        """Returns rows of a split as one batch, filled up on the right to the longest; int64
        throughout.
        """
        tokens = [torch.as_tensor(row["input_ids"]) for row in rows]
        segments = [torch.as_tensor(row["token_type_ids"]) for row in rows]
        padded = torch.nn.utils.rnn.pad_sequence
        lengths_B = torch.tensor([len(ids_T) for ids_T in tokens])
        input_ids_BT = padded(tokens, batch_first=True, padding_value=self.pad)
        keep_BT = torch.arange(input_ids_BT.shape[1]) < lengths_B[:, None]
        return {
            "input_ids": input_ids_BT,
            "attention_mask": keep_BT.long(),
            "token_type_ids": padded(segments, batch_first=True),
            "labels": torch.tensor([row["labels"] for row in rows]),
        }


def encoded(
    train: LabelledTable, dev: LabelledTable, tokeniser: TextTokeniser, *, sequence_length: int
) -> LabelledData:
    """Returns the token ids of both tables in the form of BERT's sequences.

    sequence_length: tokens of the longest sequence, special ones included; a longer pair loses
    tokens one by one from the end of whichever sentence is longer. Raises UserError for one label
    alone among the rows to train on, a label that only `dev` has, pairs in one table and single
    sentences in the other, and a tokeniser without BERT's special tokens.
    """
    _refuse_unlike(train, dev)
    if lacking := [special for special in (CLS, SEP, PAD) if special in tokeniser.lacks]:
        raise UserError(f"the tokeniser has no {' and no '.join(lacking)}, which sentences take")
    labels = train.labels
    cut = 0
    splits = []
    for table in (train, dev):
        split, shortened = _split(table, labels, tokeniser, sequence_length)
        splits.append(split)
        cut += shortened
    return LabelledData(
        labels=labels,
        majority=labels.index(train.majority),
        train=splits[0],
        dev=splits[1],
        pad=tokeniser.ids[PAD],
        cut=cut,
    )


def _refuse_unlike(train: LabelledTable, dev: LabelledTable) -> None:
    if len(train.columns) != len(dev.columns):
        raise UserError(
            f"{train.file} has {_sentences(train)} and {dev.file} has {_sentences(dev)} in a row; "
            f"give both the same, or name the columns with {option('columns')}"
        )
    if len(train.labels) < 2:
        raise UserError(
            f"{train.file}: every row to train on has the label {train.labels[0]!r}; at least two "
            "labels are needed"
        )
    for row in dev.rows:
        if row.label not in train.labels:
            raise UserError(
                f"{row.place}: the label {row.label!r} is not among those to train on, "
                f"{_listed(train.labels)}; correct it, or give rows with it to train on"
            )


def _sentences(table: LabelledTable) -> str:
    return "one sentence" if len(table.columns) == 2 else "two sentences"


def cut_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """Returns how many tokens stay of one sentence or of two, so that they fit into `room`.

    Tokens are taken one by one from whichever is longer, the second of equal ones, as
    google-research/bert cuts pairs in its run_classifier.py.

    >>> cut_lengths([9, 4], 10)
    [6, 4]
    """
    kept = list(lengths)
    while sum(kept) > room:
        longer = max(reversed(range(len(kept))), key=lambda number: kept[number])
        kept[longer] -= 1
    return kept


def _split(
    table: LabelledTable, labels: Sequence[str], tokeniser: TextTokeniser, sequence_length: int
) -> tuple[LabelledSplit, int]:
    """Returns the split, and how many of its rows were cut."""
    sides = []
    for number in range(len(table.columns) - 1):
        sides.append(tokeniser.encode_many([row.sentences[number] for row in table.rows]))
    room = sequence_length - 1 - len(sides)
    tokens = []
    segments = []
    cut = 0
    for parts in zip(*sides, strict=True):
        lengths = cut_lengths([len(ids) for ids in parts], room)
        cut += sum(lengths) < sum(map(len, parts))
        ids_T, segments_T = [tokeniser.ids[CLS]], [0]
        for number, (ids, length) in enumerate(zip(parts, lengths, strict=True)):
            ids_T += [*ids[:length], tokeniser.ids[SEP]]
            segments_T += [number] * (length + 1)
        tokens.append(np.array(ids_T, dtype=np.int64))
        segments.append(np.array(segments_T, dtype=np.int64))
    numbers = np.array([labels.index(row.label) for row in table.rows], dtype=np.int64)
    return LabelledSplit(tokens_T=tokens, segments_T=segments, labels_P=numbers), cut
