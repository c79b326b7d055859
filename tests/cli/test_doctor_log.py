"""`normscope doctor --log FILE`, and the history that stands before the examination of a run."""

import io
import json
import math
import random
import shlex
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
    log = [
        {"step": at, "loss": bad if at == 60 else 2.0 + 0.02 * (-1) ** at} for at in range(1, 121)
    ]
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


@pytest.mark.thorough
def test_what_a_log_tells_is_set_apart_from_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A spike that came back asks for nothing of the model, whose "nothing to do" is not said of
    the spike.
    """
    train_run(tiny(*SHORT), tmp_path / "run")
    run(monkeypatch, str(tmp_path / "run"), "--no-advice", "--log", str(state(tmp_path, bad=6.0)))
    log, _, model = capsys.readouterr().out.partition("the model by itself:")
    assert "spike at update 60" in log
    assert "rules checked" not in log
    assert "rules checked" in model


def test_what_is_asked_amiss_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(monkeypatch, "--log", str(state(tmp_path)), "--html", str(tmp_path / "page.html")) == 2
    )
    assert "name a TARGET beside --log" in capsys.readouterr().err
    assert run(monkeypatch, "--log", str(tmp_path / "none")) == 2
    assert "no such file or folder" in capsys.readouterr().err


def test_a_runs_quiet_history_stands_below_what_is_to_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    train_run(tiny(*SHORT), folder)
    files = ("--json", str(tmp_path / "all.json"), "--html", str(tmp_path / "page.html"))
    run(monkeypatch, str(folder), "--no-advice", *files)
    said = capsys.readouterr().out
    assert said.index("rules checked") < said.index(
        "no spike and no plateau — loss over 12 updates"
    )
    assert "by itself" not in said
    both = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert both["history"]["loss"]["updates"] == list(range(1, 13))
    assert both["stacks"]
    shown = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (
        shown.index("Loss and gradient of the training")
        < shown.index("no spike and no plateau")
        < shown.index("Sub-layers")
    )


MODEL = """
import torch
from torch import nn


def build(width=32):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 64, batch_first=True, dropout=0.0)
    stack = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(50, width), stack, nn.Linear(width, 50))
    return model, torch.randint(0, 50, (4, 8))
"""


def diverged(folder: Path) -> Path:
    """The loss leaves its course at update 60, when the rate has come to 0.01, and is no number
    from 90 on.
    """
    log = [
        {
            "step": at,
            "loss": 2.0 + 0.02 * (-1) ** at + max(0, at - 59),
            "learning_rate": 1e-2 * min(1, at / 50),
        }
        for at in range(1, 121)
    ]
    for entry in log[89:]:
        entry["loss"] = float("nan")
    file = folder / "trainer_state.json"
    file.write_text(json.dumps({"log_history": log}))
    return file


@pytest.mark.thorough
def test_a_diverged_run_and_its_model_are_one_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "my_model.py").write_text(MODEL)
    log = str(diverged(tmp_path))
    assert (
        run(
            monkeypatch,
            "my_model.py:build",
            "--log",
            log,
            "--json",
            "all.json",
            "--html",
            "page.html",
        )
        == 1
    )
    lines = capsys.readouterr().out.splitlines()
    best = json.loads(Path("all.json").read_text())["advice"]["best_rate"]
    assert best < 1e-2
    first = lines[0]
    assert first.startswith("go back to before update 60 and take a peak rate of ")
    assert float(first.split("rate of ")[1].split()[0]) == pytest.approx(best, rel=0.1)
    assert "instead of 0.01, with a warm-up of" in first
    said = "\n".join(lines)
    assert "rise from update 60" in said
    assert "the usual rate of such a model" in said
    why = "a norm on every sum of 1.layers (post-ln) leaves 4 blocks no path around the norms"
    assert why in " ".join(said.split())
    # The file gives no batches, so that `compare` does not take it as it is.
    assert "70 % of the updates: `normscope compare` with `--peak-lr " in " ".join(said.split())
    assert json.loads(Path("all.json").read_text())["history"]["verdict"]["do"] == first
    assert first in Path("page.html").read_text()


def test_a_history_of_nothing_but_nan_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trainer_state.json"
    file.write_text(
        json.dumps({"log_history": [{"step": at, "loss": float("nan")} for at in range(1, 30)]})
    )
    assert run(monkeypatch, "--log", str(file)) == 1
    assert "rise from update 1: no number before to not finite" in capsys.readouterr().out


LETTERS = """
import torch
from torch import nn

