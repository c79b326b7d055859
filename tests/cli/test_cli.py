"""The command line: exit codes, one clear message on stderr, and nothing but results on stdout."""

import io
import json
import math
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sacrebleu import corpus_bleu

import forked
from normscope.__main__ import main
from normscope.data.opening import open_corpus
from normscope.runs import run
from normscope.runs.trained import SCORES
from normscope.train import RunFolder
from tiny import MY_PLACEMENT, SHORT, finish, flip, options, result, steps, tiny


class Called:
    """What a command left behind."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.out, self.err = code, out.decode(), err.decode()


Call = Callable[..., Called]


@pytest.fixture
def call(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    """`normscope ARGUMENTS` within this process."""

    def run_main(*arguments: object, stdin: bytes = b"") -> Called:
        monkeypatch.setattr(sys, "argv", ["normscope", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code
        assert isinstance(code, int | None)
        return Called(code or 0, *capfdbinary.readouterr())

    return run_main


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run long enough to say something; not to be changed."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    settings = ("train.duration=40", "optimizer.peak_lr=1e-2", "train.validate_every=20")
    run.train_run(tiny(*settings), folder)
    return folder


def assert_mistake(called: Called, *parts: str) -> None:
    """Exit code 2, nothing on stdout, one message and no traceback on stderr."""
    assert (called.code, called.out) == (2, ""), called.err
    assert called.err.startswith("error: ")
    assert "Traceback" not in called.err
    assert called.err.count("\n") == 1
    for part in parts:
        assert part in called.err


def test_train_prints_its_folder_and_says_the_rest_on_stderr(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "[b]run[i]"  # brackets are no markup
    called = call("train", "--run", folder, *options(*SHORT))
    assert (called.code, called.out) == (0, f"{folder}\n")
    assert "[b]run[i]: update 1/12  loss " in called.err
    assert "[b]run[i]: update 5: validation " in called.err
    assert (
        "[b]run[i]: finished after 12 updates; cumulative learning rate (sum over updates) 0.006"
        in " ".join(called.err.split())
    )
    assert "\x1b" not in called.err
    assert list((folder / "tensorboard").iterdir())
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    again = call("train", "--run", folder, *options(*SHORT))
    assert (again.code, again.out, again.err) == (
        0,
        f"{folder}\n",
        f"{folder} is finished; nothing to do\n",
    )
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_the_default_folder_is_named_after_the_configuration(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("seed = 4\n")
    one = options("train.duration=1")
    assert call("train", "mine.toml", *one).out == "runs/mine\n"
    assert call("train", *one).out == "runs/default\n"
    assert_mistake(
        call("train", *one, "--set", "seed=4"),
        "runs/default holds a run with",
        "seed: 1 there, 4 now",
        "--run",
    )
    # A run's own configuration file is one like any other.
    assert call("train", "runs/mine/config.toml", "--run", "again").code == 0
    assert result(Path("again"), 1) == result(Path("runs/mine"), 1)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--set", "model.widht=3"], ["unknown key 'model.widht'; did you mean 'model.width'?"]),
        (["--set", "model.width='3'"], ["model.width: Input should be a valid integer, got '3'"]),
        (["--set", "nonsense"], ["--set takes KEY=VALUE, such as model.width=256, got 'nonsense'"]),
        (["absent.toml"], ["cannot read the configuration absent.toml: No such file or directory"]),
        (["--set", "data.corpus=absent"], ["no corpus at", "absent", "`normscope data prepare`"]),
        (["--import", "absent.py"], ["cannot import", "absent.py: no such file"]),
        (
            ["--on-nonfinite", "ignore"],
            ["train.on_nonfinite must be one of stop, skip, got 'ignore'"],
        ),
        (
            ["--set", "train.silent_seconds=1"],
            ["train: silent_seconds must be 3 or more", "got 1.0"],
        ),
        (["--set", "train.device=tpu"], ["tpu", "choose auto, cpu, cuda"]),
        (["--set", "train.device=cuda:99"], ["no device 'cuda:99'"]),
        (
            ["--set", "train.device=cpu", "--set", "train.precision=tf32"],
            ["this is cpu; choose fp32 or bf16"],
        ),
        (["--run", "file"], ["file is a file; choose another folder (--run"]),
        (["--run", "full"], ["full is not empty and is not a run"]),
        (["--run", "file/below"], ["file/below", "a file stands where a folder is needed"]),
        (["--set", "data.max_tokens=3"], ["raise max_tokens"]),
        (
            ["--set", "model.placement=sideways"],
            ["unknown placement 'sideways'; `normscope placements`"],
        ),
    ],
)
def test_a_users_mistake_is_one_message_and_leaves_nothing(
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    parts: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("full").mkdir()
    Path("full/notes").touch()
    before = sorted(tmp_path.rglob("*"))
    assert_mistake(call("train", *options("train.duration=1"), *arguments), *parts)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments",
    [["tarin"], ["train", "--frobnicate"], ["translate"], ["train", "--from-step", "x"]],
)
def test_a_misspelt_command_line_ends_with_2(call: Call, arguments: list[str]) -> None:
    called = call(*arguments)
    assert (called.code, called.out) == (2, "")
    assert "Traceback" not in called.err


def test_a_fault_of_ours_keeps_its_traceback(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(run, "train_run", broken)
    with pytest.raises(ZeroDivisionError):
        call("train", "--run", "never", *options())


def test_a_run_another_process_has_is_refused(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with RunFolder(folder).lock():
        called = call("train", "--run", folder, *options(*SHORT))
    assert_mistake(called, f"{folder} is being trained by another process")
    assert (
        call("train", "--run", folder, *options("train.duration=1")).code == 0
    )  # the lock made no run of it


def test_a_damaged_checkpoint_is_named_with_the_way_round_it(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = ["train", "--run", folder, *options(*SHORT)]
    assert call(*command).code == 0
    wanted = result(folder, 12)
    (folder / "metrics.jsonl").write_bytes(
        wanted[1].rsplit(b"\n", 2)[0] + b"\n"
    )  # as after a kill: no last line
    flip(folder / "checkpoints/step-12/model.safetensors", 5000)
    assert_mistake(call(*command), "step-12/model.safetensors is damaged", "--from-step 10")
    assert_mistake(
        call("translate", folder), "step-12/model.safetensors is damaged", "--checkpoint 10"
    )
    assert_mistake(
        call(*command, "--from-step", "11"), "no checkpoint of update 11; it has 4, 5, 8, 10, 12"
    )
    assert call(*command, "--from-step", "10").code == 0
    assert result(folder, 12) == wanted


def test_a_run_that_is_not_finite_ends_with_1_and_says_what_went_first(
    call: Call, tmp_path: Path
) -> None:
    called = call(
        "train",
        "--run",
        tmp_path / "run",
        *options(*SHORT, "optimizer.peak_lr=1e38", "train.validate_every=1"),
    )
    assert (called.code, called.out) == (1, "")
    assert called.err.count("stopped at update 1: ") == 1
    assert "Every checkpoint is kept" in called.err
    assert "Traceback" not in called.err
    assert steps(tmp_path / "run") == []


def test_translate_keeps_the_order_of_lines_and_answers_every_one(
    call: Call, trained: Path
) -> None:
    texts = open_corpus(tiny().data).splits["test"].source_text[:4]
    lines = [texts[0], "", texts[1], "   ", "日本語 العربية 🙂", texts[2], "\t", texts[3]]
    called = call("translate", trained, "--beam", "2", stdin="\n".join(lines).encode() + b"\r\n")
    assert called.code == 0, called.err
    out = called.out.split("\n")
    assert out.pop() == ""
    assert len(out) == len(lines)
    assert [place for place, line in enumerate(out) if place in (1, 3, 6) and line] == []
    alone = [
        call("translate", trained, "--beam", "2", stdin=text.encode()).out.rstrip("\n")
        for text in texts
    ]
    assert [out[place] for place in (0, 2, 5, 7)] == alone
    assert len(set(alone)) > 1  # else any order would do


def test_translate_refuses_what_is_no_text_by_its_line(call: Call, trained: Path) -> None:
    called = call("translate", trained, "--beam", "1", stdin=b"hund\nkaputt \xff\xfe\x80\r\nhund\n")
    assert_mistake(called, "line 2 of the input is not UTF-8, from its byte 8 on", "iconv")


def test_translate_notes_lines_that_are_cut_and_translates_nothing_from_nothing(
    call: Call, trained: Path
) -> None:
    assert call("translate", trained, stdin=b"").out == ""
    called = call("translate", trained, "--beam", "1", stdin=b"hund " * 3000)
    assert called.err == "note: line 1 is too long and was cut\n"
    assert called.out.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--beam", "0"], "beam"),
        (
            ["--checkpoint", "newest"],
            "a checkpoint is `last`, `best` or an update's number, got 'newest'",
        ),
        (["--checkpoint", "7"], "no checkpoint of update 7"),
        (["--device", "cuda:99"], "no device 'cuda:99'"),
    ],
)
def test_mistakes_in_translating(
    call: Call, trained: Path, arguments: list[str], part: str
) -> None:
    assert_mistake(call("translate", trained, *arguments), part)


def test_a_folder_that_is_no_run_and_a_run_without_checkpoint(
    call: Call, tmp_path: Path, trained: Path
) -> None:
    assert_mistake(call("translate", tmp_path), "is not a run folder: it has no config.toml")
    assert_mistake(call("evaluate", tmp_path / "absent"), "is not a run folder")
    shutil.copy(trained / "config.toml", tmp_path)
    assert_mistake(call("translate", tmp_path), "has no checkpoint yet; train it first")


def test_evaluate_prints_saves_and_writes(call: Call, trained: Path, tmp_path: Path) -> None:
    files = ["--save", tmp_path / "scores.json", "--output", tmp_path / "out.txt"]
    called = call("evaluate", trained, "--split", "test", "--beam", "1", "--json", *files)
    assert called.code == 0, called.err
    scores = json.loads(called.out)
    assert scores == SCORES.read(tmp_path / "scores.json")
    assert (scores["split"], scores["beam"], scores["update"]) == (
        "test",
        1,
        RunFolder(trained).checkpoint("best").update,
    )
    assert "tok:13a" in scores["bleu_signature"]
    translations = (tmp_path / "out.txt").read_text().splitlines()
    references = open_corpus(tiny().data).splits["test"].target_text
    assert scores["bleu"] == pytest.approx(
        corpus_bleu(translations, [references], lowercase=True).score, abs=1e-9
    )
    assert scores["bleu"] > 0  # else a comparison of two zeros
    plain = call("evaluate", trained, "--split", "test", "--beam", "1")
    assert f"  bleu                   {scores['bleu']:.2f}\n" in plain.out


def test_mistakes_in_evaluating(call: Call, trained: Path, tmp_path: Path) -> None:
    assert_mistake(
        call("evaluate", trained, "--split", "train"),
        "no split 'train' to evaluate on; it has valid, test",
    )
    assert_mistake(call("evaluate", trained, "--save", tmp_path), "is a folder")
    assert_mistake(
        call("evaluate", trained, "--output", tmp_path / "a/b"), "its folder does not exist"
    )


def test_stopping_a_process_saves_and_ends_with_143(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = forked.start(
        "train",
        "--run",
        str(folder),
        *options("train.duration=100000", "train.checkpoint_every=100000"),
    )
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert (code, out) == (143, ""), err
    assert "stopped by SIGTERM after update " in err
    assert "; saved; run the same command to resume" in err
    last = RunFolder(folder).checkpoint("last")
    assert last.update == RunFolder(folder).events()[-1]["update"] > 0


def test_a_terminal_that_is_closed_lets_the_run_save(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    terminal, ours = os.openpty()
    settings = options("train.duration=100000", "train.checkpoint_every=100000")
    process = forked.call(
        train_at_a_terminal, os.ttyname(ours), ["train", "--run", str(folder), *settings]
    )
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 1 << 16)
    os.close(ours)
    os.close(terminal)
    assert process.wait(240) == 129
    last = RunFolder(folder).checkpoint("last")
    assert last.update == RunFolder(folder).events()[-1]["update"] > 0


def train_at_a_terminal(terminal: str, words: list[str]) -> None:
    """`normscope WORDS`, which a closed `terminal` hangs up: the first one that a new session opens
    is its own.
    """
    opened = os.open(terminal, os.O_RDWR)
    for number in (1, 2):
        os.dup2(opened, number)
    os.close(opened)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.argv = ["normscope", *words]
    main()


def test_a_placement_of_ones_own_trains_and_the_run_remembers_where_it_is(
    tmp_path: Path, trained: Path
) -> None:
    (tmp_path / "my_placements.py").write_text(MY_PLACEMENT)
    settings = options("train.duration=2", "model.placement=half-ln")
    command = ["train", "--run", "mine", "--import", "my_placements.py", *settings]
    code, _, err = finish(forked.start(*command, cwd=tmp_path))
    assert code == 0, err
    # From elsewhere, and without naming it again.
    translating, evaluating = (
        forked.start(
            "translate", str(tmp_path / "mine"), "--beam", "1", "--trust", stdin=b"hund\n\n"
        ),
        forked.start("evaluate", str(tmp_path / "mine"), "--beam", "1", "--json", "--trust"),
    )
    code, out, err = finish(translating)
    assert (code, out.count("\n")) == (0, 2), err
    code, out, err = finish(evaluating)
    assert code == 0, err
    assert math.isfinite(json.loads(out)["bleu"])


def test_a_placement_file_that_has_gone_is_named(call: Call, tmp_path: Path, trained: Path) -> None:
    copy = Path(shutil.copytree(trained, tmp_path / "copy"))
    text = (copy / "config.toml").read_text().rpartition("# SHA-256")[0]
    RunFolder(copy).write_config(
        text.replace("imports = []", 'imports = ["/gone/my_placements.py"]')
    )
    assert_mistake(
        call("translate", copy, "--trust"), "cannot import /gone/my_placements.py: no such file"
    )
