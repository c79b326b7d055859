"""SIGKILL at any moment, and the same command again: the same weights and the same metrics, to the
bit.
"""

import json
import random
import time
from pathlib import Path

import pytest

import forked
from kill_runs import kill_runs
from tiny import RUN, finish, options, result, steps


@pytest.mark.parametrize("timed", [3, pytest.param(14, marks=pytest.mark.thorough)])
def test_many_kills_end_with_the_bits_of_the_run_left_alone(tmp_path: Path, timed: int) -> None:
    code, out, err = finish(
        forked.call(kill_runs, tmp_path, 7, timed, 2 * (at_files := timed // 3 + 1))
    )
    assert code == 0, err
    report = json.loads(out)
    assert (report["time"], report["file"], report["saving"]) == (timed, at_files, at_files)
    assert report["killed_while_saving"] >= timed // 4  # else the file kills miss what they are for
    assert len(set(report["at"])) >= timed // 2 - 1  # spread over the run


@pytest.mark.thorough
def test_three_kills_of_the_command_itself(tmp_path: Path, uninterrupted: Path) -> None:
    folder, dice = tmp_path / "run", random.Random(3)
    command = ["train", "--run", str(folder), *options(*RUN)]
    for begin in (2, 10, 20):
        process, goal = forked.start(*command), begin + dice.randrange(5)
        while process.poll() is None and lines(folder) < goal:
            time.sleep(0.005)
        assert process.poll() is None, finish(process)
        process.kill()
        assert finish(process)[0] == -9
    code, out, err = finish(forked.start(*command))
    assert code == 0, err
    assert out == f"{folder}\n"
    assert result(folder, 30) == result(uninterrupted, 30)
    assert steps(folder) == steps(uninterrupted)


def lines(folder: Path) -> int:
    file = folder / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0
