"""Masked-lm and language-model runs: exact resume as for translation, evaluation, and mistakes told
in one line.
"""

import io
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from normscope.cli import main as cli
from normscope.data import opening
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.tokeniser import TextTokeniser
from normscope.data.toy import toy_pairs
from normscope.provenance import source_sha256
from normscope.runs import run
from normscope.runs.config import load
from normscope.runs.trained import SCORES, load_run
from normscope.tasks.registry import task_of
from normscope.tasks.run_config import RunConfig
from normscope.train import Interrupted, RunFolder
from tiny import flip, leftovers, result, steps

TASKS = ("masked-lm", "language-model")
SETTINGS = (
    "model.width=16",
    "model.ffn_width=16",
    "model.heads=2",
    "model.blocks=1",
    "model.positions=24",
    'data.corpus="toy"',
    "data.sequence_length=24",
    "data.batch_sequences=4",
    "train.threads=1",
    'train.device="cpu"',
    "train.accumulation=2",
    "train.duration=16",
    "train.validate_every=5",
    "train.checkpoint_every=4",
    "train.keep_checkpoints=3",
)
"""One block of width 16, dropout 0.1, 16 updates of two batches on the embedded language."""
UPDATES = 16


@pytest.fixture(scope="module", autouse=True)
def _few_documents() -> Iterator[None]:
    """For `toy` a few documents of the embedded language: packing all of them takes longer than a
    run.
    """
    texts = [english for _, english in toy_pairs(400, seed=1, split="train")]
    tokeniser = TextTokeniser.learn(texts, 300, kind="wordpiece", lowercase=True)
    documents = [texts[i : i + 5] for i in range(0, 400, 5)]
    few = DocumentCorpus.of_texts(
        tokeniser, {"train": documents[:40], "valid": documents[40:60], "test": documents[60:]}
    )
    with pytest.MonkeyPatch.context() as patch:
        opened = opening.open_documents
        patch.setattr(opening, "open_documents", lambda c: few if c.corpus == "toy" else opened(c))
        yield


def tiny(task: str, *settings: str) -> RunConfig:
    return load(None, [f"task={task}", *SETTINGS, *settings])


