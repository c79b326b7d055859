"""A folder that one command holds."""

import errno
from pathlib import Path

import pytest

from normscope.engines.alone import alone
from normscope.errors import UserError


@pytest.mark.parametrize("work", ["comparison", "search"])
def test_a_second_command_is_told_what_stands_in_the_folder(work: str, tmp_path: Path) -> None:
    with (
        alone(tmp_path, work),
        pytest.raises(UserError, match=f"is at work on the {work} in"),
        alone(tmp_path, work),
    ):
        pytest.fail("held twice")


def rename_and_fail(folder: Path) -> None:
    with alone(folder, "search"):
        folder.rename(folder.with_name("elsewhere"))
        raise FileNotFoundError(errno.ENOENT, "No such file", "page.html")


def test_what_fails_after_the_folder_has_moved_says_that_it_has_moved(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was renamed or removed"):
        rename_and_fail(tmp_path / "out")


def test_what_fails_in_a_folder_that_stays_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), alone(tmp_path / "out", "search"):
        raise FileNotFoundError(errno.ENOENT, "No such file", "page.html")
