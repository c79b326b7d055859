"""A whole comparison: run, run again, damaged, stopped, and with what is not finite in it."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from forked import pool_forks, start
from normscope.cli import main as cli
from normscope.compare.compare import run_comparison
from normscope.compare.grid import Grid
from normscope.compare.pool import PoolOptions
from normscope.errors import UserError
from normscope.runs.config import load
from normscope.runs.trained import SCORES
from normscope.train import RunFolder
from tiny import MY_PLACEMENT, finish, flip, options, result, steps

TINY = (
    "train.duration=4",
    "train.validate_every=2",
    "train.checkpoint_every=1",
    "train.keep_checkpoints=9",
)
FOUR = [
    "--arms",
    "post-ln:0,pre-ln:2",
    "--peak-lr",
    "3e-3",
    "--seeds",
    "2",
    "--processes",
    "2",
    *options(*TINY),
]


def compared(*arguments: object) -> int:
    """Exit code of `normscope compare ARGUMENTS`, in this process; its runs are processes of their
    own, forked.
    """
    with pytest.MonkeyPatch.context() as patch, pool_forks():
        patch.setattr(sys, "argv", ["normscope", "compare", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
    return int(end.value.code or 0)


def times(folder: Path) -> dict[str, int]:
    """When each file of each run was last changed."""
    return {
        str(p.relative_to(folder)): p.stat().st_mtime_ns
        for p in folder.glob("runs/*/**/*")
        if p.is_file()
    }


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison of two arms with two seeds each."""
    folder = tmp_path_factory.mktemp("compare")
    assert compared("--out", folder, "--title", "Four tiny runs", *FOUR) == 0
    return folder


@pytest.fixture
def cheap(four: Path, tmp_path: Path) -> Path:
    """A copy of `four` to damage."""
    return Path(shutil.copytree(four, tmp_path / "copy"))


def names() -> list[str]:
    return [
        f"{arm}_lr-0.003_adam_seed-{s}"
        for s in (1, 2)
        for arm in ("post-ln_warmup-0", "pre-ln_warmup-2")
    ]


def test_every_run_is_there_with_report_results_configurations_and_logs(four: Path) -> None:
    assert sorted(path.name for path in (four / "runs").iterdir()) == sorted(names())
    results = json.loads((four / "results.json").read_text())
    assert [arm["label"] for arm in results["arms"]] == ["Post-LN, no warm-up", "Pre-LN, warm-up 2"]
    for arm, name in zip(results["arms"], ("post-ln_warmup-0", "pre-ln_warmup-2"), strict=True):
        for seed in arm["seeds"]:
            events = RunFolder(four / f"runs/{name}_lr-0.003_adam_seed-{seed['seed']}").events()
            assert seed["status"] == "finished"
            assert (
                seed["valid_loss_nats"]
                == [e["nll_nats"] for e in events if e["event"] == "validation"][-1]
            )
            assert seed["summed_lr"] == pytest.approx(events[-1]["summed_lr"], rel=1e-12)
    losses = [seed["valid_loss_nats"] for arm in results["arms"] for seed in arm["seeds"]]
    assert len(set(losses)) == 4  # arms and seeds do differ
    page = (four / "report.html").read_text()
    assert "Four tiny runs" in page
    assert "4 runs: 4 finished" in page
    assert all((four / "logs" / f"{name}.txt").is_file() for name in names())