SHARES = torch.tensor([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])


def build():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0, norm_first=PRE)
    stack = nn.TransformerEncoder(layer, 4, FINAL, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(6, 32), stack, nn.Linear(32, 6))
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.xavier_uniform_(weight)
    return model


def batches(number):
    ids = torch.multinomial(SHARES, 8 * 17, replacement=True).view(8, 17)
    return ids[:, :-1], ids[:, 1:]
"""
ENTROPY = 1.428
"""Of the shares above, in nats."""


def letters(folder: Path, *, pre_ln: bool = False) -> str:
    """A model with batches() beside it."""
    text = LETTERS.replace("PRE", str(pre_ln))
    text = text.replace("FINAL", "nn.LayerNorm(32)" if pre_ln else "None")
    (folder / "letters.py").write_text(text)
    return "letters.py:build"


def flat_log(folder: Path, level: float) -> str:
    """Lines of JSON of 300 updates whose loss comes to a level within the first twenty."""
    draw = random.Random(0)
    lines = []
    for at in range(1, 301):
        loss = level + 0.6 * math.exp(-at / 5) + draw.gauss(0, 0.02)
        lines.append(json.dumps({"step": at, "loss": loss, "lr": 1e-3}))
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")
    return "log.jsonl"


def cells_in(folder: Path) -> list[str]:
    """Names of the runs that a comparison has planned."""
    return list(json.loads((folder / "cells.json").read_text()))


def test_a_training_that_stood_still_at_frequencies_is_told_with_what_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    model, log = letters(tmp_path), flat_log(tmp_path, ENTROPY)
    words = (model, "--rate", "1e-3", "--optimizer", "adamw", "--log", log, "--json", "all.json")
    assert run(monkeypatch, *words) == 1
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[0].startswith("train again under another placement (")
    first = " ".join(lines[:5])
    assert first.index("transplant") < first.index("lower rate") < first.index("longer warm-up")
    assert "healthy" not in said
    told = json.loads(Path("all.json").read_text())["history"]
    (episode,) = told["episodes"]
    assert (episode["kind"], episode["cause"]) == ("plateau", "flat-before-learning")
    assert "over 32,768 target tokens in 256 batches" in " ".join(episode["evidence"])
    # What to do is the end of the page as well as its beginning.
    command = told["verdict"]["command"]
    assert lines[-1] == command
    assert lines.count(command) == 2
    # The commands are plain ones, with the user's own values among those that they try.
    verb, *given = shlex.split(command)[1:]
    assert verb == "compare"
    assert {"1e-3", "0"} <= {value for word in given for value in word.split(",")}
    monkeypatch.setattr(sys, "argv", ["normscope", verb, *given, "--dry-run"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (0, None)
    planned = [name for name in cells_in(tmp_path / "runs" / "compare-letters") if "_seed-" in name]
    assert len(planned) == 2 * 2 * 2
    assert "pre-ln_warmup-150_lr-0.001_adamw_seed-1" in planned
    (transplant,) = [part for part in told["verdict"]["do"].split("`") if "transplant" in part]
    monkeypatch.setattr(sys, "argv", shlex.split(transplant))
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (0, None)
    assert (tmp_path / "letters_pre_ln").is_dir()


def test_a_training_that_is_flat_below_frequencies_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing but the level of the log is other than in the test before."""
    monkeypatch.chdir(tmp_path)
    model, log = letters(tmp_path, pre_ln=True), flat_log(tmp_path, 0.8 * ENTROPY)
    run(monkeypatch, model, "--rate", "1e-3", "--log", log)
    said = capsys.readouterr().out
    assert "no spike and no plateau" in said
    assert "train again" not in said


