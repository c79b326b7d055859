"""A disk that fails at any one operation of a run: one line that names the file, and no checkpoint
lost.
"""

import builtins
import errno
import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from normscope import files
from normscope.errors import UserError
from normscope.limits.ours import MARK
from normscope.runs import run
from normscope.train import RunFolder, checkpoint
from normscope.train.saving import Saving
from tiny import SHORT, result, steps, tiny

SETTINGS = (*SHORT, "train.duration=8", "train.checkpoint_every=3", "train.keep_checkpoints=1")


class Disk:
    """Operations on files under `root`, of which the one with number `failing` fails with
    `number`.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.failing, self.failing_line = root, -1, ""
        self.number, self.done = errno.EIO, list[str]()
        self.pruning, self.tolerated = False, set[int]()
        """Whether what is of no use is being removed, with which the run goes on where that cannot
        be, and when.
        """

    def operation(self, name: str, path: Any) -> None:
        path = f"/proc/self/fd/{path}" if isinstance(path, int) else os.fspath(path)
        path = str(Path(path).readlink()) if path.startswith("/proc/self/fd/") else path
        if not path.startswith(str(self.root)):
            return
        self.done.append(f"{name} {path}")
        # A mark that stays in a folder in its place says nothing there.
        if self.pruning or (name == "unlink" and path.endswith(MARK)):
            self.tolerated.add(len(self.done) - 1)
        if len(self.done) - 1 == self.failing or self.done[-1] == self.failing_line:
            raise OSError(self.number, os.strerror(self.number), path if name != "fsync" else None)


@contextmanager
def watched(root: Path) -> Iterator[Disk]:
    """Within it every operation that a run asks of the system goes by a `Disk`."""
    disk = Disk(root)

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            disk.operation(name, path)
            return real(path, *arguments, **options)

        return call

    def removing(real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            before, disk.pruning = disk.pruning, True
            try:
                real(*arguments)
            finally:
                disk.pruning = before

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Saving, "prune", removing(Saving.prune))
        # Of unfinished work: what the disk refuses is cleared away later.
        for module in (files.clearing, files.whole):
            for name in ("discard", "remove"):
                patch.setattr(module, name, removing(getattr(module, name)))
        for name in (
            "open",
            "fsync",
            "rename",
            "replace",
            "mkdir",
            "unlink",
            "rmdir",
            "scandir",
            "listdir",
            "stat",
        ):
            patch.setattr(os, name, wrapped(name, getattr(os, name)))
        patch.setattr(io, "open", wrapped("open", io.open))
        patch.setattr(builtins, "open", wrapped("open", builtins.open))
        yield disk


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped at update 6, with a checkpoint of 5, which is the best, and leftovers
    of a kill.
    """
    folder = tmp_path_factory.mktemp("half") / "run"

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "update" and event["update"] == 6:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        run.train_run(tiny(*SETTINGS), folder, listeners=[stop])
    (folder / "checkpoints/.unfinished-step-7").mkdir()
    (folder / ".unfinished-page-0123abcd").touch()
    return folder


KINDS = ("open", "stat", "scandir", "unlink", "fsync", "mkdir", "rename")


def test_an_operation_of_each_kind_fails_in_one_line_and_costs_no_checkpoint(
    half: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(half, whole)
    with watched(whole) as disk:
        run.train_run(tiny(*SETTINGS), whole)
    wanted, operations, tolerated = result(whole, 8), disk.done, disk.tolerated
    dice, notes = random.Random(5), list[str]()
    # Folders are removed alone that are of no use.
    assert {n for n, line in enumerate(operations) if line.startswith("rmdir")} <= tolerated
    for kind in KINDS:
        folder = Path(shutil.copytree(half, tmp_path / kind))
        numbers = [
            n for n, line in enumerate(operations) if line.startswith(kind) and n not in tolerated
        ]
        with watched(folder) as disk:
            disk.failing, disk.number = (
                dice.choice(numbers),
                dice.choice((errno.EIO, errno.ENOSPC, errno.EROFS)),
            )
            with pytest.raises(UserError) as error:
                run.train_run(tiny(*SETTINGS), folder, say=notes.append)
        assert str(folder) in str(error.value)
        assert "\n" not in str(error.value)
        assert notes == []
        assert checkpoint.intact(folder / "checkpoints") is not None
        assert 5 in steps(folder)
    run.train_run(tiny(*SETTINGS), folder)
    assert result(folder, 8) == wanted


def test_an_old_checkpoint_that_cannot_be_removed_is_a_note(half: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(half, tmp_path / "run"))
    notes = list[str]()
    with watched(folder) as disk:
        disk.failing_line = f"rename {folder}/checkpoints/step-6"
        run.train_run(tiny(*SETTINGS), folder, say=notes.append)
    wanted = (
        "an old checkpoint could not be removed ([Errno 5] Input/output error: "
        f"'{folder}/checkpoints/step-6')"
    )
    assert [wanted in note for note in notes] == [
        True,
        True,
    ]  # when the next was saved, and at the end
    assert RunFolder(folder).is_finished
    assert steps(folder) == [5, 6, 8]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("kind", ["rename", "fsync", "rmdir"])
def test_an_old_checkpoint_that_could_not_be_removed_once_goes_later(
    half: Path, tmp_path: Path, kind: str
) -> None:
    whole, folder = (Path(shutil.copytree(half, tmp_path / name)) for name in ("whole", "run"))
    with watched(whole) as disk:
        run.train_run(tiny(*SETTINGS), whole)
    failing = next(
        n for n, line in enumerate(disk.done) if n in disk.tolerated and line.startswith(kind)
    )
    with watched(folder) as disk:
        disk.failing = failing
        run.train_run(tiny(*SETTINGS), folder)
    assert disk.done[failing].startswith(kind)
    assert steps(folder) == [5, 8]
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"step-5", "step-8"}


@pytest.mark.parametrize("place", ["/proc/x", "/proc/x/y", f"/tmp/{'x' * 300}", "/dev/null/x"])
def test_a_place_where_no_folder_can_be_is_one_line(place: str) -> None:
    with pytest.raises(UserError, match=r"choose another") as error:
        run.train_run(tiny(*SETTINGS), Path(place))
    assert place[:9] in str(error.value) or "made in /proc;" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_was_removed_is_gone_from_the_disk_before_the_run_says_that_it_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut would bring it back otherwise, and nobody clears up in a finished run."""
    kept, real = [set[str]()], files.sync

    def sync(path: Path) -> None:
        real(path)
        if path == tmp_path / "checkpoints":
            kept[0] = {entry.name for entry in path.iterdir()}

    def listen(event: dict[str, object]) -> None:
        if event["event"] == "finished":
            assert kept[0] == {f"step-{update}" for update in steps(tmp_path)}
            kept.append(set())

    monkeypatch.setattr(files, "sync", sync)
    run.train_run(tiny(*SETTINGS), tmp_path, listeners=[listen])
    assert len(kept) == 2
