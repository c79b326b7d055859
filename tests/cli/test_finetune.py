"""The verb `finetune`: results on stdout, one clear line for a mistake, and going on after an interruption."""

import json
import signal
import time
from pathlib import Path

import pytest

from forked import start
from normscope.cli.main import main
from normscope.train import RunFolder
from tiny import finish
from tuned import pairs_file, pretrained

QUICK = ("--batch-sizes", "16", "--rates", "1e-3", "--epochs", "2", "--seeds", "1", "--set", 'train.device="cpu"')


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`pre`, a pre-trained run, and files of pairs."""
    folder = tmp_path_factory.mktemp("desk")
    pretrained(folder / "pre")
    pairs_file(folder / "own.tsv", 1200)  # seconds of training, so that a signal comes before its end
    pairs_file(folder / "few.tsv", 30, seed=8)
    (folder / "bad.tsv").write_text("label\tsentence1\tsentence2\n1\ta\tb\n0\ta\t\n")
    (folder / "others.tsv").write_text("quality\ts1\ts2\n1\ta\tb\n")
    return folder


def test_a_search_is_interrupted_goes_on_and_prints_what_came_out(desk: Path) -> None:
    arguments = ("finetune", "pre", "--task", "own.tsv", "--dev", "few.tsv", "--out", "out", *QUICK)
    process = start(*arguments, cwd=desk)
    folder = RunFolder(desk / "out/runs/batch-16_lr-0.001_epochs-2_seed-1")
    deadline = time.monotonic() + 200
    while not (folder.metrics_file.is_file() and folder.events()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert "after every run under way has saved; run the same command to resume" in err
    assert not folder.is_finished
    assert not (desk / "out/results.json").exists()

    code, out, err = finish(start(*arguments, cwd=desk))
    assert code == 0, err
    events = folder.events()
    # 1,200 pairs in 75 batches, twice, each update once.
    assert [event["update"] for event in events if event["event"] == "update"] == list(range(1, 151))
    (row,) = json.loads((desk / "out/results.json").read_text())["best"]
    assert (row["seed"], row["accuracy"], row["f1"]) == (1, events[-2]["accuracy"], events[-2]["f1"])
    rows = out.splitlines()
    assert rows[0].split() == ["batch", "rate", "epochs", "accuracy", "F1", "loss,", "nats"]
    assert rows[2].startswith(
        f"own: accuracy {row['accuracy']:.4f}, F1 of 'same' {row['f1']:.4f} (batch 16, rate 0.001"
    )
    assert " ".join(out.split()).endswith(
        "majority class 0.6667; above it by more than the interval: one seed has no interval results: out/results.json"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pre", "--task", "bad.tsv"), "bad.tsv:3: sentence2 is empty; fill it in, or leave the line out"),
        (
            ("pre", "--task", "others.tsv"),
            "others.tsv:1: no column 'label'; the first line names 'quality', 's1', 's2'",
        ),
        (("pre", "--task", "cola"), "cola: no such file; a task is mrpc, rte or a tab-separated file"),
        (("pre", "--task", "mrpc"), "--task mrpc needs --data FOLDER"),
        (("pre", "--task", "few.tsv", "--rates", "fast"), "--rates takes comma-separated values, got 'fast'"),
        (("pre", "--task", "few.tsv", "--rates", "0"), "rates must be positive, got (0.0,)"),
        (("pre", "--task", "few.tsv", "--checkpoint", "3"), "has no checkpoint of update 3; it has 2, 4"),
        (("pre", "--task", "few.tsv", "--positive", "yes"), "the positive label 'yes' is not among those"),
        (("nowhere", "--task", "few.tsv"), "nowhere is not a run folder"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    desk: Path,
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setattr("sys.argv", ["normscope", "finetune", *arguments, "--out", "elsewhere"])
    with pytest.raises(SystemExit) as stopped:
        main()
    out, err = capfd.readouterr()
    assert stopped.value.code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not (desk / "elsewhere").exists()
