"""What a power cut may leave of recorded operations: the promises of fsync, and nothing beyond
them.

A file's data is sure to survive once the file is synchronised, an entry of a folder once the folder
is, and a renaming is whole or not there. Anything else may be lost or kept, each for itself and in
any order, as Pillai et al. 2014 ("All file systems are not created equal") found of real file
systems: an entry without its data, zeros of the right length, a renaming without what was written
before it.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .operations import CHANGING, SYNCING, Operation

Number = int
"""Of a file or folder on the disk, as an inode's: names come and go, it stays."""


@dataclass(slots=True)
class Change:
    """A change of the disk that may not survive: of some folders' entries, or of one file's
    data.
    """

    entries: tuple[tuple[Number, str, Number | None], ...] = ()
    """Folder, name, and what it names from now on; None for nothing."""
    file: Number = 0
    offset: int = 0
    data: bytes = b""
    length: int | None = None
    """Of a truncation."""
    makes_folder: bool = False
    safe_after: float = float("inf")
    """Number of the operation that makes it sure to survive."""

    @property
    def is_writing(self) -> bool:
        return not self.entries and self.length is None


@dataclass(slots=True)
class _Disk:
    """Files and folders by number, as the running system sees them."""

    folders: dict[Number, dict[str, Number]] = field(default_factory=lambda: {0: {}})
    files: dict[Number, bytearray] = field(default_factory=dict)

    def find(self, path: str) -> Number:
        found = 0
        for name in PurePosixPath(path).parts:
            found = self.folders[found][name]
        return found

    def place(self, path: str) -> tuple[Number, str]:
        """The folder that has the path, and its name there."""
        pure = PurePosixPath(path)
        return self.find(str(pure.parent)), pure.name

    def apply(self, change: Change) -> None:
        for folder, name, number in change.entries:
            if number is None:
                self.folders[folder].pop(name, None)
            else:
                self.folders[folder][name] = number
        if not change.entries:
            content = self.files[change.file]
            end = change.offset + len(change.data) if change.length is None else change.length
            content.extend(bytes(max(0, end - len(content))))
            if change.length is None:
                content[change.offset : end] = change.data
            else:
                del content[end:]

    def tree(self, folder: Number = 0, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        """Every path with its content, None for a folder; a folder before what is in it."""
        for name, number in sorted(self.folders[folder].items()):
            if number in self.folders:
                yield prefix + name, None
                yield from self.tree(number, f"{prefix}{name}/")
            else:
                yield prefix + name, bytes(self.files[number])


Tree = tuple[tuple[str, bytes | None], ...]
"""Paths with their contents; None for a folder."""
Fate = Callable[[Change], Change | None]
"""What becomes of a change that is not sure to survive: it, a part of it, or nothing."""


class Replay:
    """The states of a disk that a power cut during recorded operations may leave."""

    def __init__(self, before: Tree, operations: Iterable[Operation]) -> None:
        """before: what was on the disk, long since synchronised."""
        self._made = 0
        self._start: list[Change] = []
        self._changes: list[tuple[int, Change]] = []
        self._new_folders: set[Number] = set()
        self._new_files: set[Number] = set()
        self.cuts: list[int] = [0]
        """Numbers of operations after which a cut differs from one before."""
        disk = _Disk()
        for path, content in before:
            change = self._new(disk, path, folder=content is None)
            self._start.append(change)
            if content:
                self._start.append(Change(file=disk.find(path), data=content))
                disk.apply(self._start[-1])
        for number, operation in enumerate(operations, 1):
            if operation.kind in (*CHANGING, *SYNCING):
                self._note(disk, number, operation)
                self.cuts.append(number)
        self.end: Tree = tuple(disk.tree())

    def after(self, cut: int, fate: Fate) -> Tree:
        """The disk after a power cut behind operation number `cut`, where `fate` decides what was
        not yet sure.
        """
        disk = _Disk(
            {n: {} for n in (0, *self._new_folders)},
            {n: bytearray() for n in self._new_files},
        )
        for change in self._start:
            disk.apply(change)
        for number, change in self._changes:
            if number > cut:
                break
            left = change if change.safe_after <= cut else fate(change)
            if left is not None:
                disk.apply(left)
        return tuple(disk.tree())

    def _new(self, disk: _Disk, path: str, *, folder: bool) -> Change:
        self._made += 1
        (disk.folders if folder else disk.files)[self._made] = {} if folder else bytearray()  # type: ignore[index]
        (self._new_folders if folder else self._new_files).add(self._made)
        change = Change(entries=((*disk.place(path), self._made),), makes_folder=folder)
        disk.apply(change)
        return change

    def _note(self, disk: _Disk, number: int, operation: Operation) -> None:
        if operation.kind in SYNCING:
            self._sync(disk.find(operation.path), number)
            return
        if operation.kind in ("create", "make folder"):
            self._changes.append(
                (number, self._new(disk, operation.path, folder=operation.kind == "make folder"))
            )
            return
        change = _change(disk, operation)
        if change is not None:
            disk.apply(change)
            self._changes.append((number, change))

    def _sync(self, what: Number, number: int) -> None:
        for _, change in self._changes:
            touched = (
                {folder for folder, _, _ in change.entries} if change.entries else {change.file}
            )
            if what in touched:
                change.safe_after = min(change.safe_after, number)


def _change(disk: _Disk, operation: Operation) -> Change | None:
    here = disk.place(operation.path)
    if operation.kind == "write":
        return Change(file=disk.find(operation.path), offset=operation.offset, data=operation.data)
    if operation.kind == "truncate":
        return Change(file=disk.find(operation.path), length=operation.length)
    if operation.kind == "rename":
        return Change(
            entries=((*here, None), (*disk.place(operation.to), disk.find(operation.path)))
        )
    if operation.kind == "link":
        return Change(entries=((*disk.place(operation.to), disk.find(operation.path)),))
    if operation.kind in ("remove", "remove folder"):
        return Change(entries=((*here, None),))
    assert operation.kind == "chmod", operation
    return None


def _lost(change: Change) -> Change | None:
    return None


def _folders_alone(change: Change) -> Change | None:
    return change if change.makes_folder else None


def _kept(change: Change) -> Change | None:
    return change


def _names_alone(change: Change) -> Change | None:
    return None if change.is_writing else change


def _zeros(change: Change) -> Change | None:
    return (
        Change(file=change.file, offset=change.offset, data=bytes(len(change.data)))
        if change.is_writing
        else change
    )


def _by_chance(dice: random.Random) -> Fate:
    def fate(change: Change) -> Change | None:
        drawn = dice.random()
        if drawn < 0.45:
            return change
        if change.is_writing and drawn > 0.8:
            cut = dice.randrange(len(change.data) + 1)
            return Change(file=change.file, offset=change.offset, data=change.data[:cut])
        return _zeros(change) if change.is_writing and drawn > 0.7 else None

    return fate


def fates(seed: int, draws: int) -> Sequence[tuple[str, Fate]]:
    """Named ways in which a cut may end: five at the extremes and `draws` by chance."""
    fixed = [("lost", _lost), ("new folders alone", _folders_alone), ("kept", _kept)]
    fixed += [("names without data", _names_alone), ("zeros", _zeros)]
    return [
        *fixed,
        *((f"chance {seed}.{n}", _by_chance(random.Random(f"{seed}.{n}"))) for n in range(draws)),
    ]


def read_tree(folder: Path) -> Tree:
    """Everything under a folder."""
    paths = sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts)
    return tuple(
        (str(p.relative_to(folder)), None if p.is_dir() else p.read_bytes()) for p in paths
    )


def write_tree(folder: Path, tree: Tree) -> None:
    """Make a folder of it, which must not be there."""
    folder.mkdir()
    for name, content in tree:
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
