"""Whatever happens to a process of a training, going on with another number of them ends in the undisturbed bytes."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from forked import Forked
from tiny import RUN, leftovers, options, result
from together import ended, failing, started

pytestmark = pytest.mark.sampled(one_in=3)

ROUNDS = int(os.environ.get("NORMSCOPE_FAULT_ROUNDS", "3"))
FAULTS = ("kill", "term", "exception", "full-disk")
WORDS = ("train", "--run", "run", *options(*RUN, "train.duration=30", "train.accumulation=4"))
UPDATES = 30


def last_update(metrics: Path) -> int:
    return metrics.read_bytes().count(b'"event": "update"') if metrics.is_file() else 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert [code for code, _, _ in ended(started(1, *WORDS))] == [0]
    return result(folder / "run", UPDATES)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_disturbed_runs_end_as_undisturbed_ones(
    number: int, undisturbed: tuple[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(number)
    faults = [FAULTS[number % len(FAULTS)], FAULTS[(number + 3) % len(FAULTS)]]
    for fault in faults:
        disturb(fault, chance)
    assert {code for code, _, _ in ended(started(chance.choice((1, 2, 3, 4)), *WORDS))} == {0}
    assert result(tmp_path / "run", UPDATES) == undisturbed
    assert leftovers(tmp_path / "run") == []


def disturb(fault: str, chance: random.Random) -> None:
    """Train in two to four processes, of which one meets the fault at a random moment."""
    size, begun = chance.randint(2, 4), last_update(Path("run/metrics.jsonl"))
    rank, at = chance.randrange(size), chance.randint(begun, UPDATES)
    if fault in ("exception", "full-disk"):
        rank = 0 if fault == "full-disk" else rank  # the others write nothing
        processes = started(size, *WORDS, program=failing, FAILS=f"{fault}:{at}", FAILS_RANK=str(rank))
    else:
        processes = started(size, *WORDS)
        _wait(processes[rank], at, begun)
        processes[rank].send_signal({"kill": signal.SIGKILL, "term": signal.SIGTERM}[fault])
    found = ended(processes)
    told = "".join(err for _, _, err in found)
    assert "Traceback" not in told or (fault == "exception" and "something of ours is broken" in told)
    if fault == "full-disk" and any(code for code, _, _ in found):
        assert {code for code, _, _ in found} == {2}


def _wait(process: Forked, update: int, begun: int) -> None:
    """Until about the update, or, where none was made since, for a moment in which the run is being opened."""
    deadline = time.monotonic() + 240
    while last_update(Path("run/metrics.jsonl")) < update and process.poll() is None:
        if update == begun or time.monotonic() > deadline:
            break
        time.sleep(0.005)
