"""`normscope doctor --log FILE`, and the history that stands before the examination of a run."""

import json
import sys
from pathlib import Path

import pytest

from normscope.cli.main import main
from normscope.runs.run import train_run
from tiny import SHORT, tiny


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["normscope", "doctor", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def state(folder: Path, bad: float = 2.0) -> Path:
    """A loss that scatters by a hundredth, with one other value at update 60."""
    log = [{"step": at, "loss": bad if at == 60 else 2.0 + 0.02 * (-1) ** at} for at in range(1, 121)]
    file = folder / "trainer_state.json"
    file.write_text(json.dumps({"log_history": log}))
    return file


def test_a_log_alone_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(state(tmp_path, bad=6.0))
    assert run(monkeypatch, "--log", file) == 0  # it came back
    said = capsys.readouterr().out
    assert "spike at update 60: 1.98 to 6.00, back at update 61" in said
    assert "cause bad-batch" in said
    assert run(monkeypatch, "--log", file, "--json", "-", "--fail-on", "info") == 1
    (found,) = json.loads(capsys.readouterr().out)["history"]["episodes"]
    assert (found["onset"], found["cause"]) == (60, "bad-batch")


def test_what_is_asked_amiss_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--log", str(state(tmp_path)), "--html", str(tmp_path / "page.html")) == 2
    assert "name a TARGET beside --log" in capsys.readouterr().err
    assert run(monkeypatch, "--log", str(tmp_path / "none")) == 2
    assert "no such file or folder" in capsys.readouterr().err


def test_a_runs_history_stands_before_its_examination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    train_run(tiny(*SHORT), folder)
    files = ("--json", str(tmp_path / "all.json"), "--html", str(tmp_path / "page.html"))
    run(monkeypatch, str(folder), "--no-advice", *files)
    said = capsys.readouterr().out
    assert said.index("no spike and no plateau — loss over 12 updates") < said.index("parameters")
    both = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert both["history"]["loss"]["updates"] == list(range(1, 13))
    assert both["stacks"]
    shown = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert shown.index("History of the training") < shown.index("no spike and no plateau") < shown.index("Sub-layers")
