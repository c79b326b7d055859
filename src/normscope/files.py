"""Writing that a kill, a power cut or a full disk cannot leave half done: the one implementation of
it.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from safetensors import SafetensorError

from .errors import UserError
from .limits.kinds import FileKind
from .limits.ours import MARK, nothing_of_ours, refuse_foreign, refuse_other, refuse_unusual

UNFINISHED = ".unfinished-"
"""What the names of files and folders begin with until they are whole."""
REPLACED = ".replaced-"
"""The same of a folder whose place another one is taking, between two renames."""

_Listed = Callable[[Path], Mapping[str, str]]
"""What is ours in a folder, as `refuse_foreign` takes it."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EROFS, errno.EPERM}
_NO_PLACE = {errno.ENAMETOOLONG, errno.ELOOP}
_FAILING = {
    errno.EIO,
    errno.ENXIO,
    errno.ENODEV,
    errno.ESTALE,
    errno.EINTR,
    errno.ETIMEDOUT,
    errno.ENOLCK,
}


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, a kill or a power cut finds the old one or the new one, never
    a part.

    content: bytes, or text, which becomes UTF-8. Raises UserError where a link or a folder stands
    there.
    """
    refuse_unusual(path)
    made: list[Path] = []
    try:
        handle, temporary = _temporary_of(path, made), made[-1]
        with naming(path), os.fdopen(handle, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        for temporary in made:
            with suppress(
                OSError
            ):  # `clear_unfinished` takes it; what went wrong first is to be told
                temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_over(path: Path, content: str | bytes, kind: FileKind) -> None:
    """As `write_atomically`, where a file of the user's may stand: over one of ours of this kind,
    an empty or an equal one, and no other.
    """
    content = content if isinstance(content, bytes) else content.encode()
    refuse_other(path, kind, content)
    write_atomically(path, content)


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
        _discard(work)


def _temporary_of(path: Path, made: list[Path]) -> int:
    """A new file beside `path` for its next content, held by this process; those that killed ones
    left are removed.

    Its name is in `made` before it is there, so that a signal that comes while it is made does not
    leave it.
    """
    for left in filter(
        _is_temporary, path.parent.glob(f"{UNFINISHED}{escape(path.name)}-????????")
    ):
        with suppress(OSError), left.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()
    while True:
        # A name of its own for every writer: two processes that write the same page must not share
        # a temporary file.
        made.append(path.with_name(f"{UNFINISHED}{path.name}-{secrets.token_hex(4)}"))
        try:
            handle = os.open(made[-1], os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            made.pop()  # another process's
            continue
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(
            handle
        )  # another process took it for one that was left, in the moment before it was held


def _is_temporary(file: Path) -> bool:
    """Whether a file has the name that `_temporary_of` gives."""
    return (
        re.search(r"-[0-9a-f]{8}$", file.name) is not None
        and file.is_file()
        and not file.is_symlink()
    )


@contextmanager
def whole_folder(path: Path, listed: _Listed = nothing_of_ours) -> Iterator[Path]:
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
        lock = _lock(temporary, path)
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
            os.close(lock)
    except BaseException:
        _discard(temporary)
        raise


@contextmanager
def resumable_folder(path: Path, of_use: Callable[[Path], bool], listed: _Listed) -> Iterator[Path]:
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
        lock = _lock(work, path)
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
            os.close(lock)
    except BaseException:
        if not of_use(work):
            _discard(work)
        raise
    _discard(work)


def _mark(folder: Path) -> None:
    """Say in a folder of work that it is ours, before there is anything in it."""
    (folder / MARK).touch()
    sync(folder)


def _swap(temporary: Path, path: Path, listed: _Listed) -> None:
    """Put a whole folder in its place; what stood there comes back if that fails."""
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
            _remove(replaced, listed)
        raise
    _remove(replaced, listed)  # the new folder is in place; `recover` clears what stays


def _remove(folder: Path, listed: _Listed) -> None:
    """Remove what is ours in a folder, and the folder where nothing else is; a signal may come in
    the middle of it.
    """
    try:
        _unlink(folder, listed)
    finally:
        _unlink(folder, listed)


def _unlink(folder: Path, listed: _Listed) -> None:
    if folder.is_symlink():
        return  # what it leads to is another folder, whatever a manifest there lists
    with suppress(OSError, UserError):
        there = {entry.name for entry in os.scandir(folder) if entry.name != MARK}
        *others, last = (listed(folder) if there else {}) or [MARK]
        # Of the names that are listed those that stand in the folder: none of them is a path.
        for name in [MARK, *(name for name in others if name in there)]:
            with suppress(OSError):
                (folder / name).unlink()
        if [entry.name for entry in os.scandir(folder)] == [last]:
            sync(folder)  # what says that the others were ours goes after them
            (folder / last).unlink()
        folder.rmdir()


def _discard(work: Path) -> None:
    """Remove a folder of unfinished work, if it is there; what the disk refuses twice stays for
    `clear_unfinished`.
    """
    try:
        _empty(work)
    finally:  # a signal may have come in the middle of it
        _empty(work)


def _empty(work: Path) -> None:
    with suppress(OSError):
        for entry in work.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != MARK:
                with suppress(OSError):
                    entry.unlink()
        if [entry.name for entry in work.iterdir()] == [MARK]:
            sync(work)  # what says that the others were ours goes after them
            (work / MARK).unlink()
        work.rmdir()


def is_unfinished(path: Path) -> bool:
    """Whether a killed process of ours left this file or folder, of which nothing can be used."""
    if path.is_symlink() or not path.name.startswith(UNFINISHED):
        return False
    return (
        (path / MARK).is_file() or not any(path.iterdir()) if path.is_dir() else _is_temporary(path)
    )


def recover(
    path: Path,
    of_use: Callable[[Path], bool] = lambda left: False,
    listed: _Listed = nothing_of_ours,
) -> None:
    """Clear away what a killed process left of writing `path`, and put a folder back that it was
    about to replace.

    of_use: whether an unfinished folder holds work to go on with, and stays. listed: as of
    `whole_folder`. Raises UserError while another process is writing it, and for anything that is
    not ours in one of the places.
    """
    temporary, replaced = (path.with_name(prefix + path.name) for prefix in (UNFINISHED, REPLACED))
    if temporary.exists() or temporary.is_symlink():
        if not is_unfinished(temporary):
            raise UserError(
                f"{temporary} is not ours, and stands where {path} is made; move it to another name"
            )
        os.close(_lock(temporary, path))
        if not of_use(temporary):
            _discard(temporary)
    if replaced.exists() or replaced.is_symlink():
        refuse_foreign(replaced, listed)
        if path.exists():
            _remove(replaced, listed)
        else:
            replaced.rename(path)
            sync(path.parent)
    refuse_foreign(path, listed)


def clear_unfinished(folder: Path, listed: _Listed = nothing_of_ours) -> None:
    """Clear away what a killed process was writing or removing in `folder`. The caller holds a lock
    on it.

    listed: what is ours in a folder of which the removal was stopped.
    """
    for left in folder.glob(UNFINISHED + "*"):
        if not is_unfinished(left):
            _remove(left, listed)
        elif left.is_dir():
            _discard(left)
        else:
            left.unlink()


def remove_folder(path: Path, listed: _Listed) -> None:
    """Remove a folder so that a kill or a power cut in the middle does not leave half of it under
    its name.

    Raises UserError where it holds anything that is not ours, as `refuse_foreign`.
    """
    refuse_foreign(path, listed)
    doomed = path.with_name(UNFINISHED + path.name + "-removed")
    _remove(doomed, listed)
    path.rename(doomed)
    sync(path.parent)  # or its files might be gone from the disk before its name is
    _remove(doomed, listed)


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


def sync(path: Path) -> None:
    """Ask the operating system to put a file or a folder's entries on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an OSError the file's name where it has none: that of an open file's descriptor is not
    in it.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn what the user can mend (a full or failing disk, a missing permission, a wrong place)
    into a UserError.

    doing: what was being written, such as "saving runs/mine".
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = error.errno if isinstance(error, OSError) else _number_in(str(error))
        file = error.filename if isinstance(error, OSError) else None
        advice = _advice(number, None if file is None or str(file) in doing else str(file))
        if advice is None:
            raise
        raise UserError(f"{doing}: {advice}") from error