def options(task: str, *settings: str) -> list[str]:
    return [
        word for setting in (f"task={task}", *SETTINGS, *settings) for word in ("--set", setting)
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each task left alone. Not to be changed."""
    folders = {task: tmp_path_factory.mktemp("whole") / task for task in TASKS}
    for task, folder in folders.items():
        run.train_run(tiny(task), folder)
    return folders


@pytest.fixture
def call(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """`normscope ARGUMENTS` within this process: exit code, stdout, stderr."""

    def run_main(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["normscope", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a house .\n")))
        capfd.readouterr()
        code: object = 0
        try:
            cli.main()
        except SystemExit as stopped:
            code = stopped.code
        return int(code or 0), *capfd.readouterr()

    return run_main


def assert_mistake(called: tuple[int, str, str], *parts: str) -> None:
    code, out, err = called
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


@pytest.mark.thorough
@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("task", TASKS)
def test_a_stopped_run_goes_on_exactly(task: str, whole: dict[str, Path], tmp_path: Path) -> None:
    def interrupt(event: dict[str, object]) -> None:
        if event["event"] == "update" and event["update"] == 6:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run.train_run(tiny(task), tmp_path / "run", listeners=[interrupt])
    assert steps(tmp_path / "run") == [4, 5, 6]
    run.train_run(tiny(task), tmp_path / "run")
    assert result(tmp_path / "run", UPDATES) == result(whole[task], UPDATES)


@pytest.mark.thorough
@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("task", TASKS)
def test_a_killed_run_ends_with_the_bits_of_the_one_left_alone(
    task: str, whole: dict[str, Path], tmp_path: Path
) -> None:
    """SIGKILL at random file operations of a forked child, until one comes through."""
    dice, killed = random.Random(task), 0
    for operation in [dice.randrange(5, 60) for _ in range(4)] + [10**9]:
        pid = os.fork()
        if not pid:
            _train_and_die(tiny(task), tmp_path / "run", operation)
        status = os.waitpid(pid, 0)[1]
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        killed += 1
    assert killed == 4
    assert result(tmp_path / "run", UPDATES) == result(whole[task], UPDATES)
    assert not leftovers(tmp_path / "run")


def _train_and_die(config: RunConfig, folder: Path, operation: int) -> None:
    """Train in this process, which ends at the given file operation under `folder`, and ends in any
    case.
    """
    seen, code = 0, 1

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if (
            event in ("open", "os.rename", "os.remove", "os.mkdir")
            and arguments
            and str(folder) in str(arguments[0])
        ):
            seen += 1
            if seen == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    try:
        run.train_run(config, folder)
        code = 0
    finally:
        os._exit(code)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("task", TASKS)
def test_going_back_ends_with_the_same_bits(
    task: str, whole: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(whole[task], tmp_path / "copy"))
    run.train_run(tiny(task), folder, from_step=steps(folder)[-3])
    assert result(folder, UPDATES) == result(whole[task], UPDATES)


@pytest.mark.parametrize("task", TASKS)
def test_another_seed_is_another_run_judged_by_the_same_pairs(
    task: str, whole: dict[str, Path], tmp_path: Path
) -> None:
    run.train_run(
        tiny(task, "seed=2", "train.duration=1", "train.validate_every=1"), tmp_path / "run"
    )
    losses = {
        folder: next(e["loss_nats"] for e in RunFolder(folder).events() if e["event"] == "update")
        for folder in (tmp_path / "run", whole[task])
    }
    assert len(set(losses.values())) == 2
    configs = [tiny(task, f"seed={seed}") for seed in (1, 2)]
    corpus = task_of(configs[0]).open(configs[0])
    judged_by = [
        task_of(config).objective(config, corpus, torch.device("cpu")) for config in configs
    ]
    model = load_run(whole[task], device="cpu").model
    assert judged_by[0].validate(model) == judged_by[1].validate(model)


@pytest.mark.parametrize("task", TASKS)
def test_evaluate_says_what_validation_said(
    task: str, whole: dict[str, Path], tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = call(
        "evaluate", whole[task], "--json", "--save", tmp_path / "scores.json", "--device", "cpu"
    )
    assert (code, err) == (0, "")
    scores = json.loads(out)
    assert scores == SCORES.read(tmp_path / "scores.json")
    best = RunFolder(whole[task]).checkpoint("best").update
    assert (scores["update"], scores["split"]) == (best, "valid")
    events = [
        e
        for e in RunFolder(whole[task]).events()
        if e["event"] == "validation" and e["update"] == best
    ]
    numbers = {
        name: value for name, value in events[0].items() if name not in ("event", "update", "epoch")
    }
    assert {name: scores[name] for name in numbers} == pytest.approx(numbers, rel=1e-6)
    made_by = {"normscope", "source_sha256", "commit"}
    assert set(scores) == {"run", "update", "split", *numbers, *made_by}
    assert scores["source_sha256"] == source_sha256()
    code, plain, _ = call("evaluate", whole[task], "--split", "test", "--device", "cpu")
    assert code == 0
    assert plain.splitlines()[0] == f"{task}, update {best}, test"
    assert f"  nll_nats               {scores['nll_nats']:.4f}" not in plain  # another split
    assert ("word_perplexity" if task == "language-model" else "next_sentence_accuracy") in plain


@pytest.mark.parametrize("task", TASKS)
def test_what_is_for_translation_is_refused(
    task: str, whole: dict[str, Path], tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    folder = whole[task]
    assert_mistake(
        call("translate", folder), f"is a run of task {task}; this needs one of task translation"
    )
    assert_mistake(
        call("evaluate", folder, "--beam", "5"),
        "--beam (beam in Python): for runs of task translation",
        f"task {task}",
    )
    asked = call("evaluate", folder, "--length-penalty", "1", "--output", tmp_path / "out")
    assert_mistake(
        asked,
        "--length-penalty (length_penalty in Python) and --output: for runs of task translation",
    )
    assert_mistake(
        call("evaluate", folder, "--split", "train"),
        "no split 'train' to evaluate on; it has valid, test",
    )
    comparing = call(
        "compare", *options(task), "--out", tmp_path / "compared", "--evaluate", "test"
    )
    assert_mistake(
        comparing,
        f"--evaluate test (evaluate='test' in Python): task {task} has no translations to score; "
        "leave it out",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("task", "settings", "parts"),
    [
        (
            "masked-lm",
            ["data.sequence_length=25"],
            ["data.sequence_length=25 is above model.positions=24"],
        ),
        (
            "language-model",
            ["data.sequence_length=25"],
            ["data.sequence_length=25 is above model.positions=24"],
        ),
        ("masked-lm", ["data.sequence_length=7"], ["sequence_length must be at least 8"]),
        (
            "masked-lm",
            ["data.corpus=absent"],
            ["no corpus at", "absent", "`normscope data documents`"],
        ),
        ("masked-lm", ["data.max_tokens=5"], ["unknown key 'data.max_tokens'"]),
        ("masked-lm", ["masked_lm.masked_share=1.5"], ["masked_share must lie between 0 and 1"]),
        ("masked-lm", ["masked_lm.whole_word=true"], ["did you mean 'masked_lm.whole_words'?"]),
        ("masked-lm", ["model.encoder_blocks=2"], ["unknown key 'model.encoder_blocks'"]),
        (
            "language-model",
            ["language_model.label_smoothing=1.0"],
            ["label_smoothing must lie in [0, 1)"],
        ),
        (
            "masked-llm",
            [],
            ["task must be one of translation, masked-lm, language-model", "got 'masked-llm'"],
        ),
    ],
)
def test_mistakes_in_the_configuration(
    task: str,
    settings: list[str],
    parts: list[str],
    tmp_path: Path,
    call: Callable[..., tuple[int, str, str]],
) -> None:
    assert_mistake(call("train", "--run", tmp_path / "run", *options(task, *settings)), *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared folders: `documents` of twelve, `pair` of parallel text, `one` with a single
    held-out document.
    """
    from normscope.data.documents.prepare import DocumentsConfig, prepare_documents
    from normscope.data.parallel.preparation import PrepareConfig
    from normscope.data.parallel.prepare import prepare

    place = tmp_path_factory.mktemp("corpora")
    draw = random.Random(1)
    words = ["red", "green", "house", "horse", "runs", "stands", "here", "there", "slowly", "today"]
    lines = [" ".join(draw.choices(words, k=6)) + f" {number} ." for number in range(60)]
    (place / "text").write_text(
        "".join(line + "\n" * (1 + (i % 5 == 4)) for i, line in enumerate(lines))
    )
    (place / "lines").write_text("".join(line + "\n" for line in lines))
    (place / "single").write_text(lines[0] + "\n")
    train = {"train": (place / "text",)}
    size = {"tokeniser": "bpe", "vocabulary_size": 290}
    prepare_documents(DocumentsConfig(out=place / "documents", splits=train, **size))
    prepare_documents(
        DocumentsConfig(out=place / "one", splits=train | {"valid": (place / "single",)}, **size)
    )
    sides = (place / "lines", place / "lines")
    names = {"source_language": "de", "target_language": "en", "vocabulary_size": 60}
    prepare(PrepareConfig(out=place / "pair", splits={"train": sides}, **names))
    return place


def test_mistakes_in_the_corpus(
    corpora: Path, tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    damaged = Path(shutil.copytree(corpora / "documents", tmp_path / "damaged"))
    flip(damaged / "train.tokens", 77)
    before = sorted(tmp_path.rglob("*"))

    def train(task: str, folder: Path) -> tuple[int, str, str]:
        return call(
            "train",
            "--run",
            tmp_path / "run",
            *options(task, f"data.corpus='{folder}'", "train.duration=1"),
        )

    for task in TASKS:
        assert_mistake(
            train(task, corpora / "pair"),
            "not a normscope-documents file; `normscope data documents` makes one",
        )
        assert_mistake(train(task, damaged), "train.tokens: damaged")
    assert_mistake(
        train("masked-lm", corpora / "one"),
        "the valid split has 1 document(s); at least 2 are needed",
    )
    translating = call(
        "train", "--run", tmp_path / "run", "--set", f"data.corpus='{corpora / 'documents'}'"
    )
    assert_mistake(translating, "not a normscope-corpus file; `normscope data prepare` makes one")
    assert sorted(tmp_path.rglob("*")) == before
    assert (
        train("language-model", corpora / "one")[0] == 0
    )  # one held-out document will do to judge a language model


def test_data_documents_prints_what_it_made(
    corpora: Path, tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    text, single = corpora / "text", corpora / "single"
    made = [
        "data",
        "documents",
        tmp_path / "out",
        "--train",
        text,
        "--train",
        text,
        "--test",
        single,
    ]
    learned = [*made, "--tokeniser", "bpe", "--vocabulary-size", 290, "--lowercase"]
    code, out, err = call(*learned)
    assert code == 0, err
    assert err == "read ...\nlearn ...\nencode ...\n"
    assert out.startswith((f"{tmp_path / 'out'}: prepared\n", f"{tmp_path / 'out'}:\nprepared\n"))
    lines = out.partition("prepared")[2].splitlines()
    assert lines[1].startswith("train: 22 documents, 110 sentences, 880 words, ")
    assert [line.split(",")[0] for line in lines[2:4]] == [
        "test: 1 documents",
        "valid: 2 documents",
    ]
    assert lines[-1] == "vocabulary: 290"
    assert "unchanged, nothing done" in " ".join(call(*learned)[1].split())
    taken = [
        *made[:2],
        tmp_path / "taken",
        *made[3:],
        "--tokeniser",
        tmp_path / "out/tokenizer.json",
    ]
    assert call(*taken)[0] == 0
    left = sorted(tmp_path.iterdir())
    for arguments, part in (
        (
            [*made, "--tokeniser", "unigram"],
            "--tokeniser takes wordpiece, bpe or a tokenizer.json, got 'unigram'",
        ),
        ([*made, "--tokeniser", tmp_path / "absent.json"], "absent.json: no such file"),
        (
            [*taken, "--lowercase"],
            "lowercase and a vocabulary size are for a tokeniser that is learned",
        ),
        (
            [*made[:2], tmp_path / "x", "--train", single],
            "only one document; at least 2 are needed",
        ),
        ([*made[:2], tmp_path / "x", "--train", tmp_path / "absent"], "absent: no such file"),
        ([*made, "--vocabulary-size", "20"], "vocabulary size 20 is too small"),
    ):
        assert_mistake(_without_stages(call(*arguments)), part)
    assert sorted(tmp_path.iterdir()) == left
    code, out, err = call(*made, "--layout", "xml")
    assert (code, out) == (2, "")


def _without_stages(called: tuple[int, str, str]) -> tuple[int, str, str]:
    code, out, err = called
    return (
        code,
        out,
        "".join(line for line in err.splitlines(keepends=True) if not line.endswith(" ...\n")),
    )
