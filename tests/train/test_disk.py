"""A full disk: one message, exit code 2, nothing half-written, and the last checkpoint as it
was.
"""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from normscope.adapters.tensorboard import TensorBoardLog
from normscope.errors import UserError
from normscope.files import UNFINISHED, clearing, disk_errors, whole_folder, write_atomically
from normscope.runs import run
from normscope.runs.trained import load_run
from normscope.train import checkpoint
from tiny import SHORT, leftovers, result, steps, tiny


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes: what writes more fails as it would on a
    full disk.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("room", ["no checkpoint", "no metrics"])
def test_a_full_disk_while_training(
    unfinished: Callable[..., Path], short: Path, room: str
) -> None:
    folder = unfinished(6)
    metrics = (folder / "metrics.jsonl").stat().st_size
    size = metrics + 200 if room == "no metrics" else 20_000
    assert (
        (folder / "checkpoints/step-6/model.safetensors").stat().st_size > 20_000 > metrics + 2000
    )
    doing = "metrics.jsonl" if room == "no metrics" else "saving .*step-8"
    with (
        files_end_at(size),
        pytest.raises(UserError, match=rf"{doing}: the disk is full; free some space"),
    ):
        run.train_run(tiny(*SHORT), folder)
    assert steps(folder) == [4, 5, 6]
    assert not leftovers(folder)
    found = checkpoint.intact(folder / "checkpoints")
    assert found is not None
    assert found.update == 6
    run.train_run(tiny(*SHORT), folder)
    assert result(folder, 12) == result(short, 12)


def test_a_full_disk_at_the_beginning_leaves_a_folder_in_which_the_run_can_begin(
    tmp_path: Path, short: Path
) -> None:
    folder = tmp_path / "run"
    with (
        files_end_at(300),
        pytest.raises(UserError, match=r"creating the run folder .*: the disk is full"),
    ):
        run.train_run(tiny(*SHORT), folder)
    assert not leftovers(folder)
    run.train_run(tiny(*SHORT), folder)
    assert result(folder, 12) == result(short, 12)


def test_a_full_disk_under_tensorboard_is_one_message_too(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"writing into .*board: the disk is full"):
        log_into_a_full_disk(tmp_path / "board")


def log_into_a_full_disk(folder: Path) -> None:
    with files_end_at(30), TensorBoardLog(folder) as log:
        for update in range(100):
            log({"event": "update", "update": update, "updates": 100, "loss_nats": 1.0})


def test_any_file_of_a_checkpoint_may_be_the_one_that_does_not_fit(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every synchronisation with the disk in turn fails; before the rename there is no trace, after
    it a whole one.
    """
    real, failing = os.fsync, 0
    calls = 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    model = load_run(copy).model
    optimizer = torch.optim.SGD(model.parameters())
    for failing in range(1, 8):
        calls = 0
        tensors = checkpoint.contents(model, optimizer)
        with pytest.raises(UserError, match=r"saving .*step-99: the disk is full"):
            checkpoint.save(copy / "checkpoints", 99, tensors, {})
        assert not leftovers(copy)
        if failing < 7:
            assert steps(copy) == [4, 5, 8, 10, 12]
    checkpoint.Checkpoint(
        copy / "checkpoints/step-99"
    ).verify()  # only the folder above it was not synchronised
    assert calls == 7


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EACCES, "no permission to write there"),
        (errno.EROFS, "no permission to write there"),
        (errno.ENOTDIR, "a file stands where a folder is needed"),
    ],
)
def test_what_the_system_says_becomes_what_to_do(number: int, message: str) -> None:
    with pytest.raises(UserError, match=f"saving: {message}"), disk_errors("saving"):
        raise OSError(number, os.strerror(number), "there")


def test_what_is_not_the_users_to_mend_keeps_its_traceback() -> None:
    for error in (OSError(errno.EBADF, "bad"), ValueError("ours")):
        with pytest.raises(type(error)) as raised, disk_errors("saving"):
            raise error
        assert raised.value is error


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match=r"opening the run folder .*no permission"):
        run.train_run(tiny(*SHORT), tmp_path / "run")


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "state.json"
    write_atomically(file, "old")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            write_atomically(file, "new")
    assert file.read_text() == "old"
    assert not leftovers(tmp_path)


def test_a_folder_that_was_there_is_replaced_whole(tmp_path: Path) -> None:
    place, old = tmp_path / "vocabularies", tmp_path / "vocabularies/old"
    place.mkdir()
    old.touch()

    def fill(fails: Any) -> None:
        with whole_folder(place, lambda folder: {"old": ""}) as folder:
            (folder / "new").touch()
            if fails:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        fill(True)
    assert [path.name for path in tmp_path.rglob("*")] == ["vocabularies", "old"]
    fill(False)
    assert [path.name for path in tmp_path.rglob("*")] == ["vocabularies", "new"]


def test_what_a_checkpoint_counts_on_is_on_disk_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut keeps of a folder the names that it had when it was last synchronised."""
    run_folder, fsync, unlink = tmp_path / "a/b/run", os.fsync, clearing._unlink
    kept, seen = dict[Path, set[str]](), list[int]()

    def synchronise(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            kept[path] = {entry.name for entry in path.iterdir()}
        if path == run_folder / "checkpoints":
            seen.append(len(kept[path]))
            assert {
                "vocabularies",
                "config.toml",
                "environment.json",
                "metrics.jsonl",
                "checkpoints",
            } <= kept[run_folder]
            assert "a" in kept[tmp_path]
            assert kept[tmp_path / "a"] == {"b"}
            assert kept[tmp_path / "a/b"] == {"run"}

    def remove(path: Path, listed: Any) -> None:
        if (
            path.exists()
        ):  # nothing of a folder may go while the disk still has the folder's own name
            assert (
                path.name.removeprefix(UNFINISHED).removesuffix("-removed") not in kept[path.parent]
            )
        unlink(path, listed)

    monkeypatch.setattr(os, "fsync", synchronise)
    monkeypatch.setattr(clearing, "_unlink", remove)
    run.train_run(
        tiny(*SHORT, "train.duration=3", "train.checkpoint_every=1", "train.keep_checkpoints=1"),
        run_folder,
    )
    assert len(seen) > 3
