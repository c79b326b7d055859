"""What a system call does to the files under one folder, by name: the vocabulary in which
recordings are written.
"""

import os
import platform
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .notified import Call

_X86_64 = {
    "read": 0, "write": 1, "open": 2, "stat": 4, "lstat": 6, "mmap": 9, "pread": 17, "pwrite": 18,
    "readv": 19, "writev": 20, "access": 21, "sendfile": 40, "flock": 73, "fsync": 74,
    "fdatasync": 75, "truncate": 76, "ftruncate": 77, "rename": 82, "mkdir": 83, "rmdir": 84,
    "creat": 85, "link": 86, "unlink": 87, "chmod": 90, "fchmod": 91, "getdents": 217,
    "openat": 257, "mkdirat": 258, "newfstatat": 262, "unlinkat": 263, "renameat": 264,
    "linkat": 265, "fchmodat": 268, "faccessat": 269, "fallocate": 285, "pwritev": 296,
    "renameat2": 316, "copy_file_range": 326, "statx": 332, "openat2": 437, "faccessat2": 439,
    "fchmodat2": 452,
}  # fmt: skip
_AARCH64 = {
    "flock": 32, "mkdirat": 34, "unlinkat": 35, "linkat": 37, "renameat": 38, "truncate": 45,
    "ftruncate": 46, "fallocate": 47, "faccessat": 48, "fchmod": 52, "fchmodat": 53, "openat": 56,
    "getdents": 61, "read": 63, "write": 64, "readv": 65, "writev": 66, "pread": 67, "pwrite": 68,
    "pwritev": 70, "sendfile": 71, "newfstatat": 79, "fsync": 82, "fdatasync": 83, "mmap": 222,
    "renameat2": 276, "copy_file_range": 285, "statx": 291, "openat2": 437, "faccessat2": 439,
    "fchmodat2": 452,
}  # fmt: skip
NUMBERS = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(platform.machine(), {})
_NAMES = {number: name for name, number in NUMBERS.items()}

CHANGING = (
    "create",
    "write",
    "truncate",
    "rename",
    "link",
    "remove",
    "make folder",
    "remove folder",
    "chmod",
)
"""Kinds of operations after which the disk is not as before."""
SYNCING = ("sync file", "sync folder")
LOOKING = ("open", "read", "list", "look", "lock", "open to write")

_AT_CWD = -100


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing done under the folder; paths are relative to it."""

    kind: str
    """One of CHANGING, SYNCING or LOOKING; "map to write", whose writes nobody sees; or "copy",
    likewise.
    """
    path: str
    to: str = ""
    """Of a renaming or a link: the new name."""
    offset: int = 0
    data: bytes = b""
    """What is written."""
    length: int = 0
    """Of a truncation: the file's length afterwards."""

    def __str__(self) -> str:
        size = f" ({len(self.data)} bytes at {self.offset})" if self.kind == "write" else ""
        return f"{self.kind} {self.path}{f' to {self.to}' if self.to else ''}{size}"


def operations_of(call: Call, folder: Path) -> list[Operation]:
    """What the call is about to do under `folder` (a real path); empty where it does nothing there,
    or will fail.
    """
    return _READERS[_NAMES[call.number]](_Reader(call, folder))


class _Reader:
    """Arguments of a call as paths and bytes."""

    def __init__(self, call: Call, folder: Path) -> None:
        self.call, self._root = call, str(folder)
        self.arguments = call.arguments

    def path(self, address: int, descriptor: int | None = None) -> str | None:
        """The path at `address` relative to the folder; None outside of it. descriptor: the
        argument of its folder.
        """
        given = self.call.text_at(self.arguments[address])
        if not given:
            return None
        start = _AT_CWD if descriptor is None else _signed(self.arguments[descriptor])
        process = f"/proc/{self.call.thread}"
        base = (
            ""
            if given.startswith("/")
            else _target(f"{process}/{'cwd' if start == _AT_CWD else f'fd/{start}'}")
        )
        return self._inside(os.path.normpath(f"{base}/{given}" if base else given))

    def opened(self, descriptor: int) -> str | None:
        """As `path`, of an open file; None where it has no name any more."""
        number = _signed(self.arguments[descriptor])
        try:
            return self._inside(_target(f"/proc/{self.call.thread}/fd/{number}"))
        except OSError:
            return None

    def real(self, path: str) -> Path:
        return Path(self._root, path)

    def exists(self, path: str) -> bool:
        return os.path.lexists(f"{self._root}/{path}")

    def position(self, descriptor: int) -> int:
        """Where the next write goes."""
        number = self.arguments[descriptor]
        lines = Path(f"/proc/{self.call.thread}/fdinfo/{number}").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        if int(fields["flags"], 8) & os.O_APPEND:
            return Path(f"/proc/{self.call.thread}/fd/{number}").stat().st_size
        return int(fields["pos"])

    def vector(self) -> bytes:
        """The bytes of a vector of buffers, in the second and third arguments."""
        _, address, count, *_ = self.arguments
        described = self.call.bytes_at(address, 16 * count)
        return b"".join(
            self.call.bytes_at(*struct.unpack_from("@QQ", described, 16 * n)) for n in range(count)
        )

    def _inside(self, path: str) -> str | None:
        if path == self._root:
            return "."
        return path[len(self._root) + 1 :] if path.startswith(f"{self._root}/") else None


def _target(link: str) -> str:
    return os.readlink(link)  # noqa: PTH115 - what is deleted or a socket has no path


def _signed(argument: int) -> int:
    return (argument & 0xFFFFFFFF) - ((argument & 0x80000000) << 1)


