import errno
import fcntl
import os

import pytest

from normscope.data.staging import recover, replace_folder, replaced_path, staging_path
from normscope.errors import UserError


def contents(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def out(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("old")
    return out


def test_the_new_folder_replaces_the_old_one_at_the_end(out, listing):
    with replace_folder(out) as folder:
        (folder / "below").mkdir()
        (folder / "below" / "new").write_text("new")
        assert contents(out) == {"old": "old"}
    assert contents(out) == {"below/new": "new"}
    assert listing(out.parent) == ["out"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_is_left_of_a_failure(out, failure, listing):
    def fail():
        with replace_folder(out) as folder:
            (folder / "new").write_text("new")
            raise failure

    with pytest.raises(failure):
        fail()
    assert contents(out.parent) == {"out/old": "old"}
    assert listing(out.parent) == ["out"]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full .* free now"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EROFS, "not writable"),
        (errno.EIO, "cannot be written"),
    ],
)
def test_failures_of_the_file_system_are_told(out, number, message, listing):
    with pytest.raises(UserError, match=message) as told, replace_folder(out):
        raise OSError(number, os.strerror(number))
    assert str(out.parent) in str(told.value)
    assert listing(out.parent) == ["out"]


def test_the_old_folder_comes_back_when_the_last_rename_fails(out, monkeypatch, listing):
    rename = type(out).rename

    def failing(self, target):
        if self == staging_path(out):
            raise OSError(errno.EIO, "no")
        return rename(self, target)

    monkeypatch.setattr(type(out), "rename", failing)
    with pytest.raises(UserError, match="cannot be written"), replace_folder(out):
        pass
    assert contents(out) == {"old": "old"}
    assert listing(out.parent) == ["out"]


def test_recover_clears_a_folder_left_half_made(out, listing):
    staging_path(out).mkdir()
    (staging_path(out) / "half").write_text("half")
    recover(out)
    assert listing(out.parent) == ["out"]


def test_recover_finishes_or_undoes_a_replacement(out, listing):
    out.rename(replaced_path(out))
    recover(out)
    assert contents(out) == {"old": "old"}
    replaced_path(out).mkdir()
    recover(out)
    assert listing(out.parent) == ["out"]


def test_a_folder_being_written_is_left_alone(out):
    staging_path(out).mkdir()
    descriptor = os.open(staging_path(out), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(UserError, match="another process is writing it"):
        recover(out)
    os.close(descriptor)
    recover(out)
    assert not staging_path(out).exists()


def test_a_place_below_a_file_is_told(out):
    with pytest.raises(UserError, match="cannot be written"), replace_folder(out / "old" / "below"):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_without_permission_is_told(out):
    out.parent.chmod(0o500)
    try:
        with pytest.raises(UserError, match="not writable"), replace_folder(out.parent / "new"):
            pass
    finally:
        out.parent.chmod(0o700)
