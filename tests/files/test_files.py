"""Folders that appear whole or not at all: what is left by failures and kills, and what takes their
place.
"""

import errno
import fcntl
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from normscope.errors import UserError
from normscope.files import (
    REPLACED,
    UNFINISHED,
    clear_unfinished,
    disk_errors,
    recover,
    resumable_folder,
    whole,
    whole_folder,
    write_atomically,
)
from normscope.limits.ours import MARK


def staging_path(out):
    return out.with_name(UNFINISHED + out.name)


def replaced_path(out):
    return out.with_name(REPLACED + out.name)


def listed(folder):
    """What is ours in `out`; every test replaces that, and what happens to anything else is told in
    `test_ours.py`.
    """
    return {"new": "", "old": ""}


def half_made(out):
    staging_path(out).mkdir()
    (staging_path(out) / MARK).touch()
    (staging_path(out) / "half").write_text("half")


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def out(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("old")
    return out


def test_the_new_folder_replaces_the_old_one_at_the_end(out):
    with whole_folder(out, listed) as folder:
        (folder / "below").mkdir()
        (folder / "below" / "new").write_text("new")
        assert contents(out) == {"old": "old"}
    assert contents(out) == {"below/new": "new"}
    assert listing(out.parent) == ["out"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_is_left_of_a_failure(out, failure):
    def fail():
        with whole_folder(out, listed) as folder:
            (folder / "new").write_text("new")
            raise failure

    with pytest.raises(failure):
        fail()
    assert contents(out.parent) == {"out/old": "old"}
    assert listing(out.parent) == ["out"]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full; free some space"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EROFS, "no permission to write"),
        (errno.EMFILE, "no further file may be opened .*; allow more, as `ulimit -n 4096` does"),
        (errno.ENFILE, "no further file may be opened"),
        (errno.EIO, "the disk failed .*; nothing that was whole before is lost"),
    ],
)
def test_failures_of_the_file_system_are_told(out, number, message):
    doing = f"writing {out}"
    with (
        pytest.raises(UserError, match=f"{doing}: {message}"),
        disk_errors(doing),
        whole_folder(out, listed),
    ):
        raise OSError(number, os.strerror(number))
    assert listing(out.parent) == ["out"]


def test_the_old_folder_comes_back_when_the_last_rename_fails(out, monkeypatch):
    rename = type(out).rename

    def failing(self, target):
        if self == staging_path(out):
            raise OSError(errno.EIO, "no")
        return rename(self, target)

    monkeypatch.setattr(type(out), "rename", failing)
    with pytest.raises(OSError, match="no"), whole_folder(out, listed):
        pass
    assert contents(out) == {"old": "old"}
    assert listing(out.parent) == ["out"]


def test_recover_clears_a_folder_left_half_made(out):
    half_made(out)
    recover(out, listed=listed)
    assert listing(out.parent) == ["out"]


def test_recover_finishes_or_undoes_a_replacement(out):
    out.rename(replaced_path(out))
    recover(out, listed=listed)
    assert contents(out) == {"old": "old"}
    replaced_path(out).mkdir()
    recover(out, listed=listed)
    assert listing(out.parent) == ["out"]