def test_a_second_call_trains_nothing_and_writes_the_same_results(
    cheap: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before, results = times(cheap), json.loads((cheap / "results.json").read_text())
    (cheap / "report.html").unlink()
    assert compared("--out", cheap, "--title", "Four tiny runs", *FOUR) == 0
    assert times(cheap) == before
    again = json.loads((cheap / "results.json").read_text())
    # When it was written may differ, to the second, and so does the command that this call was made
    # with.
    assert again.pop("created") >= results.pop("created")
    assert again.pop("commands") != results.pop("commands")
    assert again == results
    assert (cheap / "report.html").is_file()
    assert f"report: {cheap / 'report.html'}" in " ".join(capfd.readouterr().out.split())


@pytest.mark.thorough
def test_a_comparison_that_grows_by_updates_and_an_arm_is_as_one_that_was_so_from_the_start(
    cheap: Path, tmp_path: Path
) -> None:
    longer = ["--seeds", "1", "--peak-lr", "3e-3", *options(*TINY, "train.duration=6")]
    assert compared("--out", cheap, "--arms", "post-ln:0,peri-ln:0", *longer) == 0
    arms = json.loads((cheap / "results.json").read_text())["arms"]
    updates = {arm["label"]: [seed["updates"] for seed in arm["seeds"]] for arm in arms}
    assert updates == {
        "Post-LN, no warm-up": [6, 4],
        "Pre-LN, warm-up 2": [4, 4],
        "Peri-LN, no warm-up": [6],
    }
    assert compared("--out", tmp_path / "anew", "--arms", "post-ln:0", *longer) == 0
    extended, anew = (folder / "runs" / names()[0] for folder in (cheap, tmp_path / "anew"))
    assert result(extended, 6) == result(anew, 6)


def unfinish(run: Path) -> None:
    """As after a kill behind the third update."""
    shutil.rmtree(run / "checkpoints/step-4")
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["update"] < 4]
    (run / "metrics.jsonl").write_bytes(b"".join(kept) + b'{"event": "upd')


