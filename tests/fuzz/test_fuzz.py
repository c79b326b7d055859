"""Changed files for every reader: refused in a line or read, never a traceback, a hang, or another
meaning of ours.

`make fuzz` does the same with new changes for an hour. Numbers are fixed here, so that a test finds
the same each time.
"""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs Hugging Face transformers")

import forked
from fuzz.cases import Case, Seeds, kept
from fuzz.readers import READERS
from fuzz.trials import tried

CASES = 8
"""Of each reader, times its share; in `make test` two."""


def _try_all(folder: str, result: str, cases: int) -> None:
    """In a process of its own, from which children are forked."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    seeds = Seeds(Path(folder))
    seeds.make(list(READERS))
    lines = [
        f"{outcome.case}: {outcome.verdict} {outcome.said}"
        for outcome in tried(_cases(cases), seeds.attempt)
        if outcome.is_finding
    ]
    Path(result).write_text("\n".join([*lines, "all were tried"]))


def _cases(cases: int) -> Iterator[Case]:
    yield from kept()
    for name, reader in READERS.items():
        yield from (Case(name, number) for number in range(cases * reader.share))


def test_no_changed_file_is_a_traceback_a_hang_or_another_meaning(tmp_path, request):
    cases = CASES if request.config.getoption("--whole") else 2
    process = forked.call(_try_all, str(tmp_path / "seeds"), str(tmp_path / "result"), cases)
    process.wait(timeout=900)
    assert (tmp_path / "result").read_text() == "all were tried"


def _leave_early(result: str) -> None:
    with closing(tried(range(9), lambda case: ("accepted", ""))) as outcomes:
        next(outcomes)
        working = len(multiprocessing.active_children())
    Path(result).write_text(f"{working} working, {len(multiprocessing.active_children())} left")


def test_who_stops_early_leaves_no_process_to_wait_for(tmp_path):
    """Python joins its children at its end, and the child would read for ever: `make fuzz` did not
    return.
    """
    process = forked.call(_leave_early, str(tmp_path / "result"))
    assert process.wait(timeout=60) == 0, process.said()
    assert (tmp_path / "result").read_text() == "1 working, 0 left"
