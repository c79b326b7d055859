"""Attacks in a process of their own, where nothing but what they need has been imported or
started.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.attack import attacked
from faults.notified import works_here
from forked import call
from tiny import finish

Attack = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs that one attack has made are found by the next."""
    return tmp_path_factory.mktemp("faults")


@pytest.fixture
def attack(place: Path) -> Attack:
    """Verdicts of an attack: its kind, a work's name, and which share of its faults."""
    if not works_here(place):
        pytest.skip(
            "the kernel does not let a process listen to its child's system calls (Linux 5.9 and "
            "seccomp do)"
        )

    def made(kind: str, work: str, **options: int) -> list[dict[str, Any]]:
        code, out, err = finish(call(attacked, place, kind, work, options))
        assert code == 0, err
        verdicts: list[dict[str, Any]] = json.loads(out.splitlines()[-1])
        assert verdicts
        return verdicts

    return made
