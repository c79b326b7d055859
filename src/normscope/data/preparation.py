"""How a corpus of any kind is prepared: text is read in parts, learned from, encoded, and put together.

A `Preparation` is what is particular to a kind of corpus; `prepared` takes its steps. Text of any length is prepared in
the memory of some parts, by any number of processes, and a killed preparation goes on where it was (`data/work.py`).
"""

import hashlib
import io
import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..files import disk_errors, recover, resumable_folder, whole_folder
from ..limits.ours import refuse_inside
from .folder import listed_files, write_manifest
from .words import WordCounts, counted_every
from .work import Work, cut, in_order, note_parts, noted_parts, replace_part, write_part

Progress = Callable[[str, int, int], None]
"""Called with a stage (such as "learn" or "encode"), how much of it is done, and its total."""
ReadPart = tuple[Path, str, Mapping[str, Any]]
"""The file of a part of the text, its split, and what is known of it, for JSON."""
_ReadItems = Callable[[str, Sequence[Any]], tuple[Mapping[str, Any], list[str]]]
_Part = TypeVar("_Part", bound="TextPart")
_Report = TypeVar("_Report", bound="CorpusReport")


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReport:
    """What a preparation made; each kind of corpus adds its counts."""

    out: Path
    unchanged: bool
    """True: the corpus stood there already, made from the same files in the same way, and was left alone."""
    fingerprint: str

    def state(self) -> dict[str, Any]:
        """What the corpus notes of it, for JSON."""
        return {name: value for name, value in asdict(self).items() if name not in ("out", "unchanged", "fingerprint")}

    @classmethod
    def of_unchanged(cls, state: Mapping[str, Any], *, out: Path, fingerprint: str) -> Self:
        """From the `state` that a standing corpus noted. Raises KeyError or TypeError for another shape."""
        return cls(out=out, unchanged=True, fingerprint=fingerprint, **state)


@dataclass(frozen=True, slots=True)
class TextPart:
    """A file of text that has been read, and its split."""

    path: Path
    split: str

    @property
    def ids(self) -> Path:
        """The file of the part's token ids."""
        return self.path.with_suffix(".ids")


class Preparation(ABC, Generic[_Part, _Report]):
    """One corpus to be made. Methods stand in the order in which `prepared` calls them.

    Functions that are attributes do the work on a part, in other processes too.
    """

    corpus: ClassVar[Any]
    """The class whose `open(folder)` gives `preparation` and `fingerprint`."""
    reported: type[_Report]
    format_name: ClassVar[str]
    version: ClassVar[int]
    learned: ClassVar[str]
    """Name of the file or folder of what is learned, beside the parts."""
    count: Callable[[_Part], Sequence[Counter[str]]] | None
    """How often each word occurs in what is kept of a training part, in one text or several; None to learn nothing."""
    encode: Callable[[Path, _Part], Mapping[str, NDArray[Any]]]
    """Arrays of a part, by what was learned, under the names `split.name`: a split's writer appends those by name."""
    out: Path
    processes: int
    sources: Sequence[Path]
    """What is read."""
    options: Mapping[str, Any]
    """All that decides what the corpus holds, but the bytes of the input."""
    words: int
    """About as many words are in the training text; known when it has been read."""

    @abstractmethod
    def inputs(self, progress: Progress) -> Mapping[str, Any]:
        """What identifies the bytes of the input, for the key. Raises UserError for a file that cannot be read."""

    def check(self, progress: Progress) -> None:
        """Raise UserError for input that cannot be used, before any work is put into it."""

    @abstractmethod
    def read(self, folder: Path, progress: Progress) -> list[_Part]:
        """Read the text into parts of the folder. Raises UserError for text that cannot be used."""

    @abstractmethod
    def learn(self, counts: Sequence[Counter[str]], path: Path) -> None:
        """Write what is learned from the counts to `path`, whole or not at all."""

    @abstractmethod
    def writers(self, folder: Path, learned: Path, stack: ExitStack) -> Mapping[str, Any]:
        """Split -> its writer into the folder, to which what was learned is copied. stack: closes their files."""

    @abstractmethod
    def report(self, writers: Mapping[str, Any]) -> _Report:
        """The report, its fingerprint still empty."""


def prepared(kind: Preparation[_Part, _Report], progress: Progress) -> _Report:
    """Make the corpus at `kind.out`, whole or not at all; does nothing where it stands there already.

    A corpus made otherwise is replaced in the end, and valid until then. Raises UserError for input that cannot be
    used or lies in `out`, for an `out` that holds anything but a corpus, and for a disk that is full or not writable.
    """
    out = Path(os.path.abspath(kind.out.expanduser()))  # noqa: PTH100 (a link is not to be followed)
    refuse_inside(out, kind.sources)
    # Before the files are read: what another command left of replacing a corpus is in its place again.
    with disk_errors(f"writing {out}"):
        recover(out, lambda left: True, listed_files)
    work = Work(_key(kind, progress))
    standing = _standing(kind, out, work.key)
    with disk_errors(f"writing {out}"):
        recover(out, work.of_use if standing is None else lambda left: False, listed_files)
    if standing is not None:
        return standing
    kind.check(progress)
    with disk_errors(f"writing {out}"), resumable_folder(out, work.of_use, listed_files) as unfinished:
        folder = work.begin(unfinished)
        parts = kind.read(folder, progress)
        learned = folder / kind.learned
        if not learned.exists():
            _learn(kind, [part for part in parts if part.split == "train"], learned, progress)
        steps = 2 * len(parts)  # encoded, and put together
        _encode(partial(kind.encode, learned), parts, kind.processes, lambda done: progress("encode", done, steps))
        with whole_folder(unfinished / out.name, listed_files) as whole:
            with ExitStack() as stack:
                writers = kind.writers(whole, learned, stack)
                for done, part in enumerate(parts, 1 + len(parts)):
                    found: dict[str, dict[str, NDArray[Any]]] = {}
                    with np.load(part.ids, allow_pickle=False) as arrays:
                        for name in arrays:
                            split, _, inner = name.partition(".")
                            found.setdefault(split, {})[inner] = arrays[name]
                    for split, encoded in found.items():
                        writers[split].append(encoded)
                    progress("encode", done, steps)
                for writer in writers.values():
                    writer.end()
            report = kind.report(writers)
            noted = {"key": work.key, "options": kind.options, "report": report.state()}
            fingerprint = write_manifest(
                whole, format_name=kind.format_name, version=kind.version, splits=writers, preparation=noted
            )
    return replace(report, out=out, fingerprint=fingerprint)


