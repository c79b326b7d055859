"""The preparation of a corpus of any kind: text is read in parts, learned from, encoded, and put
together.

A `Preparation` is what is particular to a kind of corpus; `prepared` takes its steps. Text of any
length is prepared in the memory of some parts, by any number of processes, and a killed preparation
goes on where it was (`data/work.py`).
"""

import hashlib
import io
import json
import os
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..files import disk_errors, recover, resumable_folder, whole_folder, write_atomically
from ..limits.home import from_home
from ..limits.names import inside
from ..limits.ours import refuse_inside
from . import work
from .folder import TokenWriter, listed_files, write_manifest
from .words import added, counted_every, most_frequent

Progress = Callable[[str, int, int], None]
"""A function that is called with a stage (such as "learn" or "encode"), how much of it is done, and
its total.
"""


class _ReadPart(NamedTuple):
    """A part of the text that has been read."""

    path: Path
    split: str
    known: Mapping[str, Any]
    """For JSON."""


class _RawPart(NamedTuple):
    """A part of the text that is to be read."""

    path: Path
    split: str
    items: Sequence[Any] | None
    """The items; None for a part that exists already."""


class _WrittenPart(NamedTuple):
    """A part as another process has made it."""

    name: str
    split: str
    known: Mapping[str, Any]
    content: bytes
    """The content of its file: empty where the file exists already."""


