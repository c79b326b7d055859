"""A run whose folder is renamed or removed while it trains ends in one line, and writes into no
other folder.
"""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from normscope.errors import UserError
from normscope.runs.run import train_run
from normscope.train import RunFolder
from tiny import SHORT, result, tiny


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("then", ["gone", "another", "removed"])
def test_a_folder_that_is_no_longer_there_is_named(then: str, tmp_path: Path) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"

    def move(event: dict[str, Any]) -> None:
        if event["event"] == "update" and event["update"] == 6:
            shutil.rmtree(run) if then == "removed" else run.rename(moved)
            if then == "another":
                (run / "checkpoints").mkdir(parents=True)

    with pytest.raises(
        UserError, match=rf"{run} was renamed or removed while its run was trained.*; put it back"
    ):
        train_run(tiny(*SHORT), run, listeners=[move])
    assert [path for path in run.rglob("*") if path.is_file()] == []
    if then == "gone":
        moved.rename(run)
        train_run(tiny(*SHORT), run)
        train_run(tiny(*SHORT), tmp_path / "whole")
        assert result(run, 12) == result(tmp_path / "whole", 12)


def test_a_disk_that_fails_is_not_said_to_have_lost_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*stats: os.stat_result) -> bool:
        raise OSError(errno.EIO, "the disk fails")

    def train() -> None:
        with RunFolder(tmp_path / "run").lock():
            monkeypatch.setattr(os.path, "samestat", fail)
            raise UserError("what was done could not be written")

    with pytest.raises(OSError, match="the disk fails"):
        train()
