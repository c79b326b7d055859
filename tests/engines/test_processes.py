"""Runs as processes of this machine: how they end, what they leave, and that none outlives the command."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from normscope.engines.seam import Job, Processes
from normscope.settings.tables import to_toml
from tiny import SHORT, tiny

DEADLINE_SECONDS = 240


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


def ended(engine: Processes, running: "subprocess.Popen[bytes]") -> int:
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


def test_the_code_of_a_mistake_and_of_a_kill_come_back(job: Callable[..., Job]) -> None:
    engine = Processes(1)
    wrong = job(name="wrong")
    Path(wrong.words[3]).write_text("[model]\nwidht = 8\n", encoding="utf-8")
    assert ended(engine, engine.start(wrong)) == 2
    assert "widht" in wrong.log.read_text()
    killed = job("train.duration=100000", name="killed")
    running = engine.start(killed)
    under_way(killed)
    running.kill()
    assert ended(engine, running) == -signal.SIGKILL


def test_a_log_that_cannot_be_written_starts_nothing(job: Callable[..., Job], tmp_path: Path) -> None:
    nowhere = replace(job(), log=tmp_path / "none" / "x.txt")
    with pytest.raises(FileNotFoundError):
        Processes(1).start(nowhere)


def test_what_is_stopped_has_saved(job: Callable[..., Job]) -> None:
    engine = Processes(1)
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
from normscope.engines.seam import Job, Processes
toml, run, log = map(Path, sys.argv[1:])
words = ["-m", "normscope", "train", str(toml), "--run", str(run)]
Processes(1).start(Job(name="run", words=words, directory=Path.cwd(), folder=run, log=log, threads=1))
time.sleep(600)
"""


@pytest.mark.thorough
def test_no_run_outlives_a_command_that_is_killed(job: Callable[..., Job]) -> None:
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
