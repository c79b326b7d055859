"""Labelled sentence pairs: lines of a tab-separated file under a line of column names, and their batches."""

# N = packed tokens, B = sequences, T = tokens of one sequence

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

from ..errors import UserError
from .batches import Batch
from .documents.batches import sequence
from .documents.corpus import TOKENISER
from .documents.tokeniser import TextTokeniser
from .lines import read_lines

HELD_OUT_EVERY = 10
"""Without a file to validate on, every tenth pair is held out."""


COLUMNS = ("label", "sentence1", "sentence2")
"""Names of the three columns that are read, where nobody names others; a file may have more."""


class _LabelledPair(NamedTuple):
    """One line."""

    label: str
    first: str
    second: str
    line: int
    """Counted from 1, the line of column names included."""


def read_pairs(path: Path, columns: Sequence[str] = COLUMNS) -> list[_LabelledPair]:
    """All pairs of a file, without quoting: a quotation mark is a character as any other.

    Raises UserError, naming file and line, for what `read_lines` refuses, for columns that are missing or there twice,
    a line with more or fewer columns than the first one, and an empty label or sentence.
    """
    pairs = list(_pairs(path, columns))
    if not pairs:
        raise UserError(f"{path}: no pairs, only the line of column names; give one pair a line below it")
    return pairs


def _pairs(path: Path, columns: Sequence[str]) -> Iterator[_LabelledPair]:
    lines = read_lines(path)
    _, header = next(lines)
    names = [name.strip() for name in header.split("\t")]
    places = [_place(path, names, name) for name in columns]
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
        yield _LabelledPair(label, first, second, number)


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


