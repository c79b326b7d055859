"""A pool that is ended by an exception gives up what its processes are making, and begins nothing
that is queued.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from normscope.processes.pool import ending_pool
from normscope.signals import Stopped

UNITS = 1000
"""Of each piece of work: ten seconds of them, so that a pool that waits for it does them all."""


def work(folder: Path, name: str) -> str:
    """Does its units, each a byte of its file, and clears up behind itself when it is given up."""
    with (folder / name).open("ab", buffering=0) as file:
        try:
            for _ in range(UNITS):
                file.write(b".")
                time.sleep(0.01)
        finally:
            (folder / f"{name}.cleared").touch()
    return name


def ignore_everything(folder: Path, name: str) -> str:
    """As a library of another language, which lets no Python run until it is done."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return work(folder, name)


def double(number: int) -> int:
    return 2 * number


def stop_in_its_midst(folder: Path, function: Callable[[Path, str], str]) -> None:
    """Raises what a signal raises, as soon as two of four pieces of work have begun."""
    with ending_pool(2) as pool:
        futures = [pool.submit(function, folder, str(number)) for number in range(4)]
        while sum(file.stat().st_size > 0 for file in folder.glob("[01]")) < 2:
            assert not any(future.done() for future in futures)
            time.sleep(0.01)
        raise Stopped(signal.SIGTERM)


def test_work_that_is_under_way_is_given_up_and_clears_up_behind_itself(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        stop_in_its_midst(tmp_path, work)
    done = {file.name: file.stat().st_size for file in tmp_path.glob("?")}
    assert done.keys() == {"0", "1"}
    assert all(0 < units < UNITS for units in done.values())
    assert {file.name for file in tmp_path.glob("*.cleared")} == {"0.cleared", "1.cleared"}
    assert not multiprocessing.active_children()


def test_work_that_hears_nothing_is_ended(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        stop_in_its_midst(tmp_path, ignore_everything)
    assert all(file.stat().st_size < UNITS for file in tmp_path.glob("?"))
    assert not multiprocessing.active_children()


def test_a_pool_that_nothing_ends_does_all_of_its_work() -> None:
    with ending_pool(2) as pool:
        futures = [pool.submit(double, number) for number in range(8)]
    assert [future.result() for future in futures] == [0, 2, 4, 6, 8, 10, 12, 14]


def test_what_the_terminal_sends_is_left_to_the_parent() -> None:
    with ending_pool(1) as pool:
        process = pool.submit(os.getpid).result()
        for number in (signal.SIGHUP, signal.SIGINT):
            os.kill(process, number)
        assert pool.submit(double, 3).result() == 6
