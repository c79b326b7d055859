"""Folders that appear whole or not at all, and files that appear together."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import UserError
from ..limits.kinds import FileKind
from ..limits.ours import MARK, nothing_of_ours, refuse_foreign, refuse_other
from .clearing import REPLACED, Listed, clear_unfinished, discard, lock, recover, remove
from .disk import sync
from .single import UNFINISHED


def write_together(folder: Path, contents: Mapping[str, str], kind: FileKind) -> None:
    """Write files of a folder that the caller holds, by name, each as `write_over` does, and all on
    disk at once.
    """
    make_folders(folder)
    clear_unfinished(folder)
    _make_folder(work := folder / f"{UNFINISHED}files")
    try:
        _mark(work)
        for name, content in contents.items():
            refuse_other(folder / name, kind, content.encode())
            (work / name).write_bytes(content.encode())
        os.sync()  # once: a file at a time, ten thousand wait for minutes
        for name in contents:
            (work / name).replace(folder / name)
        sync(folder)
    finally:
        discard(work)


@contextmanager
def whole_folder(path: Path, listed: Listed = nothing_of_ours) -> Iterator[Path]:
    """A folder to fill, which becomes `path` when the block ends and disappears when it raises.

    Every file is on disk before the name is: after a kill there is the whole folder or none. A
    folder that stood at `path` stays as it is until then; `recover` puts it back where a kill came
    between the two renames. listed: what is ours in such a folder and is replaced. Raises UserError
    where anything else stands in it, and while another process fills the same folder.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 (a link is not to be followed)
    recover(path, listed=listed)
    make_folders(path.parent)
    temporary = path.with_name(UNFINISHED + path.name)
    _make_folder(temporary)
    try:
        _mark(temporary)
        # The lock tells a folder being written from one left by a killed process: it ends with its
        # process.
        held = lock(temporary, path)
        try:
            yield temporary
            mode = (temporary / MARK).stat().st_mode
            for file in sorted(temporary.rglob("*"), reverse=True):
                if file.is_file() and file.stat().st_mode != mode:
                    file.chmod(mode)  # safetensors writes for the user alone, whatever the umask
                if file.name != MARK:
                    sync(file)
            sync(temporary)
            _swap(temporary, path, listed)
        finally:
            os.close(held)
    except BaseException:
        discard(temporary)
        raise


@contextmanager
def resumable_folder(path: Path, of_use: Callable[[Path], bool], listed: Listed) -> Iterator[Path]:
    """A folder for long work, whose part of the name of `path` takes the place of `path` when the
    block ends.

    What a kill left is there again where it is `of_use`; so is what an error or Ctrl-C left. That
    part is to be made by `whole_folder`, and is then whole. listed, and what is raised: as of
    `whole_folder`.
    """
    recover(path, of_use, listed)
    make_folders(path.parent)
    work = path.with_name(UNFINISHED + path.name)
    begun = not work.exists()
    _make_folder(work, exist_ok=True)
    try:
        _mark(work)
        held = lock(work, path)
    except BaseException:
        if begun:
            with suppress(OSError):  # there is nothing in it but the mark
                (work / MARK).unlink(missing_ok=True)
                work.rmdir()
        raise
    try:
        try:
            yield work
            _swap(work / path.name, path, listed)
        finally:
            os.close(held)
    except BaseException:
        if not of_use(work):
            discard(work)
        raise
    discard(work)


def _mark(folder: Path) -> None:
    """Say in a folder of work that it is ours, before there is anything in it."""
    (folder / MARK).touch()
    sync(folder)


def _swap(temporary: Path, path: Path, listed: Listed) -> None:
    """Puts a whole folder in its place; the former one comes back if that fails."""
    replaced = path.with_name(REPLACED + path.name)
    try:
        if path.is_dir() and any(path.iterdir()):
            refuse_foreign(path, listed)  # once more: the work may have taken hours
            path.rename(replaced)
        temporary.rename(path)
        sync(path.parent)
        with suppress(OSError):
            (path / MARK).unlink(missing_ok=True)
    except BaseException as error:
        if temporary.exists() and replaced.exists():
            replaced.rename(path)
        elif not temporary.exists() and not isinstance(
            error, OSError
        ):  # a signal, just after the renames
            sync(path.parent)
            remove(replaced, listed)
        raise
    remove(replaced, listed)  # the new folder is in place; `recover` clears what stays


def make_folders(path: Path) -> None:
    """Make a folder and those above it, each of them on disk under its name, where they are not
    there yet.
    """
    if path.is_dir():
        return
    make_folders(path.parent)
    _make_folder(path, exist_ok=True)
    sync(path.parent)


def _make_folder(path: Path, *, exist_ok: bool = False) -> None:
    try:
        path.mkdir(exist_ok=exist_ok)
    except FileNotFoundError as error:  # the folder above is there, and yet none can be made in it
        raise UserError(f"no folder can be made in {path.parent}; choose another place") from error