def hold_out(pairs: Sequence[_LabelledPair]) -> tuple[list[_LabelledPair], list[_LabelledPair]]:
    """Training pairs, and every tenth, which is validated on."""
    held_out = pairs[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    return [pair for i, pair in enumerate(pairs) if (i + 1) % HELD_OUT_EVERY], list(held_out)


def label_names(path: Path, pairs: Sequence[_LabelledPair]) -> tuple[str, ...]:
    """The distinct labels, sorted. Raises UserError for a single one: there is nothing to tell apart."""
    names = tuple(sorted({pair.label for pair in pairs}))
    if len(names) < 2:
        raise UserError(f"{path}: every pair to train on has the label {names[0]!r}; at least two labels are needed")
    return names


def refuse_unknown_labels(path: Path, pairs: Sequence[_LabelledPair], names: Sequence[str]) -> None:
    """Raise UserError for a label that the training pairs do not have."""
    for pair in pairs:
        if pair.label not in names:
            raise UserError(
                f"{path}:{pair.line}: label {pair.label!r} is not among those of the training pairs, {_listed(names)}"
            )


def largest_share(pairs: Sequence[_LabelledPair]) -> float:
    """Accuracy of the best constant answer."""
    return max(Counter(pair.label for pair in pairs).values()) / len(pairs)


def _listed(names: Sequence[str], most: int = 10) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


LABELS = "labels.json"
_SPECIALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDataConfig:
    """Which files to train and validate on, and how large a batch is."""

    corpus: str
    """The file to train on: tab-separated, the first line naming the columns."""
    valid_file: str = ""
    """As `corpus`, to validate on; empty to hold out every tenth pair of it."""
    label_column: str = "label"
    first_column: str = "sentence1"
    second_column: str = "sentence2"
    positive_label: str = ""
    """What F1 is of, where there are two labels; empty for the last in sorting order."""
    sequence_length: int = 128
    """Tokens of the longest sequence, special tokens included; a longer pair loses tokens from the end of whichever
    sentence is longer."""
    batch_sequences: int = 32

    def __post_init__(self) -> None:
        if self.sequence_length < 8 or self.batch_sequences < 1:
            raise ValueError(
                f"sequence_length must be at least 8 and batch_sequences 1, got {self.sequence_length} and "
                f"{self.batch_sequences}"
            )

    def columns(self) -> tuple[str, str, str]:
        """Their names, the label's first."""
        return self.label_column, self.first_column, self.second_column


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledBatch(Batch):
    """Packed sequences, end to end without padding; int64 throughout."""

    on_device = ("tokens_N", "segments_N", "labels_B")

    tokens_N: Tensor
    segments_N: Tensor
    """0 for [CLS] first [SEP], 1 for second [SEP]."""
    lengths_B: Tensor
    """On the CPU always, for masks and counts that must not wait for a device."""
    labels_B: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class _LabelledSplit:
    """Sequences with their labels; every list has one entry a pair."""

    tokens_T: list[NDArray[np.int64]]
    segments_T: list[NDArray[np.int64]]
    labels: NDArray[np.int64]
    majority_share: float
    """Accuracy of the best constant answer."""

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Sequence[int]) -> LabelledBatch:
        """The pairs of these indices, in that order. Raises ValueError for none."""
        if len(indices) == 0:
            raise ValueError("no pairs; a batch needs at least one")
        return LabelledBatch(
            tokens_N=torch.from_numpy(np.concatenate([self.tokens_T[i] for i in indices])),
            segments_N=torch.from_numpy(np.concatenate([self.segments_T[i] for i in indices])),
            lengths_B=torch.tensor([len(self.tokens_T[i]) for i in indices]),
            labels_B=torch.from_numpy(self.labels[list(indices)]),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledCorpus:
    """Made by `open_labelled`."""

    tokeniser: TextTokeniser
    labels: tuple[str, ...]
    positive: int | None
    """Number of the label that F1 is of; None where there are more than two."""
    splits: Mapping[str, _LabelledSplit]

    @property
    def fingerprint(self) -> str:
        """SHA-256 over what training and validation read: token ids, labels and their names, tokeniser."""
        digest = hashlib.sha256(json.dumps(self.labels).encode())
        digest.update(self.tokeniser.to_json().encode())
        for name, split in sorted(self.splits.items()):
            digest.update(f"{name} {len(split)}".encode())
            for array in (split.labels, *split.tokens_T, *split.segments_T):
                digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return digest.hexdigest()

    def save_vocabularies(self, folder: Path) -> None:
        """Write what is needed to judge pairs without the files: the tokeniser, and the labels' names."""
        self.tokeniser.save(folder / TOKENISER)
        (folder / LABELS).write_text(json.dumps(self.labels) + "\n", encoding="utf-8", newline="\n")


def open_labelled(config: PairDataConfig, tokeniser: TextTokeniser) -> LabelledCorpus:
    """Read and encode both files. Raises UserError as `read_pairs`, and for labels that do not go together."""
    train_file, valid_file = Path(config.corpus), Path(config.valid_file or config.corpus)
    pairs = read_pairs(train_file, config.columns())
    train, valid = (pairs, read_pairs(valid_file, config.columns())) if config.valid_file else hold_out(pairs)
    if not valid:
        raise UserError(
            f"{train_file}: {len(pairs)} pair(s), too few to hold every tenth out; give more, or --dev FILE"
        )
    labels = label_names(train_file, train)
    refuse_unknown_labels(valid_file, valid, labels)
    return LabelledCorpus(
        tokeniser=tokeniser,
        labels=labels,
        positive=_positive(config.positive_label, labels),
        splits={
            name: _encoded(rows, labels, tokeniser, config.sequence_length)
            for name, rows in (("train", train), ("valid", valid))
        },
    )


def cut(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths after tokens are taken, one by one, from whichever is longer (the second of equal ones), to fit `room`.

    As BERT's `_truncate_seq_pair` (google-research/bert, run_classifier.py).
    """
    while first + second > room:
        first, second = (first - 1, second) if first > second else (first, second - 1)
    return first, second


def _encoded(
    pairs: Sequence[_LabelledPair], labels: Sequence[str], tokeniser: TextTokeniser, sequence_length: int
) -> _LabelledSplit:
    sides = [tokeniser.encode_many([getattr(pair, side) for pair in pairs]) for side in ("first", "second")]
    rows = []
    for first, second in zip(*sides, strict=True):
        kept = cut(len(first), len(second), sequence_length - _SPECIALS)
        arrays = [np.array(ids[:count], dtype=np.int64) for ids, count in zip((first, second), kept, strict=True)]
        rows.append(sequence(arrays[0], arrays[1], tokeniser))
    return _LabelledSplit(
        tokens_T=[tokens for tokens, _ in rows],
        segments_T=[segments for _, segments in rows],
        labels=np.array([labels.index(pair.label) for pair in pairs], dtype=np.int64),
        majority_share=largest_share(pairs),
    )


def _positive(asked: str, labels: tuple[str, ...]) -> int | None:
    if not asked:
        return len(labels) - 1 if len(labels) == 2 else None
    if asked not in labels:
        raise UserError(f"the positive label {asked!r} is not among those of the training pairs, {', '.join(labels)}")
    if len(labels) > 2:
        raise UserError(f"F1 is of one of two labels, and there are {len(labels)}; leave the positive label out")
    return labels.index(asked)
