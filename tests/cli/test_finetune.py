"""`normscope finetune` as a user meets it: what it prints and leaves behind, mistakes in one line,
and what is done after a kill.
"""

import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import normscope
from labelled_toy import lines, write, written
from normscope.cli import main as cli
from normscope.runs.config import load
from normscope.runs.run import train_run
from tiny import start

pytest.importorskip("transformers", reason="needs Hugging Face transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")


SETTINGS = (
    'task="masked-lm"',
    "data.sequence_length=32",
    "data.batch_sequences=8",
    "model.width=16",
    "model.ffn_width=32",
    "model.heads=2",
    "model.blocks=2",
    "model.positions=40",
    'model.placement="pre-ln"',
    "masked_lm.valid_sequences=20",
    "train.duration=1",
    "train.threads=1",
    'train.device="cpu"',
)
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "bert"
    train_run(load(None, SETTINGS), folder)
    return folder


@pytest.mark.parametrize("verb", ["compare", "demo", "study"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_verb_that_starts_trainings_by_itself_is_refused_in_every_process_of_a_launcher(
    verb: str, rank: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    launched(monkeypatch, rank)
    monkeypatch.setattr(sys, "argv", ["normscope", verb])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    said = capfd.readouterr().err
    assert said.count("\n") == (1 if rank == 0 else 0)
    assert ("give it without the launcher" in said) == (rank == 0)


def launched(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """Has this process be one of two that a launcher has started."""
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    for name, value in {**own, "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)


def test_python_is_refused_so_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launched(monkeypatch, 1)
    out = tmp_path / "out"
    with pytest.raises(normscope.UserError, match="give it without the launcher; --processes"):
        normscope.compare(placements="pre-ln", data__toy_pairs=300, out=out)
    assert not out.exists()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run the verb; its exit code, output and messages."""

    def called(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["normscope", "finetune", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capfd.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return called


def options(files: tuple[Path, Path], out: Path) -> list[object]:
    small = ["--batch-sizes", 8, "--epochs", 1, "--processes", 1, "--device", "cpu"]
    return ["--train", files[0], "--dev", files[1], "--out", out, *small]


def test_a_search_from_the_command_line(call: Call, run: Path, tmp_path: Path) -> None:
    files, out = written(tmp_path), tmp_path / "out"
    words = [run, *options(files, out), "--rates", "1e-4,1e-3", "--seeds", 2]
    code, said, told = call(*words)
    assert code == 0, told
    shown = " ".join(said.split())
    data = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert f"accuracy {data['summary']['accuracy']['mean']:.4f} ±" in shown
    assert "majority class 0.6667; above it:" in shown
    assert shown.endswith(f"report: {out / 'report.html'}")
    assert "24 rows to train on, 12 to judge; labels other, same" in " ".join(told.split())
    assert data["command"].startswith("normscope finetune ")
    kept = {file: file.stat().st_mtime_ns for file in (out / "cells").iterdir()}
    assert call(*words)[:2] == (0, said)
    assert {file: file.stat().st_mtime_ns for file in (out / "cells").iterdir()} == kept


def test_an_exported_encoder_is_fine_tuned_likewise(call: Call, run: Path, tmp_path: Path) -> None:
    from normscope.exchange.export import export_run

    export_run(run, tmp_path / "exported")
    files, found = written(tmp_path), {}
    for start_folder in (run, tmp_path / "exported"):
        out = tmp_path / f"out-{start_folder.name}"
        words = [start_folder, *options(files, out), "--search", "none", "--seeds", 1]
        code, _, told = call(*words, "--dropout", 0, "--rates", "1e-3")
        assert code == 0, told
        found[start_folder.name] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    losses = [[loss for _, loss in one["best"][0]["scores"]["losses"]] for one in found.values()]
    # The same function, trained alike by another library's model: rounding alone differs.
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert "transformers" in found["exported"]["start"]["words"]


def test_a_search_that_was_killed_goes_on(call: Call, run: Path, tmp_path: Path) -> None:
    files, out = written(tmp_path, train=240), tmp_path / "out"
    words = [run, *options(files, out), "--search", "none", "--rates", "1e-3", "--seeds", 4]
    process = start("finetune", *map(str, words))
    until = time.monotonic() + 240
    while not list((out / "cells").glob("*.json")) and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = {file: file.stat().st_mtime_ns for file in (out / "cells").glob("*.json")}
    assert 1 <= len(kept) < 4
    code, said, told = call(*words)
    assert code == 0, told
    assert "mean of 4 seeds" in " ".join(said.split())
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    assert len(list((out / "cells").glob("*.json"))) == 4
    assert not list(out.rglob(".unfinished-*"))


def test_the_engine_is_asked_for_as_of_a_comparison(
    call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, out = written(tmp_path), tmp_path / "out"
    monkeypatch.setenv("PATH", "")
    code, _, told = call(run, *options(files, out), "--engine", "slurm")
    assert code == 2
    assert "calls sbatch, squeue, srun" in told or "the engine slurm needs submitit" in told
    code, _, told = call(run, *options(files, out), "--engine-set", "gpu_per_run=1")
    assert code == 2
    assert "did you mean 'gpus_per_run'" in told
    assert not (out / "cells").exists()


def mistakes(tmp_path: Path) -> dict[str, tuple[list[object], str]]:
    """By what is wrong: the words to type, and what is said."""
    train, dev = written(tmp_path)
    names = ("label", "sentence1", "sentence2")
    one = write(tmp_path / "one.tsv", [("same", "a", "b")], *names)
    odd = write(tmp_path / "odd.tsv", [*lines(2, split="valid"), ("new", "a", "b")], *names)

    def given(first: Path, second: Path, *more: object) -> list[object]:
        return ["--train", first, "--dev", second, *more]

    return {
        "column": (given(train, dev, "--columns", "label,text"), "no column 'text'; its columns"),
        "one class": (given(one, dev), "every row to train on has the label 'same'"),
        "label": (given(train, odd), "odd.tsv:4: the label 'new' is not among those to train on"),
        "file": (given(train, tmp_path / "none.tsv"), "none.tsv: no such file"),
        "rates": (given(train, dev, "--rates", "fast"), "--rates takes comma-separated values"),
        "search": (given(train, dev, "--search", "all"), "must be one of paper, small, none"),
        "seeds": (given(train, dev, "--seeds", 0), "--seeds (seeds in Python) must be at least 1"),
        "length": (given(train, dev, "--sequence-length", 99), "the encoder reads 40 tokens"),
        "checkpoint": (given(train, dev, "--checkpoint", 7), "no checkpoint of update 7"),
    }


@pytest.mark.parametrize(
    "wrong",
    ["column", "one class", "label", "file", "rates", "search", "seeds", "length", "checkpoint"],
)
def test_a_mistake_is_one_line(call: Call, run: Path, tmp_path: Path, wrong: str) -> None:
    words, said = mistakes(tmp_path)[wrong]
    code, out, told = call(run, *words, "--out", tmp_path / "out", "--device", "cpu")
    assert (code, out) == (2, "")
    assert told.startswith("error: ")
    assert said in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_no_encoder_is_one_line(call: Call, tmp_path: Path) -> None:
    from tiny import tiny

    train_run(tiny("train.duration=1"), tmp_path / "translation")
    code, _, told = call(tmp_path / "translation", *options(written(tmp_path), tmp_path / "out"))
    assert (code, told.count("\n")) == (2, 1)
    assert "is a run of task translation; this needs one of task masked-lm" in told


@pytest.mark.parametrize("library", ["transformers", "accelerate"])
def test_a_library_that_is_missing_is_named_with_the_extra(
    call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    if library == "transformers":
        monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not there
    else:
        import transformers

        monkeypatch.setattr(transformers.utils, "is_accelerate_available", lambda: False)
    code, _, told = call(run, *options(written(tmp_path), tmp_path / "out"))
    assert (code, told.count("\n")) == (2, 1)
    assert library in told
    assert "[huggingface]'" in told


def test_a_dry_run_tells_trainings_updates_and_time_and_leaves_nothing(
    call: Call, run: Path, tmp_path: Path
) -> None:
    files, out = written(tmp_path), tmp_path / "out"
    words = [run, *options(files, out), "--rates", "1e-4,1e-3", "--seeds", 2, "--dry-run"]
    held = sorted(tmp_path.rglob("*"))
    code, said, told = call(*words)
    assert code == 0, told
    shown = " ".join(said.split())
    # 24 rows in batches of 8 are three updates.
    assert "the settings, one seed each: 2 trainings; 6 updates, less than a minute" in shown
    assert "the best setting, its other seeds: 1 training; 3 updates, less than a minute" in shown
    assert "in all: 9 updates, less than a minute of one core" in shown
    assert shown.endswith("nothing was trained")
    assert sorted(tmp_path.rglob("*")) == held
    assert not out.exists()


def test_a_dry_run_refuses_what_a_search_refuses(call: Call, run: Path, tmp_path: Path) -> None:
    files, out = written(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("mine", encoding="utf-8")
    code, said, told = call(run, *options(files, out), "--dry-run")
    assert (code, said) == (2, "")
    assert "report.html" in told
    assert (out / "report.html").read_text(encoding="utf-8") == "mine"
