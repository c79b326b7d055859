"""What sees errands through asks a fixed number of questions of each, however many there are."""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from normscope.engines import driving, slurm
from normscope.engines.choosing import SlurmSettings
from normscope.engines.driving import Errand, drive
from normscope.engines.seam import Engine, Future, Job
from normscope.engines.slurm import OnSlurm


def a_job(folder: Path, name: str) -> Job:
    return Job(
        name=name,
        words=["-c", "pass"],
        configuration="",
        directory=folder,
        folder=folder / "runs" / name,
        log=folder / "logs" / f"{name}.txt",
        threads=1,
    )


@dataclass(eq=False)
class Noted(Errand):
    """An errand of so many jobs, that notes what it is told. One that is compared with another is
    no errand to be looked for in a list.
    """

    job: Job
    jobs: int = 1
    told: list[str] = field(default_factory=list)

    def __eq__(self, other: object) -> bool:
        raise AssertionError("errands are compared")

    __hash__ = object.__hash__

    @property
    def folder(self) -> Path:
        return self.job.folder

    def next_job(self) -> Job:
        return self.job

    def begin(self, *, queued: bool) -> None:
        self.told.append("begin")

    def end(self, code: int) -> bool:
        self.jobs -= 1
        self.told.append(f"end {code}")
        return self.jobs > 0

    def fail(self, why: str) -> None:
        self.told.append(why)


@dataclass(eq=False)
class Finished(Future):
    def code(self) -> int | None:
        return 0


class AtOnce(Engine):
    """Does every job at once, some at a time."""

    def __init__(self, at_once: int | None) -> None:
        self.at_once = at_once
        self.most = 0

    def start(self, job: Job) -> Future:
        return Finished()

    def stop(self, futures: Sequence[Future]) -> None:
        assert not futures


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    """How often was asked who has a folder."""
    asked: Counter[Path] = Counter()

    def is_held(folder: Path) -> bool:
        asked[folder] += 1
        return False

    for name in ("_POLL_SECONDS", "_POLL_SHARE"):
        monkeypatch.setattr(driving, name, 0.0 if name == "_POLL_SECONDS" else 1e9)
    monkeypatch.setattr(driving, "is_held", is_held)
    return asked


@pytest.mark.parametrize("at_once", [None, 7])
def test_every_errand_is_asked_for_once_and_sees_all_its_jobs(
    at_once: int | None, no_pause: Counter[Path], tmp_path: Path
) -> None:
    errands = [Noted(a_job(tmp_path, f"{number}"), jobs=1 + number % 2) for number in range(500)]
    drive(errands, AtOnce(at_once), lambda: None)
    assert sum(no_pause.values()) == len(errands)
    assert {tuple(one.told) for one in errands[::2]} == {("begin", "end 0")}
    assert {tuple(one.told) for one in errands[1::2]} == {("begin", "end 0") * 2}


def test_one_that_cannot_begin_ends_alone(no_pause: Counter[Path], tmp_path: Path) -> None:
    engine = AtOnce(1)
    refused, other = (Noted(a_job(tmp_path, name)) for name in ("refused", "other"))
    start = engine.start

    def starts(job: Job) -> Future:
        if job is refused.job:
            raise OSError(12, "Cannot allocate memory")
        return start(job)

    engine.start = starts  # type: ignore[method-assign]
    drive([refused, other], engine, lambda: None)
    why = "its process could not be started: Cannot allocate memory"
    assert (refused.told, other.told) == (["begin", why], ["begin", "end 0"])


def counted(calls: Counter[str], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def counting(*given: Any, **more: Any) -> Any:
        calls[name] += 1
        return call(*given, **more)

    return counting


def test_an_array_is_written_down_in_one_file_and_what_is_queued_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    bin_folder, queue, count = (tmp_path / name for name in ("bin", "queue", "count"))
    bin_folder.mkdir()
    count.write_text("10")
    submit = f"n=$(($(cat {count}) + 1)); echo $n > {count}; echo Submitted batch job $n"
    for name, script in {"sbatch": submit, "squeue": f"cat {queue}", "srun": "false"}.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
    queue.write_text("".join(f"{array}_{task}\n" for array in (11, 12) for task in range(20)))
    calls: Counter[str] = Counter()
    for name in ("write_over", "_code_of", "_keep_code"):
        monkeypatch.setattr(slurm, name, counted(calls, name, getattr(slurm, name)))
    monkeypatch.setattr(slurm, "_LOOK_SECONDS", 0.0)
    jobs = [a_job(tmp_path, f"{number}") for number in range(40)]
    for again in (False, True):
        engine = OnSlurm(SlurmSettings(array_size=20))
        engine._queue = counted(calls, "squeue", engine._queue)  # type: ignore[method-assign]
        futures = [engine.start(job) for job in jobs]
        engine.look()
        assert {future.code() for future in futures[:1]} == {None}
        assert [future.number for future in futures[19:21]] == ["11_19", "12_0"]
        # Two arrays are two files, and the same command finds them again by one question.
        assert calls["write_over"] == 2
        assert (calls["_code_of"], calls["_keep_code"]) == (0, 0)
        assert calls["squeue"] == (2 if not again else 5)
