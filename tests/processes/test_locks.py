"""A folder is one process's, whatever becomes of the file that says so."""

import errno
import fcntl
import threading
from pathlib import Path

import pytest

from normscope.processes.surroundings import LOCK, Held, hold, is_held


@pytest.mark.parametrize("again", [False, True])
def test_a_removed_lock_file_lets_nobody_in(again: bool, tmp_path: Path) -> None:
    with hold(tmp_path):
        (tmp_path / LOCK).unlink()
        if again:
            (tmp_path / LOCK).touch()
        assert is_held(tmp_path)
        with pytest.raises(Held), hold(tmp_path):
            pass
        assert (tmp_path / LOCK).exists() == again  # whoever is refused has written nothing
    assert not is_held(tmp_path)
    with hold(tmp_path):
        pass


def test_where_a_folder_cannot_be_locked_its_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over NFS, which takes locks of files that are open for writing alone."""
    lock = fcntl.flock

    def of_files(handle: object, operation: int) -> None:
        if isinstance(handle, int) and Path(f"/proc/self/fd/{handle}").resolve().is_dir():
            raise OSError(errno.EBADF, "Bad file descriptor")
        lock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", of_files)
    with hold(tmp_path):
        assert is_held(tmp_path)
        with pytest.raises(Held, match=r"held \([0-9]+ on "), hold(tmp_path):
            pass
    assert not is_held(tmp_path)


def test_who_only_looks_refuses_nobody(tmp_path: Path) -> None:
    """A shared lock that is let go of within the time of an answer; one that is kept for longer is
    refused.
    """
    (tmp_path / LOCK).touch()
    with (tmp_path / LOCK).open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        with pytest.raises(Held), hold(tmp_path):
            pass
        answered = threading.Timer(0.03, fcntl.flock, [looking, fcntl.LOCK_UN])
        answered.start()
        with hold(tmp_path):
            pass
        answered.join()