def _open(r: _Reader, path: str | None, flags: int) -> list[Operation]:
    if path is None:
        return []
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if not r.exists(path):
        made = flags & os.O_CREAT and r.real(path).parent.is_dir()
        return [Operation("create", path)] if made else [Operation("open", path)]
    if flags & os.O_EXCL and flags & os.O_CREAT:
        return [Operation("open", path)]
    if writes and flags & os.O_TRUNC:
        return [Operation("truncate", path)]
    return [Operation("open to write" if writes else "open", path)]


def _write(r: _Reader, data: Callable[[], bytes], offset: int | None = None) -> list[Operation]:
    path = r.opened(0)
    if path is None:
        return []
    return [
        Operation("write", path, offset=r.position(0) if offset is None else offset, data=data())
    ]


def _opened(kind: str) -> Callable[[_Reader], list[Operation]]:
    def read(r: _Reader) -> list[Operation]:
        path = r.opened(0)
        return [] if path is None else [Operation(kind, path)]

    return read


def _named(
    kind: str, address: int, descriptor: int | None = None
) -> Callable[[_Reader], list[Operation]]:
    """An operation on a path that must be there to be more than a look."""

    def read(r: _Reader) -> list[Operation]:
        path = r.path(address, descriptor)
        return [] if path is None else [Operation(kind if r.exists(path) else "look", path)]

    return read


def _make_folder(
    address: int, descriptor: int | None = None
) -> Callable[[_Reader], list[Operation]]:
    def read(r: _Reader) -> list[Operation]:
        path = r.path(address, descriptor)
        if path is None:
            return []
        possible = not r.exists(path) and r.real(path).parent.is_dir()
        return [Operation("make folder" if possible else "look", path)]

    return read


def _look(address: int, descriptor: int | None = None) -> Callable[[_Reader], list[Operation]]:
    def read(r: _Reader) -> list[Operation]:
        path = r.path(address, descriptor)
        return [] if path is None else [Operation("look", path)]

    return read


def _rename(
    kind: str, old: tuple[int, int | None], new: tuple[int, int | None]
) -> Callable[[_Reader], list[Operation]]:
    def read(r: _Reader) -> list[Operation]:
        path, to = r.path(*old), r.path(*new)
        if path is None or to is None:
            return []
        return [Operation(kind, path, to) if r.exists(path) else Operation("look", path)]

    return read


def _remove(r: _Reader) -> list[Operation]:
    path = r.path(1, 0)
    if path is None:
        return []
    if not r.exists(path):
        return [Operation("look", path)]
    return [Operation("remove folder" if r.arguments[2] & 0x200 else "remove", path)]


def _sync(r: _Reader) -> list[Operation]:
    path = r.opened(0)
    if path is None:
        return []
    return [
        Operation(
            "sync folder" if stat.S_ISDIR(r.real(path).lstat().st_mode) else "sync file", path
        )
    ]


def _truncate(r: _Reader, path: str | None) -> list[Operation]:
    return [] if path is None else [Operation("truncate", path, length=r.arguments[1])]


def _map(r: _Reader) -> list[Operation]:
    _, _, protection, flags, descriptor, _ = r.arguments
    if not protection & 2 or not flags & 1 or _signed(descriptor) < 0:
        return []
    path = r.opened(4)
    return [] if path is None else [Operation("map to write", path)]


def _openat2(r: _Reader) -> list[Operation]:
    (flags,) = struct.unpack("@Q", r.call.bytes_at(r.arguments[2], 8))
    return _open(r, r.path(1, 0), flags)


_READERS: dict[str, Callable[[_Reader], list[Operation]]] = {
    "open": lambda r: _open(r, r.path(0), r.arguments[1]),
    "creat": lambda r: _open(r, r.path(0), os.O_CREAT | os.O_WRONLY | os.O_TRUNC),
    "openat": lambda r: _open(r, r.path(1, 0), r.arguments[2]),
    "openat2": _openat2,
    "write": lambda r: _write(r, lambda: r.call.bytes_at(r.arguments[1], r.arguments[2])),
    "pwrite": lambda r: _write(
        r, lambda: r.call.bytes_at(r.arguments[1], r.arguments[2]), r.arguments[3]
    ),
    "writev": lambda r: _write(r, r.vector),
    "pwritev": lambda r: _write(r, r.vector, r.arguments[3]),
    **dict.fromkeys(("read", "pread", "readv"), _opened("read")),
    "getdents": _opened("list"),
    "flock": _opened("lock"),
    "mmap": _map,
    "sendfile": _opened("copy"),
    "copy_file_range": lambda r: (
        [Operation("copy", path)] if (path := r.opened(2)) is not None else []
    ),
    "fallocate": _opened("copy"),
    "fsync": _sync,
    "fdatasync": _sync,
    "truncate": lambda r: _truncate(r, r.path(0)),
    "ftruncate": lambda r: _truncate(r, r.opened(0)),
    "rename": _rename("rename", (0, None), (1, None)),
    "renameat": _rename("rename", (1, 0), (3, 2)),
    "renameat2": _rename("rename", (1, 0), (3, 2)),
    "link": _rename("link", (0, None), (1, None)),
    "linkat": _rename("link", (1, 0), (3, 2)),
    "unlink": _named("remove", 0),
    "unlinkat": _remove,
    "rmdir": _named("remove folder", 0),
    "mkdir": _make_folder(0),
    "mkdirat": _make_folder(1, 0),
    "chmod": _named("chmod", 0),
    "fchmod": _opened("chmod"),
    **dict.fromkeys(("fchmodat", "fchmodat2"), _named("chmod", 1, 0)),
    **dict.fromkeys(("stat", "lstat", "access"), _look(0)),
    **dict.fromkeys(("newfstatat", "statx", "faccessat", "faccessat2"), _look(1, 0)),
}
