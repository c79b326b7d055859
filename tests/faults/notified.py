"""System calls of a child process told to this one before they happen: Linux' seccomp user
notification, by ctypes.

Patches of Python's functions would miss the writers that are not written in Python (safetensors and
tokenizers in Rust, torch and CTranslate2 in C++), and a library that is preloaded needs a compiler
and misses calls inside libc. Here the kernel itself stops the child at each call of a list, in
whatever language, thread or descendant it is made, and this process says whether it goes on or
fails with an error number.
"""

import contextlib
import ctypes
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import NoReturn

_LIBC = ctypes.CDLL(None, use_errno=True)
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
_NO_NEW_PRIVILEGES = 38
_SET_MODE_FILTER, _NEW_LISTENER, _NO_REPEAT_AFTER_SIGNALS = 1, 1 << 3, 1 << 5
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_FOURTH_ARGUMENT = 40
_SILENT = {
    "x86_64": ((262, 0x1000, 0, 1), (9, 1, 1, 0)),
    "aarch64": ((79, 0x1000, 0, 1), (222, 1, 1, 0)),
}
"""Calls that are told only with some flags, since each costs two changes of process: a look at an
open file, which has AT_EMPTY_PATH, and memory of a process alone, without MAP_SHARED. Number, flag,
and whether to tell with it and without.
"""
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that has not happened yet; its thread waits."""

    thread: int
    number: int
    arguments: tuple[int, ...]

    def bytes_at(self, address: int, length: int) -> bytes:
        """Memory of the process that calls."""
        with Path(f"/proc/{self.thread}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(length)

    def text_at(self, address: int) -> str:
        """A string that ends with a zero byte."""
        text = b""
        while b"\0" not in text:
            # Up to the end of a page, since the next one may not be there.
            start = address + len(text)
            text += self.bytes_at(start, 4096 - start % 4096)
        return os.fsdecode(text.partition(b"\0")[0])


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child came to its end."""

    code: int
    """Its exit code; -N where signal N killed it."""
    said: str
    """What it wrote on stdout and stderr."""


Answer = Callable[[Call], int | None]
"""The error number that a call shall fail with; None where it shall happen. It may kill or signal
the process.
"""


def run(
    work: Callable[[], object],
    said: Path,
    *,
    numbers: Collection[int] = (),
    answer: Answer = lambda call: None,
    begun: Callable[[int], None] = lambda pid: None,
    limit_seconds: float = 120,
) -> Ended:
    """Call `work` in a forked child whose output goes to the file `said`, and `answer` its calls of
    these numbers.

    begun: called with the child's process id when it listens. The processes that it starts are
    listened to as well, and waited for where they outlive it. Raises TimeoutError after
    `limit_seconds`, having killed the child.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        ours.close()
        _be_the_child(work, numbers, theirs, said)
    theirs.close()
    watched = select.poll()
    process = os.pidfd_open(pid)
    watched.register(process, select.POLLIN)
    code: int | None = None
    listener: int | None = None
    try:
        if numbers:
            _, (listener, *_), _, _ = socket.recv_fds(ours, 1, 1)
            watched.register(listener, select.POLLIN)
        begun(pid)
        deadline = time.monotonic() + limit_seconds
        while code is None or listener is not None:
            events = dict(watched.poll(1000 * max(0.0, deadline - time.monotonic())))
            if not events:
                raise TimeoutError(
                    f"not over after {limit_seconds} s: {said.read_text(errors='replace')[-2000:]}"
                )
            if listener is not None and listener in events:
                if events[listener] & select.POLLIN:
                    _answer_one(listener, answer)
                else:  # nobody is left who could call
                    watched.unregister(listener)
                    os.close(listener)
                    listener = None
            if process in events:
                watched.unregister(process)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        ours.close()
        os.close(process)
        if listener is not None:
            os.close(listener)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return Ended(code, said.read_text(encoding="utf-8", errors="replace"))


def works_here(place: Path) -> bool:
    """True where the kernel lets this process listen to a child's calls."""
    if sys.platform != "linux" or platform.machine() not in _SYS_SECCOMP:
        return False
    try:
        return run(lambda: None, place / "said", numbers=[0]).code == 0
    except (OSError, ValueError):
        return False


def _answer_one(listener: int, answer: Answer) -> None:
    buffer = bytearray(_NOTIFICATION.size)
    try:
        ioctl(listener, _RECEIVE, buffer)
    except (FileNotFoundError, InterruptedError):  # the caller was killed in the meantime
        return
    identity, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
    try:
        error = answer(Call(thread, number, tuple(arguments)))
    except (FileNotFoundError, ProcessLookupError):  # killed while we looked
        error = None
    reply = (
        _ANSWER.pack(identity, 0, -error, 0) if error else _ANSWER.pack(identity, 0, 0, _CONTINUE)
    )
    try:
        ioctl(listener, _SEND, reply)
    except FileNotFoundError:
        return


def _be_the_child(
    work: Callable[[], object], numbers: Collection[int], theirs: socket.socket, said: Path
) -> NoReturn:
    code: object = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
        if numbers:
            listener = _listen(numbers)
            socket.send_fds(theirs, [b"."], [listener])
            os.close(listener)
        theirs.close()
        work()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        leave(code)


def leave(code: object) -> NoReturn:
    """End a forked process as Python ends: what cannot be flushed makes the exit code 120."""
    try:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError as error:
                code = 120
                with contextlib.suppress(OSError):
                    os.write(2, f"{error}\n".encode())
    finally:
        os._exit(code if isinstance(code, int) else 1)


def _listen(numbers: Collection[int]) -> int:
    """From now on this thread and what it starts wait at each of these calls; returns the listening
    descriptor.
    """
    told = [
        number
        for number in sorted(numbers)
        if number not in [silent[0] for silent in _SILENT[platform.machine()]]
    ]
    steps = [(_LOAD, 0, 0, 0)]
    for number, flag, with_it, without in _SILENT[platform.machine()]:
        if number in numbers:
            answers = [(_RETURN, 0, 0, _NOTIFY if tell else _ALLOW) for tell in (with_it, without)]
            steps += [
                (_JUMP_IF_EQUAL, 0, 4, number),
                (_LOAD, 0, 0, _FOURTH_ARGUMENT),
                (_JUMP_IF_SET, 0, 1, flag),
                *answers,
            ]
    steps += [(_JUMP_IF_EQUAL, len(told) - place, 0, number) for place, number in enumerate(told)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    program = b"".join(
        struct.pack("=HBBI", code, jump, fall, value) for code, jump, fall, value in steps
    )
    kept = ctypes.create_string_buffer(program)
    described = struct.pack("@HP", len(steps), ctypes.addressof(kept))
    if _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    for flags in (
        _NEW_LISTENER | _NO_REPEAT_AFTER_SIGNALS,
        _NEW_LISTENER,
    ):  # the second one before Linux 5.19
        listener = _LIBC.syscall(
            _SYS_SECCOMP[platform.machine()], _SET_MODE_FILTER, flags, described
        )
        if listener >= 0:
            return int(listener)
    raise OSError(ctypes.get_errno(), "seccomp")