def test_a_folder_being_written_is_left_alone(out):
    staging_path(out).mkdir()
    descriptor = os.open(staging_path(out), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(UserError, match="another process is writing it"):
        recover(out, listed=listed)
    with pytest.raises(UserError, match="another process is writing it"), whole_folder(out, listed):
        pass
    os.close(descriptor)
    recover(out, listed=listed)
    assert not staging_path(out).exists()


def test_a_place_below_a_file_is_told(out):
    message = "a file stands where a folder is needed"
    with (
        pytest.raises(UserError, match=message),
        disk_errors("writing"),
        whole_folder(out / "old" / "below"),
    ):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_without_permission_is_told(out):
    out.parent.chmod(0o500)
    try:
        message = "no permission to write"
        with (
            pytest.raises(UserError, match=message),
            disk_errors("writing"),
            whole_folder(out.parent / "new"),
        ):
            pass
    finally:
        out.parent.chmod(0o700)


@pytest.mark.parametrize("new_is_there", [False, True])
def test_a_replacement_half_done_is_undone_or_finished(out, new_is_there):
    """A kill between the two renames, and one after them."""
    out.rename(replaced_path(out))
    if new_is_there:
        out.mkdir()
        (out / "new").write_text("new")
    recover(out, listed=listed)
    assert listing(out.parent) == ["out"]
    assert contents(out) == ({"new": "new"} if new_is_there else {"old": "old"})


def test_what_a_run_clears_at_its_start_is_what_it_made_itself(out):
    half_made(out)
    removed = out.with_name(UNFINISHED + "out-removed")
    removed.mkdir()
    (removed / "old").touch()
    (out.parent / (UNFINISHED + "page.html-abcd1234")).touch()
    (out.parent / (UNFINISHED + "thesis")).write_text("of a user")
    clear_unfinished(out.parent, listed)
    assert listing(out.parent) == [UNFINISHED + "thesis", "out"]


def test_what_killed_writers_left_is_removed_by_the_next_one_and_what_is_being_written_stays(
    tmp_path,
):
    file = tmp_path / "page.json"
    endings = ("json-00000000", "json-00000001", "json-00000002", "json-mine", "js-00000000")
    abandoned, held, late, mine, other = (
        tmp_path / f"{UNFINISHED}page.{ending}" for ending in endings
    )
    for path in (abandoned, held, late, mine, other):
        path.write_text("half")
    with held.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        write_atomically(file, "whole")
    assert sorted(tmp_path.iterdir()) == sorted([file, held, mine, other])
    assert file.read_text() == "whole"


def test_a_name_that_a_link_or_a_folder_has_is_passed_over_and_stays(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    link, folder = (tmp_path / f"{UNFINISHED}page-0000000{number}" for number in range(2))
    link.symlink_to(mine)
    folder.mkdir()
    write_atomically(tmp_path / "page", "whole")
    assert (tmp_path / "page").read_text() == "whole"
    assert (mine.read_text(), link.is_symlink(), folder.is_dir()) == ("mine", True, True)


def test_writers_of_the_same_file_side_by_side_leave_one_of_theirs_whole(tmp_path):
    """Names are taken again and again, and none is taken from whoever writes."""
    program = (
        "import sys; from pathlib import Path; from normscope.files import write_atomically\n"
        "for turn in range(150): write_atomically(Path(sys.argv[1]), sys.argv[2] * 5000)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "page")]
    writers = [subprocess.Popen([*command, letter]) for letter in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert (tmp_path / "page").read_text() in [letter * 5000 for letter in "abc"]
    assert [file.name for file in tmp_path.iterdir()] == ["page"]


def test_a_write_looks_at_no_other_file_of_its_folder(tmp_path, monkeypatch):
    """Else ten thousand of them would take a hundred million looks."""
    for number in range(20):
        (tmp_path / f"other-{number}").touch()
    listed = []
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, lambda *asked: listed.append(asked) or [])
    write_atomically(tmp_path / "page", "whole")
    assert listed == []


def test_a_signal_while_the_temporary_file_is_made_leaves_nothing(tmp_path, monkeypatch):
    made = os.open

    def then_a_signal(*arguments, **options):
        made(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", then_a_signal)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "page.html", "text")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("renames", "left"), [(1, "old"), (2, "new")])
def test_a_signal_just_after_a_rename_leaves_one_whole_folder(out, monkeypatch, renames, left):
    rename, done = type(out).rename, []

    def then_a_signal(self, target):
        done.append(rename(self, target))
        if len(done) == renames:
            raise KeyboardInterrupt
        return done[-1]

    monkeypatch.setattr(type(out), "rename", then_a_signal)
    with pytest.raises(KeyboardInterrupt), whole_folder(out, listed) as folder:
        (folder / "new").write_text("new")
    assert listing(out.parent) == ["out"]
    assert (out / left).read_text() == left


@pytest.mark.parametrize("stopping", [KeyboardInterrupt, OSError(errno.EIO, "a failing disk")])
def test_what_was_replaced_goes_where_its_removal_was_stopped_once(out, monkeypatch, stopping):
    removing, stopped = os.unlink, []

    def unlink(path, **options):
        if os.path.basename(path) == "old" and not stopped:  # noqa: PTH119
            stopped.append(path)
            raise stopping
        removing(path, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    with suppress(KeyboardInterrupt), whole_folder(out, listed) as folder:
        (folder / "new").write_text("new")
    assert stopped
    assert listing(out.parent) == ["out"]
    assert contents(out) == {"new": "new"}


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_files_have_the_mode_of_the_umask_whoever_writes_them(tmp_path, umask):
    before = os.umask(umask)
    try:
        with whole_folder(tmp_path / "new") as folder:
            save_file({"weight": torch.zeros(2)}, folder / "model.safetensors")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new/model.safetensors").stat().st_mode) == 0o666 & ~umask


@pytest.mark.skipif(
    not Path("/proc/self").is_dir(), reason="a folder in which none can be made is Linux's /proc"
)
def test_where_no_folder_can_be_made_the_place_is_told() -> None:
    out = Path("/proc/normscope-corpus")
    with (
        pytest.raises(UserError, match="no folder can be made in /proc; choose another place"),
        whole_folder(out),
    ):
        pass
    with (
        pytest.raises(UserError, match="no folder can be made in /proc; choose another place"),
        resumable_folder(out, lambda left: False, lambda folder: {}),
    ):
        pass


@pytest.mark.parametrize("failing", ["_mark", "lock"])
def test_of_work_that_could_not_begin_nothing_stays(tmp_path, monkeypatch, failing):
    """What another command left of the same work does."""
    out = tmp_path / "out"

    def full(*arguments):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(whole, failing, full)
    with pytest.raises(OSError, match="no space"), resumable_folder(out, lambda left: True, listed):
        pass
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    half_made(out)
    monkeypatch.setattr(whole, "_mark", full)
    with pytest.raises(OSError, match="no space"), resumable_folder(out, lambda left: True, listed):
        pass
    assert (staging_path(out) / "half").read_text() == "half"