def is_of_the_disk(error: UserError) -> bool:
    """Whether the system failed to read what is there, so that another try may; a damaged file
    stays damaged.
    """
    return isinstance(error.__cause__, OSError) and not isinstance(
        error.__cause__, FileNotFoundError
    )


def _advice(number: int | None, file: str | None) -> str | None:
    """What happened and what to do, for an errno; None where the user cannot mend it."""
    at = f" at {file}" if file else ""
    if number in _FULL:
        return f"the disk is full{at}; free some space and run the same command again"
    if number in _FORBIDDEN:
        why = " (the disk can only be read)" if number == errno.EROFS else ""
        return (
            f"no permission to write{f' {file}' if file else ''}{why}; change that, or choose "
            "another place"
        )
    if number in (errno.ENOTDIR, errno.EEXIST):
        return f"a file stands where a folder is needed{at}; choose another place"
    if number in _NO_PLACE:
        return (
            f"the system takes no such path{at} ({os.strerror(number or 0)}); choose another place"
        )
    if number in _FAILING:
        return (
            f"the disk failed{at} ({os.strerror(number or 0)}); nothing that was whole before is "
            "lost. Run the same command again when the disk is in order, or choose another one"
        )
    return None


def _lock(folder: Path, path: Path) -> int:
    """Hold `folder`, in which `path` is being made, by a descriptor. Raises UserError where another
    process does.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UserError(
            f"{path}: another process is writing it; wait for that one or choose another folder"
        ) from error
    return descriptor


def _number_in(message: str) -> int | None:
    """safetensors raises no OSError but writes its number into a message: "... (os error 28)"."""
    found = re.search(r"os error (\d+)", message)
    return int(found[1]) if found else None
