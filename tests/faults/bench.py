"""Where works are disturbed: a desk of inputs, a folder that is laid out anew each time, and forked
commands.
"""

import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import torch

import unsynced
from drawing import drawn_once
from normscope.__main__ import main
from normscope.compare import compare as comparing, pool as grid_pool
from normscope.data import opening
from normscope.processes.surroundings import interpreter
from normscope.report.comparison import page
from normscope.runs import machine

from .desk import lay_out
from .disk import Tree, read_tree, write_tree
from .notified import Ended, leave, run
from .operations import Operation
from .watching import Decide, recorded, watched
from .works import Work

_Popen = subprocess.Popen


class Bench:
    """Runs works in forked children of this process, which has imported what they need."""

    def __init__(self, place: Path) -> None:
        """place: a folder of ours, where desk and work are made."""
        # What every child would find out anew, and what forked children must not have: threads.
        for late in (
            "warm",
            "tensorboard.compat.proto.event_pb2",
            "tensorboard.summary.writer.record_writer",
        ):
            import_module(late)
        os.fsync = unsynced.SYNCED
        torch.set_num_threads(1)
        machine.fast_matmul = lru_cache(machine.fast_matmul)  # type: ignore[assignment]
        opening._TOY_HELD_OUT = 12
        opening.toy_corpus = lru_cache(opening.toy_corpus)
        comparing._trial_seconds = lambda config, corpus: 0.01
        # torch keeps one whenever it seeds devices that it has not begun, and looks at every file
        # named in it.
        traceback.format_stack = lambda *_: []  # type: ignore[assignment]
        page.environment = lru_cache(page.environment)  # type: ignore[assignment]
        page.pictures = drawn_once(page.pictures)  # type: ignore[assignment, arg-type]
        self.place = place.resolve()
        self._streams: list[int] = []
        self.work, self._said = self.place / "work", self.place / "said"

    def start(self, work: Work) -> Tree:
        """What the work begins with; what it reads is there from now on."""
        for name in work.needs():
            lay_out(self.place / "desk", name)
        return read_tree(self.place / work.start) if work.start else ()

    def lay(self, tree: Tree) -> None:
        """Make the work's folder anew."""
        while self._streams:
            os.close(self._streams.pop())
        shutil.rmtree(self.work, ignore_errors=True)
        write_tree(self.work, tree)

    def state(self) -> Tree:
        return read_tree(self.work)

    def do(self, work: Work, *more: str, begun: Callable[[int], None] = lambda pid: None) -> Ended:
        """The command in the folder as it is, left alone; `begun` is called with its process id."""
        return run(self._command(work, more), self._said, begun=begun)

    def record(self, work: Work) -> tuple[Ended, list[Operation]]:
        return recorded(self._command(work, ()), self.work, self._said)

    def disturb(self, work: Work, decide: Decide, **options: Any) -> Ended:
        """options: as of `watched`."""
        return watched(self._command(work, ()), self.work, self._said, decide, **options)

    def undisturbed(self, work: Work) -> tuple[Tree, Tree, list[Operation]]:
        """What the command comes to when it is left alone, as far as two ends share it; its start
        and operations.
        """
        before = self.start(work)
        self.lay(before)
        self._do_here(work)
        wanted = work.result(self.state())
        self.lay(before)
        ended, operations = self.record(work)
        if (
            other := sorted({path for path, _ in set(work.result(self.state())) ^ set(wanted)})
            or ended.code
        ):
            raise RuntimeError(
                f"{work.name} left alone does not end twice in the same bytes: {other}, {ended}"
            )
        return wanted, before, operations

    def _do_here(self, work: Work) -> None:
        """In this process, so that children find imported and made what the command imports and
        makes once.
        """
        with self._said.open("wb") as said, _as_before():
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            with contextlib.suppress(SystemExit):
                self._command(work, ())()

    def _command(self, work: Work, more: Sequence[str]) -> Callable[[], None]:
        # Opened by what starts the command, as a shell does.
        streams = [(0, work.stdin, os.O_RDONLY), (1, work.stdout, os.O_WRONLY | os.O_CREAT)]
        opened = {
            number: os.open(self.place / path, flags) for number, path, flags in streams if path
        }
        self._streams += opened.values()
        ours = os.getpid()

        def command() -> None:
            os.chdir(self.place)
            for number, descriptor in opened.items():
                os.dup2(descriptor, number)
            if 0 in opened:
                sys.stdin = os.fdopen(
                    0, encoding="utf-8", closefd=False
                )  # the one of a forked process is another
            _fork_what_is_started(_Here if os.getpid() == ours else _Forked)
            sys.argv = ["normscope", *work.words, *more]
            main()

        return command


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """What a command changes of this process is as it was afterwards."""
    words, folder, variables = sys.argv, Path.cwd(), dict(os.environ)
    kept = [os.dup(number) for number in (0, 1, 2)]
    try:
        yield
        sys.stdout.flush()
    finally:
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.argv = words
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(folder)


def _fork_what_is_started(kind: "type[_Here | _Forked]") -> None:
    """Processes of pools begin as copies of this one, instead of importing everything anew."""
    ours = [*interpreter(), "-m", "normscope"]

    def popen(command: Sequence[str], **options: Any) -> Any:
        if list(command[: len(ours)]) == ours:
            return kind(
                command[len(ours) :], **{name: options[name] for name in ("stdin", "stdout", "env")}
            )
        return _Popen(command, **options)

    subprocess.Popen = popen  # type: ignore[assignment, misc]
    grid_pool.time = SimpleNamespace(monotonic=time.monotonic, sleep=_until_one_ends)  # type: ignore[assignment]
    context = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: context  # type: ignore[assignment]


def _until_one_ends(seconds: float) -> None:
    """Sleep, but no longer than until a process that this one started has ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    signal.sigtimedwait([signal.SIGCHLD], seconds)


class _Here:
    """As `_Forked`, in this process, which has imported afterwards what such a command imports."""

    stdin = None
    pid = -1

    def __init__(self, words: Sequence[str], **given: Any) -> None:
        self.returncode = 0
        with _as_before():
            _be_normscope(words, **given)

    def poll(self) -> int:
        return self.returncode


class _Forked:
    """What the pool of runs uses of `subprocess.Popen`, for commands of ours; it watches no pipe to
    its parent.
    """

    stdin = None

    def __init__(self, words: Sequence[str], **given: Any) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        code: object = 1
        try:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(
                    number,
                    signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler,
                )
            code = _be_normscope(words, **given)
        except BaseException:
            traceback.print_exc()
        finally:
            leave(code)

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        code = self._reap(0)
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _be_normscope(
    words: Sequence[str], *, stdin: IO[bytes], stdout: IO[bytes], env: dict[str, str]
) -> object:
    """The command in this process; its exit code."""
    for number, file in enumerate((stdin, stdout, stdout)):
        os.dup2(file.fileno(), number)
    os.environ.update(env)
    os.environ.pop("NORMSCOPE_LIFELINE", None)
    sys.argv = ["normscope", *words]
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    return 0