def test_unfinished_runs_are_resumed_and_one_that_fails_is_shown_and_stops_no_other(
    cheap: Path, four: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failing, resumed = (cheap / "runs" / name for name in names()[:2])
    unfinish(failing)
    unfinish(resumed)
    flip(failing / "checkpoints/step-3/model.safetensors", 7777)
    before = times(cheap)
    assert compared("--out", cheap, *FOUR) == 1
    assert result(resumed, 4) == result(four / "runs" / resumed.name, 4)
    changed = {
        name.split("/")[1] for name, when in times(cheap).items() if before.get(name) != when
    }
    assert changed <= {failing.name, resumed.name}
    err = capfd.readouterr().err
    assert f"failed: {failing.name}: error: " in err
    assert "step-3/model.safetensors is damaged" in err
    assert "--from-step 2" in err
    arms = json.loads((cheap / "results.json").read_text())["arms"]
    assert [seed["status"] for arm in arms for seed in arm["seeds"]] == [
        "failed",
        "finished",
        "finished",
        "finished",
    ]
    assert "is damaged" in arms[0]["seeds"][0]["message"]
    assert "1 failed" in (cheap / "report.html").read_text()


def test_a_rate_too_high_is_a_result_and_the_others_are_evaluated_on_the_split_asked_for(
    tmp_path: Path,
) -> None:
    settings = [*TINY, "train.duration=2"]
    command = [
        "--out",
        tmp_path,
        "--arms",
        "pre-ln:0",
        "--peak-lr",
        "3e-3,1e38",
        *options(*settings),
    ]
    assert compared(*command, "--evaluate", "test", "--processes", "2") == 0
    sound, absurd = (
        tmp_path / f"runs/pre-ln_warmup-0_lr-{rate}_adam_seed-1" for rate in ("0.003", "1e+38")
    )
    scores = SCORES.read(sound / "evaluation-test.json")
    assert scores["split"] == "test"
    assert not list(absurd.glob("evaluation*"))
    arms = json.loads((tmp_path / "results.json").read_text())["arms"]
    assert [(arm["seeds"][0]["status"], arm["verdict"]) for arm in arms] == [
        ("finished", "worse than the unigram baseline"),
        ("non-finite", "diverged"),
    ]
    columns = {"BLEU, test": scores["bleu"], "BLEU, test, tokenised": scores["bleu_tokenised"]}
    assert arms[0]["seeds"][0]["scores"] == columns
    assert arms[1]["seeds"][0]["message"]
    # Scores of another split stay beside those of this one; those of another checkpoint are made
    # anew.
    (sound / "evaluation-valid.json").write_text(
        SCORES.text(scores | {"split": "valid", "bleu": 99.0})
    )
    (sound / "evaluation-test.json").write_text(SCORES.text(scores | {"update": 1, "bleu": 99.0}))
    before = times(tmp_path)
    assert compared(*command, "--evaluate", "test") == 0
    assert SCORES.read(sound / "evaluation-test.json") == scores
    after = times(tmp_path)
    assert [name for name in after if after[name] != before[name]] == [
        f"runs/{sound.name}/evaluation-test.json"
    ]
    arms = json.loads((tmp_path / "results.json").read_text())["arms"]
    kept = {"BLEU, valid": 99.0, "BLEU, valid, tokenised": scores["bleu_tokenised"]}
    assert arms[0]["seeds"][0]["scores"] == columns | kept


def wait_for(condition: Callable[[], bool], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.thorough
def test_stopping_a_comparison_ends_its_runs_with_saves_and_a_killed_run_is_named(
    tmp_path: Path,
) -> None:
    """Two endless runs with a placement of the user's own: one is killed from outside, then the
    whole is stopped.
    """
    # Nobody asks how fast they are: most of the time they sleep.
    idle = MY_PLACEMENT.replace("        return", "        time.sleep(0.02)\n        return")
    (tmp_path / "my_placements.py").write_text(f"import time\n{idle}")
    never = 1_000_000
    endless = options(
        *(f"train.{key}={never}" for key in ("duration", "validate_every", "checkpoint_every"))
    )
    command = [
        "compare",
        "--out",
        str(tmp_path / "out"),
        "--import",
        "my_placements.py",
        "--arms",
        "half-ln:0",
    ]
    process = start(*command, "--seeds", "2", "--processes", "2", *endless, cwd=tmp_path)
    runs = [tmp_path / f"out/runs/half-ln_warmup-0_lr-0.003_adam_seed-{seed}" for seed in (1, 2)]
    wait_for(lambda: all((run / "metrics.jsonl").exists() for run in runs))
    victim, survivor = (trainer_of(run) for run in runs)
    assert victim
    assert survivor
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: trainer_of(runs[0]) == 0)
    wait_for(lambda: b"lr-0.003_adam_seed-1: failed, update" in process.said())
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 143, err
    assert (
        "stopped by SIGTERM after every run under way has saved; the report shows what there is."
        in err
    )
    assert "Traceback" not in err
    assert steps(runs[0]) == []
    (saved,) = steps(runs[1])
    assert saved == RunFolder(runs[1]).events()[-1]["update"] > 0
    assert not Path(f"/proc/{survivor}").exists()


def trainer_of(run: Path) -> int:
    """Process id of whoever trains that run, and so has its lock open; 0 for nobody."""
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if handle.readlink() == run / ".lock":
                return int(handle.parts[2])
    return 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--arms", "post-ln"],
            "--arms takes comma-separated values, got 'post-ln': 'post-ln' is not PLA",
        ),
        (["--arms", "post-ln:few"], "--arms takes comma-separated values"),
        (
            ["--peak-lr", "fast"],
            "--peak-lr takes comma-separated values, and grids start:stop:count",
        ),
        (["--warmup-updates", "1.5"], "--warmup-updates takes comma-separated values"),
        (["--placements", ""], "placements and warmups: give one or more different values"),
        (
            ["--placements", "post-ln,sideways"],
            "unknown placement 'sideways'; `normscope placements`",
        ),
        (["--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--processes", "-1"], "--processes (processes in Python) must be 0 or more, got -1"),
        (
            ["--evaluate", "dev"],
            "--evaluate dev (evaluate='dev' in Python): no such split to translate; the corpus has "
            "valid, test",
        ),
        (["--evaluate", "train"], "--evaluate train (evaluate='train' in Python): no such split"),
        (["--set", "data.corpus=absent"], "no corpus at"),
    ],
)
def test_a_mistake_is_one_message_before_anything_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert compared("--out", tmp_path / "out", *options(*TINY), *arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_pre_trainings_are_compared_as_translations_are(tmp_path: Path) -> None:
    settings = (
        'task="masked-lm"',
        "data.sequence_length=16",
        "data.batch_sequences=4",
        "model.width=16",
        "model.ffn_width=16",
        "model.heads=2",
        "model.blocks=1",
        "model.positions=16",
        "masked_lm.valid_sequences=4",
        "train.duration=2",
    )
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=1
    )
    cells = grid.cells(load(None, settings), tmp_path)
    options = PoolOptions(command="compare", processes=1)
    with pytest.raises(UserError, match="task masked-lm has no translations to score"):
        run_comparison(cells, tmp_path, options, evaluate="valid")
    with pool_forks():
        done = run_comparison(cells, tmp_path, options, title="Encoders")
    page = done.page
    assert (done.problems, done.stopped, done.file.is_file()) == ([], None, True)
    assert dict(page.what)["Loss"].startswith("of masked tokens and of next sentences")
    assert dict(page.what)["Model"].startswith("1 blocks, width 16")
    assert page.valid_curves[0].updates[-1] == 2
