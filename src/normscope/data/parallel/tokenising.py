"""The first part of the work: any number of pairs become parts of tokenised ones on the disk, some of them dropped."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..parts import cut, note_parts, noted_parts, write_part
from ..pool import in_order
from ..sources.opening import texts_in
from ..text import prepare_pairs
from .preparation import PrepareConfig, drop_reason

_SHARE = 16
"""Parts are so much shorter than those of other work, as Moses' tokeniser is slower: some seconds for each."""
RawPair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """A file of tokenised pairs, and what is known of it."""

    name: str
    split: str
    read: int
    kept: int
    dropped: Mapping[str, int]
    """Reason -> pairs."""


@dataclass(frozen=True, slots=True)
class _Tokenise:
    """Pairs to be tokenised, and where they go; none where the part is there already."""

    path: Path
    split: str
    config: PrepareConfig
    pairs: Sequence[RawPair] | None


def tokenised_parts(config: PrepareConfig, folder: Path, told: Callable[[int], None]) -> list[Part]:
    """Make the parts of all splits that are not there yet. told: is called with the number of pairs that are done."""
    noted = noted_parts(folder)
    if noted is not None:
        return [Part(*part) for part in noted]
    parts: list[Part] = []
    done = 0
    for part, content in in_order(_tokenise, _to_tokenise(config, folder), processes=config.workers):
        if content:
            write_part(folder / part.name, content)
        parts.append(part)
        done += part.read
        told(done)
    note_parts(folder, [[part.name, part.split, part.read, part.kept, dict(part.dropped)] for part in parts])
    return parts


def pairs_in(source: Path, target: Path, config: PrepareConfig) -> Iterator[RawPair]:
    """The raw pairs of two files."""
    fields = config.named
    # A line break inside a record's text is a blank: text to score against has a sentence a line.
    sides = (texts_in(file, field) for file, field in zip((source, target), fields, strict=True))
    for (_, source_text), (_, target_text) in zip(*sides, strict=True):
        yield source_text.replace("\n", " "), target_text.replace("\n", " ")


def pairs_of(path: Path) -> Iterator[tuple[RawPair, RawPair]]:
    """Raw and tokenised pairs of a part."""
    lines = path.read_bytes().decode().split("\n")[1:-1]
    for at in range(0, len(lines), 4):
        yield (lines[at], lines[at + 1]), (lines[at + 2], lines[at + 3])


def _to_tokenise(config: PrepareConfig, folder: Path) -> Iterator[_Tokenise]:
    for split, (source, target) in config.splits.items():
        pairs = pairs_in(source, target, config)
        for number, part in enumerate(cut(pairs, lambda pair: len(pair[0]) + len(pair[1]), share=_SHARE)):
            path = folder / f"{split}-{number:07d}.text"
            yield _Tokenise(path, split, config, None if path.exists() else part)


def _tokenise(task: _Tokenise) -> tuple[Part, bytes]:
    """A part and what its file is to hold, nothing where it is there already.

    The first line says what it holds in all, so that a part that is there need not be read.
    """
    if task.pairs is None:
        with task.path.open(encoding="utf-8", newline="\n") as file:
            return Part(*json.loads(file.readline())), b""
    dropped: Counter[str] = Counter()
    lines: list[str] = []
    for raw, pair in zip(task.pairs, prepare_pairs(*task.config.forms(), task.pairs), strict=True):
        reason = drop_reason(*pair, task.config) if task.split == "train" else None
        if reason:
            dropped[reason] += 1
        else:
            lines += [*raw, *pair]
    known: list[Any] = [task.path.name, task.split, len(task.pairs), len(lines) // 4, dict(dropped)]
    return Part(*known), "".join(line + "\n" for line in [json.dumps(known), *lines]).encode()
