"""What asks for an end: noted in a run, one line everywhere else, and nothing where the user wants
the run to go on.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from normscope import signals
from normscope.signals import HANDLED, Stopped, StopRequest, ending_in_one_line, raising_stopped


@pytest.fixture(autouse=True)
def _as_a_shell_starts_us() -> Iterator[None]:
    """Whatever started the tests may have them ignore some signal."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in HANDLED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", HANDLED)
def test_a_request_is_noted_and_what_was_there_before_acts_on_a_second_one(number: int) -> None:
    with raising_stopped():
        with StopRequest() as request:
            os.kill(os.getpid(), number)
            assert request.signal_number == number
            with pytest.raises(Stopped) as stop:
                os.kill(os.getpid(), number)
        assert stop.value.exit_code == 128 + number
    assert all(signal.getsignal(n) == signal.SIG_DFL for n in HANDLED)


def test_a_process_that_outlives_its_terminal_is_not_asked_by_it() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    with raising_stopped(), StopRequest() as request:
        os.kill(os.getpid(), signal.SIGHUP)
        assert request.signal_number is None
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_an_error_that_the_end_of_an_import_became_is_an_end_too() -> None:
    def half_an_import() -> None:
        with raising_stopped():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except BaseException:
                raise ImportError("half of it") from None

    with pytest.raises(Stopped):
        half_an_import()


class Swallowing:
    """Sends a signal where Python swallows what its handler raises."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


class Failing:
    def __del__(self) -> None:
        raise RuntimeError("told to the hook for what cannot be raised")


@pytest.mark.parametrize("again_seconds", [0.0, 0.02])
def test_a_signal_in_a_destructor_stops_the_work_all_the_same(
    monkeypatch, again_seconds: float
) -> None:
    """With no wait it arrives again while the hook still runs that was told of the first one."""
    monkeypatch.setattr(signals, "_AGAIN_SECONDS", again_seconds)
    went_on = []

    def work() -> None:
        with raising_stopped():
            Swallowing()
            time.sleep(60)
            went_on.append(True)

    with pytest.raises(Stopped):
        work()
    assert not went_on
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_signal_while_python_tells_of_an_error_it_swallowed_stops_the_work(monkeypatch) -> None:
    told, went_on = [], []

    def interrupted_hook(what: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        told.append(what)

    def work() -> None:
        with raising_stopped():
            Failing()
            time.sleep(60)
            went_on.append(True)

    monkeypatch.setattr(sys, "unraisablehook", interrupted_hook)
    with pytest.raises(Stopped):
        work()
    assert len(told) == 1
    assert not went_on


def test_work_that_is_over_before_the_signal_is_sent_again_is_stopped_too(monkeypatch) -> None:
    monkeypatch.setattr(signals, "_AGAIN_SECONDS", 60.0)
    with pytest.raises(Stopped), raising_stopped():
        Swallowing()


def test_no_signal_is_sent_again_after_the_end(monkeypatch) -> None:
    monkeypatch.setattr(signals, "_AGAIN_SECONDS", 0.0)
    arrived = []
    signal.signal(signal.SIGTERM, lambda number, frame: arrived.append(number))
    sender = signals._Sender()
    sender._send(signal.SIGTERM)
    assert arrived == [signal.SIGTERM]
    sender.end()
    sender._send(signal.SIGTERM)
    assert arrived == [signal.SIGTERM]


def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(ImportError), ending_in_one_line():
        raise ImportError


def test_a_forked_process_ends_by_the_signal_itself() -> None:
    with raising_stopped():
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_a_thread_that_can_handle_no_signals_does_without() -> None:
    noted = []

    def work() -> None:
        with StopRequest() as request:
            noted.append(request.signal_number)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert noted == [None]


SIGNAL_AT_IMPORT = """
import os, signal, sys
module, number, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]

class Sender:
    def find_spec(name, path, target=None):
        if name == module:
            os.kill(os.getpid(), number)

signal.signal(number, signal.SIG_DFL)
sys.meta_path.insert(0, Sender)
from normscope.__main__ import main
sys.argv = ["normscope", *words]
main()
"""


@pytest.mark.parametrize(
    ("number", "module", "words", "said"),
    [
        (signal.SIGTERM, "typer", ["train"], "no file is left half written"),
        (signal.SIGHUP, "torch", ["train"], "run the same command to resume"),
        (signal.SIGINT, "normscope.theory", ["predict", "pre-ln"], "no file is left half written"),
    ],
)
def test_a_signal_at_the_start_is_one_line(
    tmp_path, number: int, module: str, words: list[str], said: str
) -> None:
    program = [sys.executable, "-c", SIGNAL_AT_IMPORT, module, str(number), *words]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (128 + number, ""), done.stderr
    assert done.stderr == f"stopped by {signal.Signals(number).name}; {said}\n"
    assert not list(tmp_path.iterdir())
