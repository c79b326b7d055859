"""Uninterrupted tiny runs, made once, and copies of them to damage."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from normscope.runs import run
from normscope.train import Interrupted
from tiny import RUN, SHORT, tiny


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of `tiny(*RUN)`."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    run.train_run(tiny(*RUN), folder)
    return folder


@pytest.fixture(scope="session")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of `tiny(*SHORT)`, with checkpoints 4, 5, 8, 10 and 12. Not to be changed: see
    `damaged`.
    """
    folder = tmp_path_factory.mktemp("short") / "run"
    run.train_run(tiny(*SHORT), folder)
    return folder


@pytest.fixture
def copy(short: Path, tmp_path: Path) -> Path:
    """A copy of `short` to do with as one likes."""
    return Path(shutil.copytree(short, tmp_path / "copy"))


@pytest.fixture
def unfinished(tmp_path: Path) -> Callable[..., Path]:
    """A run of `tiny(*SHORT)` stopped by a SIGINT in the given update."""

    def make(update: int, *settings: str, number: int = signal.SIGINT) -> Path:
        def interrupt(event: dict[str, object]) -> None:
            if event["event"] == "update" and event["update"] == update:
                os.kill(os.getpid(), number)

        folder = tmp_path / f"stopped-{update}-{number}"
        with pytest.raises(Interrupted) as stop:
            run.train_run(tiny(*SHORT, *settings), folder, listeners=[interrupt])
        assert stop.value.exit_code == 128 + number
        return folder

    return make
