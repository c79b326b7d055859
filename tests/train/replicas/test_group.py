"""What the processes of a training tell each other, and what becomes of them when one of them is in trouble."""

import json
import signal
import time
from pathlib import Path

import pytest

from forked import Forked
from normscope.errors import UserError
from normscope.processes import surroundings
from normscope.train.group import ALONE, Group, joined
from tiny import RUN, options
from together import ended, failing, started

WORDS = ("train", "--run", "run", *options(*RUN))


def test_alone_everything_is_its_own() -> None:
    assert (ALONE.first, ALONE.size, ALONE.gather(3)) == (True, 1, [3])
    assert (ALONE.from_first(4), ALONE.any_signal(None)) == (4, None)
    assert ALONE.share([3, 1, 2], lambda item: item * 10) == [30, 10, 20]
    with pytest.raises(UserError, match="mine"):
        ALONE.together(_refuse)


def _refuse() -> None:
    raise UserError("mine")


def talk(words: tuple[str, ...], environment: dict[str, str], folder: Path, stdin: bytes) -> None:
    """Every method once, in a process of a group; what came back as JSON."""
    import os

    import torch

    os.environ.update(environment)
    found: dict[str, object] = {}
    with joined(torch.device("cpu")) as group:
        rank = group.rank
        found["gathered"] = group.gather({"rank": rank})
        found["summed"] = group.summed(torch.tensor([1.0, float(rank)], dtype=torch.float64)).tolist()
        found["told"] = group.from_first(f"by {rank}")
        found["shared"] = group.share(list(range(7)), lambda item: item * 100 + rank)
        found["signals"] = [group.any_signal(None), group.any_signal(15 if rank == 1 else None)]
        acted: list[int] = []
        group.first_only(lambda: acted.append(rank))
        found["acted"] = acted
        try:
            group.together(lambda: _only(group, 2))
        except UserError as error:
            found["refused"] = str(error)
    print(json.dumps(found))


def _only(group: Group, rank: int) -> None:
    if group.rank == rank:
        raise UserError("no corpus here")


def test_three_processes_tell_each_other_the_same() -> None:
    said = []
    for code, out, err in ended(started(3, program=talk)):
        assert (code, err) == (0, "")
        said.append(json.loads(out))
    assert [one.pop("acted") for one in said] == [[0], [], []]
    assert said[0] == said[1] == said[2]
    assert said[0]["gathered"] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert said[0]["summed"] == [3.0, 3.0]
    assert said[0]["told"] == "by 0"
    assert said[0]["shared"] == [0, 101, 202, 300, 401, 502, 600]
    assert said[0]["signals"] == [None, 15]
    assert said[0]["refused"] == "process 2 of 3: no corpus here"


def test_a_mistake_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = ended(started(2, *WORDS, "--set", 'data.corpus="nowhere"'))
    assert [code for code, _, _ in found] == [2, 2]
    assert found[0][2].startswith("error: ")
    assert len(found[0][2].splitlines()) == 1
    assert found[1][1:] == ("", "")
    assert not (tmp_path / "run").exists()


def _wait_for_updates(process: Forked, count: int) -> None:
    metrics, deadline = Path("run/metrics.jsonl"), time.monotonic() + 240
    while not metrics.is_file() or metrics.read_bytes().count(b"\n") < count:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_process_has_all_of_them_save_at_one_update(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    processes = started(2, *WORDS, "--set", "train.duration=3000")
    _wait_for_updates(processes[0], 3)
    processes[rank].send_signal(signal.SIGTERM)
    processes[rank].send_signal(signal.SIGTERM)  # as a launcher passes it on
    found = ended(processes)
    assert [code for code, _, _ in found] == [143, 143]
    assert "saved; run the same command to resume" in found[0][2]
    assert found[1][2] == ""
    last = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])
    assert Path(f"run/checkpoints/step-{last['update']}").is_dir()


def test_who_loses_another_process_says_so_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    processes = started(2, *WORDS, "--set", "train.duration=3000")
    _wait_for_updates(processes[0], 3)
    processes[1].kill()
    code, _, err = ended(processes)[0]
    assert code == 1
    assert err.splitlines()[-1].startswith("stopped: process 0 of 2 has lost another one")
    assert "Traceback" not in err


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_gradient_that_is_no_number_stops_all_before_the_optimiser_moves(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Three batches an update: the seventh and eighth, of the third update, are those of processes 0 and 1.
    number = 6 + rank
    found = ended(started(2, *WORDS, program=failing, FAILS=f"nan:{number}", FAILS_RANK=str(rank)))
    assert [code for code, _, _ in found] == [1, 1]
    assert "stopped at update 3: the gradient is not finite; first seen in the gradient of " in found[0][2]
    assert f", in micro-batch {number}" in found[0][2]
    assert f"of process {rank}" in found[0][2]
    assert found[1][2] == ""
    last = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["update"]) == ("non-finite", 3)
    assert "process" not in last["reason"]  # the same bytes for any number of processes
    assert not list(Path("run/checkpoints").glob("step-3"))


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")  # of something else
    assert not surroundings.under_torchrun()
    assert (surroundings.rank_of_environment(), surroundings.size_of_environment()) == (0, 1)
