"""What is recorded is what happens: writers in C, Rust and Python, threads and further
processes.
"""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import unsynced
from faults.disk import Replay, read_tree
from faults.notified import works_here
from faults.operations import Operation
from faults.places import Place, taken
from faults.watching import recorded, watched


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if not works_here(tmp_path):
        pytest.skip(
            "the kernel does not let a process listen to its child's system calls (Linux 5.9 and "
            "seccomp do)"
        )
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def in_a_thread(folder: Path) -> None:
    thread = threading.Thread(target=(folder / "file").write_text, args=("text",))
    thread.start()
    thread.join()


def appended(folder: Path) -> None:
    for text in ("one", "two"):
        with (folder / "log").open("a") as file:
            file.write(text)
    os.truncate(folder / "log", 5)


def moved(folder: Path) -> None:
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").write_bytes(b"text")
    (folder / "a").rename(folder / "c")
    (folder / "c/b/file").replace(folder / "file")
    (folder / "other").write_bytes(b"")
    (folder / "other").unlink()
    (folder / "c/b").rmdir()


WRITERS: dict[str, Callable[[Path], object]] = {
    "python": moved,
    "appending": appended,
    "safetensors": lambda folder: save_file({"x": torch.arange(9.0)}, folder / "file"),
    "torch": lambda folder: torch.save({"x": torch.arange(9.0)}, folder / "file"),
    "numpy": lambda folder: np.arange(9.0).tofile(folder / "file"),
    "thread": in_a_thread,
    "process": lambda folder: subprocess.run(
        [sys.executable, "-c", "open('file', 'w').write('text')"], cwd=folder, check=True
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_was_recorded_makes_the_same_folder(folder: Path, tmp_path: Path, writer: str) -> None:
    ended, operations = recorded(lambda: WRITERS[writer](folder), folder, tmp_path / "said")
    assert ended.code == 0, ended.said
    assert Replay((), operations).end == read_tree(folder) != ()


def test_a_writer_that_nobody_can_follow_is_noted(folder: Path, tmp_path: Path) -> None:
    def mapped() -> None:
        np.memmap(folder / "file", dtype="u1", mode="w+", shape=9)[:] = 1

    _, operations = recorded(mapped, folder, tmp_path / "said")
    assert "map to write" in [operation.kind for operation in operations]


@pytest.mark.parametrize("kind", ["create", "write", "sync file", "rename", "sync folder", "look"])
def test_an_operation_fails_with_the_error_it_is_given(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    def write() -> None:
        with (folder / "new").open("wb") as file:
            file.write(b"text")
            file.flush()
            unsynced.SYNCED(file.fileno())
        (folder / "new").rename(folder / "file")
        descriptor = os.open(folder, os.O_RDONLY)
        unsynced.SYNCED(descriptor)
        (folder / "file").stat()

    def decide(place: Place, operation: Operation) -> int | None:
        return errno.EDQUOT if operation.kind == kind else None

    ended = watched(write, folder, tmp_path / "said", decide)
    assert ended.code == 1
    assert os.strerror(errno.EDQUOT) in ended.said
    assert watched(write, folder, tmp_path / "said", lambda place, operation: None).code == 0


def test_of_operations_that_do_the_same_the_first_and_the_last_are_taken() -> None:
    """Numbers, random names and runs of a grid apart: writes of one log are two faults, another
    file is another.
    """
    done = [Operation("write", "run/metrics.jsonl")] * 3
    done += [
        Operation("create", f"run/.unfinished-a.json-{name}")
        for name in ("6bef1317", "0badcafe", "12345678")
    ]
    done += [Operation("look", "run"), Operation("rename", "run/step-5", "run/step-7")]
    done += [
        Operation("create", f"runs/{arm}_seed-1/.tmp{name}")
        for arm in "abc"
        for name in ("Ab3dEf", "xyzXYZ")
    ]
    kept = [0, 3, 6, 7, 8, 2, 5, 13]
    alike = taken(done, alike=True)
    assert list(alike) == kept
    assert alike[2] == Place("write run/metrics.jsonl", 3)
    assert [alike[number].nth for number in kept] == [1, 1, 1, 1, 1, 3, 3, 6]
    assert list(taken(done, alike=False)) == list(range(14))


def test_an_operation_is_found_again_where_others_come_before_it(
    folder: Path, tmp_path: Path
) -> None:
    def write(first: str, then: str) -> None:
        for name in (first, then):
            (folder / name).write_text("text")

    _, operations = recorded(lambda: write("a", "b"), folder, tmp_path / "said")
    (place,) = (
        place
        for number, place in taken(operations, alike=True).items()
        if str(operations[number]).startswith("write b")
    )

    def decide(at: Place, operation: Operation) -> int | None:
        return errno.ENOSPC if at == place else None

    for file in folder.iterdir():
        file.unlink()
    ended = watched(lambda: write("b", "a"), folder, tmp_path / "said", decide)
    assert os.strerror(errno.ENOSPC) in ended.said
    assert [file.name for file in folder.iterdir()] == ["b"]