def read_parts(
    folder: Path,
    splits: Mapping[str, Iterable[Any]],
    read: _ReadItems,
    *,
    characters: Callable[[Any], int],
    share: int = 1,
    processes: int,
    progress: Callable[[Mapping[str, Any]], None],
) -> list[ReadPart]:
    """Make the parts of all splits that are not there yet, from the items of each, such as paragraphs or pairs.

    read: makes of a split's name and items what is known of them, and the lines of a part; other processes do it.
    characters, share: as `cut` takes them. progress: called with what is known of each part.
    """
    noted = noted_parts(folder)
    if noted is None:
        noted = []
        raw = _cut(folder, splits, characters, share)
        for (name, split, known), content in in_order(partial(_read, read), raw, processes=processes):
            if content:
                write_part(folder / name, content)
            noted.append([name, split, known])
            progress(known)
        note_parts(folder, noted)
    return [(folder / name, split, known) for name, split, known in noted]


def numbered(parts: Sequence[ReadPart], what: str) -> Iterator[tuple[Path, str, int, int]]:
    """The parts split by split: file, split, and which of the split's items it has, from one number to before another.

    what: how many items a part has, by that name in what is known of it.
    """
    for split in dict.fromkeys(split for _, split, _ in parts):
        end = 0
        for path, _, known in (part for part in parts if part[1] == split):
            begin, end = end, end + known[what]
            yield path, split, begin, end


def _key(kind: Preparation[Any, Any], progress: Progress) -> str:
    """SHA-256 over options, format version and input bytes: equal where preparing again would change nothing."""
    state = {"version": kind.version, "options": kind.options, **kind.inputs(progress)}
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _standing(kind: Preparation[Any, _Report], out: Path, key: str) -> _Report | None:
    """The report of the corpus at `out` if it is sound and of this key."""
    try:
        corpus = kind.corpus.open(out)
        if corpus.preparation.get("key") != key:
            return None
        return kind.reported.of_unchanged(corpus.preparation["report"], out=out, fingerprint=corpus.fingerprint)
    except (UserError, KeyError, TypeError):
        return None  # none there, or a damaged one, which is made anew


def _cut(
    folder: Path, splits: Mapping[str, Iterable[Any]], characters: Callable[[Any], int], share: int
) -> Iterator[tuple[Path, str, Sequence[Any] | None]]:
    """File, split and items of each part; None for the items of one that is there already."""
    for split, items in splits.items():
        for number, part in enumerate(cut(items, characters, share=share)):
            path = folder / f"{split}-{number:07d}.text"
            yield path, split, None if path.exists() else part


def _read(
    read: _ReadItems, raw: tuple[Path, str, Sequence[Any] | None]
) -> tuple[tuple[str, str, Mapping[str, Any]], bytes]:
    """Name, split and what is known of a part, and what its file is to hold: nothing where it is there already.

    The first line of the file is what is known, so that a part that is there need not be read.
    """
    path, split, items = raw
    if items is None:
        with path.open(encoding="utf-8", newline="\n") as file:
            return (path.name, split, json.loads(file.readline())), b""
    known, lines = read(split, items)
    return (path.name, split, known), "".join(line + "\n" for line in [json.dumps(known), *lines]).encode()


def _learn(kind: Preparation[_Part, Any], parts: Sequence[_Part], path: Path, progress: Progress) -> None:
    """Learn from the words of the training parts; of a very long text, every n-th part is counted."""
    if kind.count is None:
        kind.learn([], path)
        return
    chosen = parts[:: counted_every(kind.words)]
    total = len(chosen) + 1
    progress("learn", 0, total)
    sums: list[WordCounts] = []
    for done, found in enumerate(in_order(kind.count, chosen, processes=kind.processes), 1):
        sums = sums or [WordCounts() for _ in found]
        for several, one in zip(sums, found, strict=True):
            several.add(one)
        progress("learn", done, total)
    kind.learn([several.most() for several in sums], path)
    progress("learn", total, total)


def _encode(
    encode: Callable[[_Part], Mapping[str, NDArray[Any]]],
    parts: Sequence[_Part],
    processes: int,
    progress: Callable[[int], None],
) -> None:
    """Write the token ids of all parts that are not there yet. progress: called with how many are."""
    missing = [part for part in parts if not part.ids.exists()]
    encoded = zip(missing, in_order(partial(_packed, encode), missing, processes=processes), strict=True)
    for done, (part, content) in enumerate(encoded, 1 + len(parts) - len(missing)):
        replace_part(part.path, part.ids, content)
        progress(done)


def _packed(encode: Callable[[_Part], Mapping[str, NDArray[Any]]], part: _Part) -> bytes:
    content = io.BytesIO()
    np.savez(content, **encode(part))  # type: ignore[arg-type]
    return content.getvalue()