_ReadItems = Callable[[str, Sequence[Any]], tuple[Mapping[str, Any], list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReport:
    """The outcome of a preparation."""

    out: Path
    unchanged: bool
    """True: the corpus stood there already, made from the same files in the same way, and was left
    alone.
    """
    fingerprint: str
    counts: Mapping[str, Any]
    """The corpus's notes on itself, for JSON; each kind of corpus has its own."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A file of text that has been read, its split, and which of its items, documents or pairs, are
    held out.

    Items are numbered over all parts of a split.
    """

    path: Path
    split: str
    first: int
    """The number of the first that begins in the part; what is before that in it belongs to the one
    before.
    """
    held_out: frozenset[int]

    @property
    def ids(self) -> Path:
        """The file of the part's token ids."""
        return self.path.with_suffix(".ids")


class Preparation(ABC):
    """One corpus to be made. Methods stand in the order in which `prepared` calls them.

    Functions that are attributes do the work on a part, in other processes too.
    """

    corpus: ClassVar[Any]
    """The class whose `open(folder)` gives `preparation` and `fingerprint`."""
    format_name: ClassVar[str]
    version: ClassVar[int]
    learned: ClassVar[str]
    """Name of the file or folder of what is learned, beside the parts."""
    count: Callable[[TextPart], Sequence[Counter[str]]] | None
    """The function that counts each word in what is kept of a training part, in one text or
    several; None to learn nothing.
    """
    encode: Callable[[Path, TextPart], Mapping[str, NDArray[Any]]]
    """Arrays of a part, by what was learned, under the names `writer.name`: a writer appends those
    by name.
    """
    out: Path
    processes: int
    sources: Sequence[Path]
    """The files that are read."""
    options: Mapping[str, Any]
    """All that decides what the corpus holds, but the bytes of the input."""
    words: int
    """About as many words are in the training text; known when it has been read."""

    @abstractmethod
    def inputs(self, progress: Progress) -> Mapping[str, Any]:
        """Returns what identifies the bytes of the input, for the key. Raises UserError for a file
        that cannot be read.
        """

    def check(self, progress: Progress) -> None:  # noqa: B027 (not all have something to check)
        """Raise UserError for input that cannot be used, before any work is put into it."""

    @abstractmethod
    def read(self, folder: Path, progress: Progress) -> list[TextPart]:
        """Read the text into parts of the folder. Raises UserError for text that cannot be used."""

    @abstractmethod
    def learn(self, counts: Sequence[Counter[str]], path: Path) -> None:
        """Write what is learned from the counts to `path`, whole or not at all."""

    @abstractmethod
    def writers(self, folder: Path, learned: Path, stack: ExitStack) -> Mapping[str, TokenWriter]:
        """Writers into the folder, to which what was learned is copied, by the split or what of it
        each writes.

        stack: closes their files."""

    @abstractmethod
    def counts(self, writers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the counts for the report, when all parts have been written."""


def prepared(kind: Preparation, progress: Progress) -> CorpusReport:
    """Make the corpus at `kind.out`, whole or not at all; does nothing where it stands there
    already.

    A corpus made otherwise is replaced in the end, and valid until then. Raises UserError for input
    that cannot be used or lies in `out`, for an `out` that holds anything but a corpus, and for a
    disk that is full or not writable.
    """
    out = Path(os.path.abspath(from_home(kind.out)))  # noqa: PTH100 (a link is not to be followed)
    refuse_inside(out, kind.sources)
    # Before the files are read: what another command left of replacing a corpus is in its place
    # again.
    with disk_errors(f"writing {out}"):
        recover(out, lambda left: True, listed_files)
    key = _key(kind, progress)
    of_use = partial(work.of_use, key)
    standing = _standing(kind, out, key)
    with disk_errors(f"writing {out}"):
        recover(out, of_use if standing is None else lambda left: False, listed_files)
    if standing is not None:
        return standing
    kind.check(progress)
    with disk_errors(f"writing {out}"), resumable_folder(out, of_use, listed_files) as unfinished:
        folder = work.begin(key, unfinished)
        parts = kind.read(folder, progress)
        learned = folder / kind.learned
        if not learned.exists():
            _learn(kind, [part for part in parts if part.split == "train"], learned, progress)
        steps = 2 * len(parts)  # encoded, and put together
        _encode(
            partial(kind.encode, learned),
            parts,
            kind.processes,
            lambda done: progress("encode", done, steps),
        )
        with whole_folder(unfinished / out.name, listed_files) as whole:
            with ExitStack() as stack:
                writers = kind.writers(whole, learned, stack)
                for done, part in enumerate(parts, 1 + len(parts)):
                    found: dict[str, dict[str, NDArray[Any]]] = {}
                    with np.load(part.ids, allow_pickle=False) as arrays:
                        for name in arrays:
                            writer, _, inner = name.rpartition(".")
                            found.setdefault(writer, {})[inner] = arrays[name]
                    for writer, encoded in found.items():
                        writers[writer].append(encoded)
                    progress("encode", done, steps)
                counts = kind.counts(writers)
            fingerprint = write_manifest(
                whole,
                format_name=kind.format_name,
                version=kind.version,
                splits=dict.fromkeys(name.partition(".")[0] for name in writers),
                preparation={"key": key, "options": kind.options, "report": counts},
            )
    return CorpusReport(out=out, unchanged=False, fingerprint=fingerprint, counts=counts)


def read_parts(
    folder: Path,
    splits: Mapping[str, Iterable[Any]],
    read: _ReadItems,
    *,
    characters: Callable[[Any], int],
    share: int = 1,
    processes: int,
    progress: Callable[[Mapping[str, Any]], None],
) -> list[_ReadPart]:
    """Make the parts of all splits that are not there yet, from the items of each, such as
    paragraphs or pairs.

    read: makes of a split's name and items what is known of them, and the lines of a part; other
    processes do it. characters, share: as `cut` takes them. progress: called with what is known of
    each part.
    """
    noted = work.noted_parts(folder)
    if noted is None:
        noted = []
        raw = _cut(folder, splits, characters, share)
        for part in work.in_order(partial(_read, read), raw, processes=processes):
            if part.content:
                # By this process alone: others may live a moment longer than it when it is killed.
                write_atomically(folder / part.name, part.content)
            noted.append([part.name, part.split, part.known])
            progress(part.known)
        work.note_parts(folder, noted)
    table = folder / work.TABLE
    return [_ReadPart(inside(folder, name, table), split, known) for name, split, known in noted]


def numbered(
    parts: Sequence[_ReadPart], what: str, held_out: Mapping[str, Sequence[int]]
) -> list[TextPart]:
    """Returns the parts with the numbers of their items.

    what: how many items a part has, by that name in what is known of it. held_out: split -> numbers
    of its items that are, in ascending order.
    """
    made, ends = [], Counter[str]()
    for path, split, known in parts:
        first, numbers = ends[split], held_out.get(split, ())
        ends[split] += known[what]
        within = numbers[bisect_left(numbers, first - 1) : bisect_left(numbers, ends[split])]
        made.append(TextPart(path, split, first, frozenset(map(int, within))))
    return made


def _key(kind: Preparation, progress: Progress) -> str:
    """Returns the SHA-256 over options, format version and input bytes: equal where preparing again
    would change nothing.
    """
    state = {"version": kind.version, "options": kind.options, **kind.inputs(progress)}
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _standing(kind: Preparation, out: Path, key: str) -> CorpusReport | None:
    """Returns the report of the corpus at `out` if it is sound and of this key."""
    try:
        corpus = kind.corpus.open(out)
        if corpus.preparation.get("key") != key:
            return None
        counts = corpus.preparation["report"]
        return CorpusReport(out=out, unchanged=True, fingerprint=corpus.fingerprint, counts=counts)
    except (UserError, KeyError, TypeError):
        return None  # none there, or a damaged one, which is made anew


def _cut(
    folder: Path, splits: Mapping[str, Iterable[Any]], characters: Callable[[Any], int], share: int
) -> Iterator[_RawPart]:
    """Cuts the items of every split into parts."""
    for split, items in splits.items():
        for number, part in enumerate(work.cut(items, characters, share=share)):
            path = folder / f"{split}-{number:07d}.text"
            yield _RawPart(path, split, None if path.exists() else part)


def _read(read: _ReadItems, raw: _RawPart) -> _WrittenPart:
    """Reads a part that is there, or makes it.

    The first line of the file is what is known, so that a part that is there need not be read.
    """
    name = raw.path.name
    if raw.items is None:
        with raw.path.open(encoding="utf-8", newline="\n") as file:
            return _WrittenPart(name, raw.split, json.loads(file.readline()), b"")
    known, lines = read(raw.split, raw.items)
    content = "".join(line + "\n" for line in [json.dumps(known), *lines])
    return _WrittenPart(name, raw.split, known, content.encode())


def _learn(kind: Preparation, parts: Sequence[TextPart], path: Path, progress: Progress) -> None:
    """Learn from the words of the training parts; of a very long text, every n-th part is
    counted.
    """
    if kind.count is None:
        kind.learn([], path)
        return
    chosen = parts[:: counted_every(kind.words)]
    total = len(chosen) + 1
    progress("learn", 0, total)
    sums: list[Counter[str]] = []
    for done, found in enumerate(work.in_order(kind.count, chosen, processes=kind.processes), 1):
        sums = sums or [Counter() for _ in found]
        sums = [added(several, one) for several, one in zip(sums, found, strict=True)]
        progress("learn", done, total)
    kind.learn([most_frequent(several) for several in sums], path)
    progress("learn", total, total)


def _encode(
    encode: Callable[[TextPart], Mapping[str, NDArray[Any]]],
    parts: Sequence[TextPart],
    processes: int,
    progress: Callable[[int], None],
) -> None:
    """Write the token ids of all parts that are not there yet. progress: called with how many
    are.
    """
    missing = [part for part in parts if not part.ids.exists()]
    encoded = zip(
        missing, work.in_order(partial(_packed, encode), missing, processes=processes), strict=True
    )
    for done, (part, content) in enumerate(encoded, 1 + len(parts) - len(missing)):
        write_atomically(part.ids, content)
        part.path.unlink(missing_ok=True)  # it is not needed any more
        progress(done)


def _packed(encode: Callable[[TextPart], Mapping[str, NDArray[Any]]], part: TextPart) -> bytes:
    content = io.BytesIO()
    np.savez(content, **encode(part))  # type: ignore[arg-type]
    return content.getvalue()
