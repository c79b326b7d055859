"""Who of several processes is still there, told by a store and a clock of the test's own."""

import json
import os
import signal
import socket
import time

import pytest

import forked
from normscope.train.together.life_signs import LifeSigns, Lost, began, lives


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.values[key].encode() for key in keys]

    def add(self, key: str, amount: int) -> int:
        number = int(self.values.get(key, "0")) + amount
        self.values[key] = str(number)
        return number


def signs_of_two(store: Kept, now: list[float]) -> LifeSigns:
    """The first of two processes, of which the other one is on another machine."""
    signs = LifeSigns(store, 0, 2, silent_seconds=25.0, clock=lambda: now[0])
    store.set("who/1", json.dumps({"pid": 7, "host": "elsewhere", "began": ""}))
    store.set("beat/1", "1")
    signs.introduce()
    signs.begin()
    signs.end(orderly=True)
    return signs


def test_a_process_that_beats_is_there_and_one_that_does_not_is_late() -> None:
    store, now = Kept(), [0.0]
    signs = signs_of_two(store, now)
    assert signs.lost() is None
    assert {until(signs, now, second) for second in (10, 20, 24)} == {None}
    store.set("beat/1", "2")
    assert {until(signs, now, second) for second in (34, 44, 54, 59)} == {None}
    assert (
        until(signs, now, 60) == "process 1 of 2 (7 on elsewhere) has not answered for 26 seconds"
    )


def until(signs: LifeSigns, now: list[float], second: float) -> str | None:
    """What is known at that second."""
    now[0] = second
    lost = signs.lost()
    return None if lost is None else lost.words


def test_who_was_halted_itself_counts_from_when_it_goes_on() -> None:
    """Ctrl-Z halts all processes for as long as one likes; they go on one after the other."""
    store, now = Kept(), [0.0]
    signs = signs_of_two(store, now)
    assert signs.lost() is None
    assert {until(signs, now, second) for second in (3600, 3610, 3620, 3625)} == {None}
    assert until(signs, now, 3630) == (
        "process 1 of 2 (7 on elsewhere) has not answered for 30 seconds"
    )


def test_who_has_left_with_an_error_is_lost_and_who_is_done_is_not() -> None:
    store = Kept()
    signs = signs_of_two(store, [0.0])
    store.set("beat/1", "done")
    assert signs.lost() is None
    store.set("beat/1", "left")
    lost = signs.lost()
    assert lost is not None
    assert lost.words == "process 1 of 2 (7 on elsewhere) has ended"
    assert not lost.is_halted


def test_one_process_alone_tells() -> None:
    store = Kept()
    first = LifeSigns(store, 0, 2, silent_seconds=20.0)
    second = LifeSigns(store, 1, 2, silent_seconds=20.0)
    assert second.tells()
    assert not first.tells()


def test_a_process_that_was_killed_lives_no_more() -> None:
    process = forked.call(os.kill, os.getpid(), 0)
    process.wait(60)
    assert lives(os.getpid())
    assert not lives(process.pid)


@pytest.mark.parametrize("number_was_given_again", [False, True])
def test_who_is_halted_is_killed_unless_its_number_is_anothers(
    number_was_given_again: bool,
) -> None:
    process = forked.call(time.sleep, 600)
    try:
        process.send_signal(signal.SIGSTOP)
        before = "1" if number_was_given_again else began(process.pid)
        who = {"pid": process.pid, "host": socket.gethostname(), "began": before}
        store = Kept()
        store.set("who/1", json.dumps(who))
        store.set("beat/1", "1")
        signs = LifeSigns(store, 0, 2, silent_seconds=20.0)
        signs.introduce()
        signs.begin()
        signs.end(orderly=True)
        signs.end_halted(Lost(1, "it has ended", is_halted=False))
        assert process.poll() is None
        signs.end_halted(Lost(1, "it has not answered", is_halted=True))
        if number_was_given_again:
            assert process.poll() is None
        else:
            assert process.wait(60) == -signal.SIGKILL
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(60)
