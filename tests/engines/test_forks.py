"""Runs that are forked from a process that has imported torch are the runs that a process of their own would be."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from normscope.engines.forks import Fork, Forks
from normscope.engines.seam import AnyEngine, Job, Process, Processes
from normscope.settings.tables import to_toml
from tiny import SHORT, result, tiny

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux alone")
DEADLINE_SECONDS = 240


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """One server for all tests, of which the last ones end it: it takes seconds to import torch."""
    engine = Forks(2)
    yield engine
    engine.stop([])


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    def make(*settings: str, name: str = "run") -> Job:
        file = tmp_path / f"{name}.toml"
        file.write_text(to_toml(tiny(*SHORT, *settings)), encoding="utf-8")
        words = ["-m", "normscope", "train", str(file), "--run", str(tmp_path / name)]
        return Job(
            name=name,
            words=words,
            directory=Path.cwd(),
            folder=tmp_path / name,
            log=tmp_path / f"{name}.txt",
            threads=1,
        )

    return make


def ended(engine: AnyEngine, running: Fork | Process) -> int:
    begun = time.monotonic()
    while (code := engine.poll(running)) is None:
        assert time.monotonic() - begun < DEADLINE_SECONDS
        time.sleep(0.02)
    return code


def under_way(job: Job) -> None:
    begun, metrics = time.monotonic(), job.folder / "metrics.jsonl"
    while not metrics.is_file() or not metrics.read_bytes():
        assert time.monotonic() - begun < DEADLINE_SECONDS, job.log.read_text()
        time.sleep(0.02)


def test_a_forked_run_has_the_bits_of_one_from_nothing(forks: Forks, job: Callable[..., Job]) -> None:
    both, engine = [job(name="one"), job("seed=2", name="two")], Processes(1)
    from_nothing = engine.start(job(name="three"))
    assert [ended(forks, running) for running in [forks.start(one) for one in both]] == [0, 0]
    assert ended(engine, from_nothing) == 0
    one, two, three = (result(both[0].folder.with_name(name), 12) for name in ("one", "two", "three"))
    assert one == three != two
    assert both[0].log.read_text().splitlines()[-1] == str(both[0].folder)


def test_the_code_of_a_mistake_and_of_a_kill_come_back(forks: Forks, job: Callable[..., Job]) -> None:
    wrong = job(name="wrong")
    Path(wrong.words[3]).write_text("[model]\nwidht = 8\n", encoding="utf-8")
    assert ended(forks, forks.start(wrong)) == 2
    assert "widht" in wrong.log.read_text()
    killed = job("train.duration=100000", name="killed")
    running = forks.start(killed)
    under_way(killed)
    os.kill(running.pid, signal.SIGKILL)
    assert ended(forks, running) == -signal.SIGKILL


def test_a_log_that_cannot_be_written_starts_nothing(forks: Forks, job: Callable[..., Job], tmp_path: Path) -> None:
    nowhere = replace(job(), log=tmp_path / "none" / "x.txt")
    with pytest.raises(FileNotFoundError):
        forks.start(nowhere)


def test_without_its_server_a_run_saves_and_counts_as_killed(forks: Forks, job: Callable[..., Job]) -> None:
    long = job("train.duration=100000")
    running = forks.start(long)
    under_way(long)
    running.server._process.kill()
    assert ended(forks, running) == -signal.SIGKILL
    begun = time.monotonic()
    while "saved" not in long.log.read_text():
        assert time.monotonic() - begun < DEADLINE_SECONDS
        time.sleep(0.02)
    forks.stop([])


@pytest.mark.parametrize("make", [Forks, pytest.param(Processes, marks=pytest.mark.thorough)])
def test_what_is_stopped_has_saved(make: type[Forks] | type[Processes], job: Callable[..., Job]) -> None:
    engine: AnyEngine = make(1)
    long = job("train.duration=100000")
    running = engine.start(long)
    under_way(long)
    engine.stop([running])
    assert engine.poll(running) == 143
    assert "stopped by SIGTERM after update" in long.log.read_text()
    assert list((long.folder / "checkpoints").glob("step-*"))


PARENT = """
import sys, time
from pathlib import Path
from normscope.engines.forks import Forks
from normscope.engines.seam import Job
toml, run, log = map(Path, sys.argv[1:])
words = ["-m", "normscope", "train", str(toml), "--run", str(run)]
Forks(1).start(Job(name="run", words=words, directory=Path.cwd(), folder=run, log=log, threads=1))
time.sleep(600)
"""


@pytest.mark.thorough
def test_no_forked_run_outlives_a_command_that_is_killed(job: Callable[..., Job]) -> None:
    long = job("train.duration=100000")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, long.words[3], str(long.folder), str(long.log)])
    try:
        under_way(long)
    finally:
        parent.kill()
        parent.wait()
    begun = time.monotonic()
    while "stopped by SIGTERM" not in long.log.read_text():
        assert time.monotonic() - begun < DEADLINE_SECONDS
        time.sleep(0.02)
