"""`normscope train --devices`: torch's launcher, and what of it a user sees."""

import signal
import time
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from tiny import RUN, finish, options, start


# Without the launcher, in tests/train/replicas/test_group.py: it starts Python three times.
@pytest.mark.thorough
def test_the_launcher_passes_a_signal_on_and_all_of_them_save(tmp_path: Path) -> None:
    words = ("train", "--run", "run", "--devices", "2", *options(*RUN), "--set", "train.duration=4000")
    process = start(*words, cwd=tmp_path)
    metrics, deadline = tmp_path / "run/metrics.jsonl", time.monotonic() + 200
    while not metrics.is_file() or metrics.read_bytes().count(b"\n") < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert (code, out) == (143, "")
    assert err.splitlines()[-1].endswith("; saved; run the same command to resume")
    assert "Traceback" not in err
    last = metrics.read_bytes().count(b'"event": "update"')
    assert (tmp_path / f"run/checkpoints/step-{last}").is_dir()


def test_the_launcher_takes_the_commands_of_the_manual_as_they_are_meant() -> None:
    manual = (Path(__file__).parents[2] / "docs/devices.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [line.split()[1:] for line in manual.splitlines() if line.startswith("torchrun ")]
    assert len(commands) == 2
    for words in commands:
        understood = get_args_parser().parse_args(words)
        assert understood.module
        assert [understood.training_script, *understood.training_script_args][:3] == [
            "normscope",
            "train",
            "train.toml",
        ]
        assert understood.training_script_args[-2] == "--run"


# What the processes find is said by one of them, as `tests/train/replicas` shows without starting them from nothing.
@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere.toml",), "error: cannot read the configuration nowhere.toml: No such file or directory"),
        (("--set", 'data.corpus="nowhere"'), "error: no corpus at "),
    ],
)
def test_a_mistake_is_one_line(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    code, out, err = finish(start("train", "--devices", "2", *words, cwd=tmp_path))
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith(message)
    assert not list(tmp_path.iterdir())
