"""What was received runs no code: files of every kind, each with a tripwire, through every command
that reads them.
"""

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import forked
from normscope.cli.shared import VERBS
from normscope.compare.grid import _CONFIGURATIONS
from normscope.processes.surroundings import interpreter
from tiny import MY_PLACEMENT, finish, options

ROOT = Path(__file__).parents[2]
NAMES = (
    "sitecustomize.py",
    "conftest.py",
    "__init__.py",
    "modeling_evil.py",
    "configuration_evil.py",
    "typer.py",
)
"""Of Python files that some reader of a folder may look for."""


OWN_MODEL = """
import torch
from torch import nn


def build():
    return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5))


def batches(number):
    x = torch.randint(5, (3, 2))
    return x, x
"""


class Tripwire:
    """Whatever unpickles it makes the file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.marker), "w")


def tripped(folder: Path) -> bool:
    return (folder / "ran").exists()


def lay(folder: Path, *pickled: str, **texts: object) -> Path:
    """A folder of tripwires: Python files, pickles of these names, and texts by name, with `__` for
    a dot.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*NAMES, "evil.py"):
        (folder / name).write_text(
            f"open({str(folder / 'ran')!r}, 'w')\n{MY_PLACEMENT.replace('half-ln', 'evil-ln')}"
        )
    for name in pickled:
        (folder / name).write_bytes(pickle.dumps(Tripwire(folder / "ran")))
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(
            text if isinstance(text, str) else json.dumps(text)
        )
    return folder


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a placement whose file is a tripwire by now."""
    folder = tmp_path_factory.mktemp("received")
    (folder / "evil.py").write_text(MY_PLACEMENT.replace("half-ln", "evil-ln"))
    words = options("train.duration=1", "model.placement=evil-ln")
    command = ["train", "--run", str(folder / "run"), "--import", str(folder / "evil.py"), *words]
    code, _, err = finish(forked.start(*command))
    assert code == 0, err
    return lay(folder)


def says(folder: Path, *words: object) -> None:
    """Run a command in the folder; it may refuse, and never with a traceback."""
    _, out, err = finish(forked.start(*map(str, words), cwd=folder, stdin=b"hund\n"))
    assert "Traceback" not in err + out, err
    assert not tripped(folder), words


def test_a_received_run(received: Path, tmp_path: Path) -> None:
    run = received / "run"
    says(received, "report", run, "--out", tmp_path)
    says(received, "doctor", run)
    says(received, "doctor", "--log", run)
    says(received, "evaluate", run)
    says(received, "translate", run)
    says(received, "generate", run)
    says(received, "export", run, tmp_path / "export")
    says(received, "train", run / "config.toml", "--dry-run")
    says(received, "compare", run / "config.toml", "--dry-run", "--out", tmp_path / "grid")


@pytest.mark.thorough
def test_a_received_run_of_a_model_of_somebody_s(tmp_path: Path) -> None:
    file, run = tmp_path / "evil.py", tmp_path / "run"
    file.write_text(OWN_MODEL)
    code, _, err = finish(
        forked.start("train", f"{file}:build", "--run", str(run), "--set", "train.duration=1")
    )
    assert code == 0, err
    lay(tmp_path)
    for words in (("report", run, "--out", tmp_path / "report"), ("doctor", run)):
        says(tmp_path, *words)
    for words in (
        ("evaluate", run),
        ("export", run, tmp_path / "export"),
        ("train", run / "config.toml", "--dry-run"),
    ):
        says(tmp_path, *words)
    says(tmp_path, "evaluate", run, "--trust")  # which runs what it was, and this it was not


def test_a_received_comparison(received: Path, tmp_path: Path) -> None:
    folder = lay(tmp_path / "out", "state.pkl")
    (folder / "runs").mkdir()
    (received / "run").rename(folder / "runs/one")
    try:
        text = (folder / "runs/one/config.toml").read_text()
        (folder / "cells.json").write_text(_CONFIGURATIONS.text({"one": text, "two": text}))
        says(folder, "report", folder)
        assert "evil-ln" in (folder / "report.html").read_text()
    finally:
        (folder / "runs/one").rename(received / "run")


def kinds() -> Iterator[
    tuple[str, dict[str, object], tuple[str, ...], tuple[tuple[str, ...], ...]]
]:
    """Name, texts, pickles, commands."""
    auto = {
        "auto_map": {"AutoConfig": "configuration_evil.Evil", "AutoModel": "modeling_evil.Evil"}
    }
    sizes = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 11, "n_positions": 8}
    gpt2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **sizes}
    looked = (("doctor", ".", "--no-advice"),)
    yield "code", {"config__json": {**gpt2, **auto}, "tokenizer_config__json": auto}, (), looked
    yield "own type", {"config__json": {**gpt2, **auto, "model_type": "evil"}}, (), looked
    yield "kernel", {"config__json": {**gpt2, "_attn_implementation": "evil/kernel"}}, (), looked
    yield "pickled weights", {"config__json": gpt2}, ("pytorch_model.bin",), looked
    yield (
        "corpus",
        {"corpus__json": "{}"},
        ("train.npy", "train.npz", "tokeniser.json"),
        (
            ("train", "--dry-run", "--set", "data.corpus=."),
            ("data", "documents", "made", "--train", "evil.py", "--tokeniser", "tokeniser.json"),
        ),
    )
    logs = (
        "trainer_state.json",
        "metrics.jsonl",
        "events.out.tfevents.1",
        "wandb-history.jsonl",
        "run-1.wandb",
    )
    yield "logs", {}, logs, tuple(("doctor", "--log", name) for name in (*logs, "."))
    yield "tokenizer", {"config__json": gpt2}, ("tokenizer.json", "model.safetensors"), looked
    yield (
        "configuration",
        {"my__toml": 'imports = ["evil.py"]\nmodel.placement = "evil-ln"\n'},
        (),
        (
            ("doctor", "my.toml"),
            ("train", "my.toml", "--dry-run"),
            ("compare", "my.toml", "--dry-run", "--out", "made"),
        ),
    )
    yield "study", {}, ("results.json", "pieces.json"), (("report", "."),)
    cell = {"cell_type": "code", "source": "open('ran', 'w')", "metadata": {}, "outputs": []}
    yield (
        "notebook",
        {"a__ipynb": {"cells": [cell], "nbformat": 4}},
        (),
        (("doctor", "a.ipynb"), ("report", "a.ipynb")),
    )


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(
    ("name", "texts", "pickled", "commands"), list(kinds()), ids=[kind[0] for kind in kinds()]
)
def test_received_files(
    name: str,
    texts: dict[str, object],
    pickled: tuple[str, ...],
    commands: tuple[tuple[str, ...], ...],
    tmp_path: Path,
) -> None:
    folder = lay(tmp_path / "in", *pickled, **texts)
    for words in commands:
        says(folder, *words)


def test_a_tripwire_trips(tmp_path: Path) -> None:
    folder = lay(
        tmp_path, "weights.bin", my__toml='imports = ["evil.py"]\nmodel.placement = "evil-ln"\n'
    )
    code, _, err = finish(
        forked.start("train", "my.toml", "--dry-run", "--trust", *options(), cwd=folder)
    )
    assert (code, tripped(folder)) == (0, True), err
    (folder / "ran").unlink()
    pickle.loads((folder / "weights.bin").read_bytes()).close()
    assert tripped(folder)


def test_no_file_of_the_current_folder_stands_for_a_module(tmp_path: Path) -> None:
    folder = lay(tmp_path)
    command = [*interpreter(), "-m", "normscope", "--version"]
    assert subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0
    assert not tripped(folder)
    subprocess.run([sys.executable, *command[2:]], cwd=folder, capture_output=True, check=False)
    assert tripped(folder)


def test_the_manual_has_a_row_for_every_verb() -> None:
    rows = [
        line.split("|")[1]
        for line in (ROOT / "docs/trust.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    said = {
        word for row in rows for code in re.findall(r"`([^`]+)`", row) for word in code.split()[:1]
    }
    assert {verb for verbs in VERBS.values() for verb in verbs} <= said