def slow_log(folder: Path, rate: float) -> str:
    """The same of a loss that comes to 0.94 of that entropy and falls by 2 % more."""
    draw = random.Random(0)
    lines = []
    for at in range(1, 301):
        loss = ENTROPY * (0.94 - at / 15_000) + 0.6 * math.exp(-at / 5) + draw.gauss(0, 0.02)
        lines.append(json.dumps({"step": at, "loss": loss, "lr": rate}))
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")
    return "log.jsonl"


def test_a_training_that_learned_little_is_told_to_lower_a_rate_above_the_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = letters(tmp_path, pre_ln=True)
    for rate, code in ((0.3, 1), (1e-3, 0)):
        log = slow_log(tmp_path, rate)
        words = (model, "--optimizer", "adamw", "--log", log, "--json", "all.json")
        assert run(monkeypatch, *words) == code
        said = capsys.readouterr().out
        episodes = json.loads(Path("all.json").read_text())["history"]["episodes"]
        if code:
            assert said.startswith("train again with a lower rate (")
            assert [one["cause"] for one in episodes] == ["learned-little"]
        else:
            assert episodes == []


def test_another_placement_is_offered_where_every_sum_is_normed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, log = letters(tmp_path, pre_ln=True), flat_log(tmp_path, ENTROPY)
    assert run(monkeypatch, model, "--log", log) == 1
    said = capsys.readouterr().out
    assert said.startswith("train again with a lower rate (")
    assert "transplant" not in said.partition("\n\n")[0]
    assert "--placements own --" in said


def test_a_flat_loss_that_nothing_tells_apart_is_a_note_and_never_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without batches() six classes alone do not say where frequencies stand."""
    monkeypatch.chdir(tmp_path)
    letters(tmp_path)
    text = (tmp_path / "letters.py").read_text().partition("def batches")[0]
    text = text.replace("return model", "return model, torch.randint(6, (4, 16))")
    (tmp_path / "letters.py").write_text(text)
    log = flat_log(tmp_path, ENTROPY)
    assert run(monkeypatch, "letters.py:build", "--log", log) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("flat, cause not known: all may be learned, or nothing; write batches()")
    assert "healthy" not in said
    assert run(monkeypatch, "letters.py:build", "--log", log, "--fail-on", "info") == 1


def test_a_log_is_read_from_a_pipe_and_held_against_a_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = tmp_path / "good.csv"
    good.write_text("step,loss\n" + "".join(f"{at},{3 - at / 100}\n" for at in range(1, 101)))
    printed = "".join(f"iter {at}: loss {3.2 + at / 100}\n" for at in range(1, 101))
    monkeypatch.setattr(sys, "stdin", io.StringIO(printed))
    run(monkeypatch, "--log", "-", "--baseline", str(good))
    said = " ".join(capsys.readouterr().out.split())
    assert "read: loss as `loss` (100 values). Left out: nothing" in said
    assert "the loss differs first, from update 5 on: 3.25 against 2.95" in said
    assert run(monkeypatch, "--baseline", str(good)) == 2
    assert "name that log too" in capsys.readouterr().err


def test_a_warm_up_that_is_named_is_held_against_the_logged_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,loss,lr\n" + "".join(f"{at},{3 - at / 99},1e-3\n" for at in range(1, 99)))
    assert run(monkeypatch, "--log", str(log)) == 0
    assert run(monkeypatch, "--log", str(log), "--warmup-updates", "40") == 1
    assert "schedule-not-as-meant" in capsys.readouterr().out


def test_brief_says_a_training_and_its_model_in_forty_plain_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,loss,lr\n" + "".join(f"{at},4.0,1e-3\n" for at in range(1, 301)))
    run(monkeypatch, "--log", str(log), "--brief")
    alone = capsys.readouterr().out.splitlines()
    assert len(alone) <= 40
    assert alone[0].startswith("training: flat, cause not known")
    # The lines do not depend on how wide the terminal is.
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        run(monkeypatch, "--log", str(log), "--brief")
        assert capsys.readouterr().out.splitlines() == alone
    assert run(monkeypatch, "--log", str(log), "--brief", "--json", "-") == 2
    assert "choose one" in capsys.readouterr().err
