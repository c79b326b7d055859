"""However one of several processes ends, all of them end, and one line says why."""

import signal
import sys
import time
from pathlib import Path

import pytest

import forked
import together
from normscope.train import RunFolder
from tiny import SETTINGS

HOW = ("replicas", "shards")
BRIEF = (
    *SETTINGS,
    "data.max_tokens=128",
    "train.accumulation=3",
    "train.duration=12",
    "train.checkpoint_every=2",
)
AGAIN = "the same command goes on from the newest checkpoint"
on_a_cluster = pytest.mark.skipif(not together.ON_A_CLUSTER, reason="make test-cluster asks for it")


def words_of(run: Path, how: str, *more: str) -> list[str]:
    return together.words_of(run, [*BRIEF, f'train.parallel="{how}"', *more])


def meets(kind: str, run: Path, how: str, rank: int) -> together.Ended:
    """What two processes leave, one of which meets a fault after its third checkpoint."""
    fault = together.fault(kind, rank=rank, batch=18 + rank)
    words = words_of(run, how, "train.silent_seconds=3")
    return together.all_ended(together.forked_ones(2, words, **fault))


def says_who(ended: together.Ended, kind: str, rank: int) -> None:
    """Checks the exit codes, and the one line."""
    (line,) = ended.lines_of_ours()
    if kind == "nan":
        assert line.startswith("stopped at update 7: the gradient is not finite")
        assert set(ended.codes) == {1}
        return
    has = "has not answered for" if kind == "stop" else "has ended"
    assert line.startswith(f"stopped: process {rank} of 2 (")
    assert has in line
    assert line.endswith(AGAIN)
    assert ended.codes[1 - rank] == 1
    assert ended.codes[rank] == (-signal.SIGKILL if kind in ("kill", "stop") else 1)


@pytest.mark.parametrize(
    ("kind", "how", "rank"),
    [
        ("kill", "replicas", 1),
        ("stop", "shards", 0),
        ("exception", "shards", 1),
        ("nan", "replicas", 1),
    ],
)
def test_a_process_that_goes_ends_all_and_is_named(
    kind: str, how: str, rank: int, tmp_path: Path
) -> None:
    says_who(meets(kind, tmp_path / "run", how, rank), kind, rank)
    newest = RunFolder(tmp_path / "run").checkpoint("last")
    newest.verify()
    assert newest.update == 6


@on_a_cluster
@pytest.mark.parametrize("kind", together.FAULTS)
def test_twenty_of_each_end(kind: str, tmp_path: Path) -> None:
    for number in range(20):
        how, rank = HOW[number % 2], number // 2 % 2
        begun = time.monotonic()
        says_who(meets(kind, tmp_path / str(number), how, rank), kind, rank)
        print(kind, how, rank, f"{time.monotonic() - begun:.1f} s", file=sys.stderr)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_mistake_that_one_process_meets_has_its_line_and_exit_code(
    rank: int, tmp_path: Path
) -> None:
    ended = meets("user-error", tmp_path / "run", "replicas", rank)
    assert ended.lines_of_ours() == [
        f"error: process {rank} of 2: a file of this machine alone is missing"
    ]
    assert ended.codes[rank] == 2


def test_a_signal_to_one_process_saves_and_ends_all_with_its_code(tmp_path: Path) -> None:
    run = tmp_path / "run"
    processes = together.forked_ones(2, words_of(run, "replicas", "train.duration=4000"))
    log = run / "metrics.jsonl"
    while all(one.poll() is None for one in processes):
        if log.exists() and log.read_bytes().count(b"\n") > 6:
            break
        time.sleep(0.02)
    processes[1].terminate()
    ended = together.all_ended(processes)
    assert ended.codes == (128 + signal.SIGTERM,) * 2, ended.said
    assert ended.said.count("; saved") == 1
    saved = RunFolder(run).checkpoint("last")
    assert f"after update {saved.update}; saved" in ended.said


def test_the_last_reference_to_a_group_is_not_the_engines(tmp_path: Path) -> None:
    """Torch's group joins a thread when it goes, which may wait for Python's lock; the reducer of
    DistributedDataParallel lets go of it with the lock held. Then both wait for ever.
    """
    store = together.new_store()
    settings = [*BRIEF, "train.duration=2", 'train.parallel="replicas"']
    processes = []
    for rank in range(2):
        variables = together.variables(rank, 2, store)
        processes.append(forked.call(together.tell_threads, tmp_path / "run", settings, variables))
    ended = together.all_ended(processes)
    assert ended.codes == (0, 0), ended.said
    assert ended.said.count("pt_gloo_runloop") >= 2


@on_a_cluster
def test_two_hundred_runs_end(tmp_path: Path) -> None:
    for number in range(200):
        settings = [*BRIEF, "train.duration=2", f'train.parallel="{HOW[number % 2]}"']
        together.trained(2, tmp_path / str(number), settings)


def test_torchrun_trains_and_ends(tmp_path: Path) -> None:
    words = words_of(tmp_path / "run", "replicas", "train.duration=2")
    ended = together.ended(together.torchrun(2, words))
    assert ended.code == 0, ended.said
    assert ended.said.rstrip().endswith(str(tmp_path / "run"))
    assert ended.said.count("finished after 2 updates") == 1


@on_a_cluster
@pytest.mark.parametrize("kind", together.FAULTS)
def test_torchrun_ends_within_a_minute_of_a_fault(kind: str, tmp_path: Path) -> None:
    words = words_of(tmp_path / "run", "shards")
    ended = together.ended(together.torchrun(2, words, **together.fault(kind, batch=19)))
    assert ended.code == 1, ended.said
    assert len(ended.lines_of_ours()) == 1
