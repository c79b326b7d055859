"""A command for every option that writes a file and for every verb that makes a folder, called in
this process.
"""

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import in_process
from normscope.cli.main import main
from normscope.compare import pool
from tiny import options

MODEL = """from torch import nn, randn


def build():
    layers = [nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2)]
    return nn.Sequential(*layers), (randn(2, 5, 16),)
"""
LOG = '{"log_history": [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.5}]}'
DOCTOR = "doctor model.py:build --no-advice --fail-on error"
EVALUATE = "evaluate run --device cpu --beam 1"
OPTIONS = {
    "doctor --html": (f"{DOCTOR} --html FILE", "page.html"),
    "doctor --json": (f"{DOCTOR} --json FILE", "page.json"),
    "doctor --log --json": ("doctor --log trainer_state.json --json FILE", "log.json"),
    "doctor --card": (f"{DOCTOR} --card FILE", "card.md"),
    "the badge": (f"{DOCTOR} --card CARD", "card.svg"),
    "predict --plot": ("predict pre-ln --blocks 2 --plot FILE", "curves.svg"),
    "placements show --svg": ("placements show pre-ln --blocks 2 --svg FILE", "wiring.svg"),
    "evaluate --save": (f"{EVALUATE} --save FILE", "scores.json"),
    "evaluate --output": (f"{EVALUATE} --output FILE", "lines.txt"),
}
"""A command for each option that writes a file, and the file's name."""
LATE = "evaluate --output"
"""A text of lines may be equal to what is there, which is known when it is made alone."""
EARLY = [name for name in OPTIONS if name != LATE]
NAMED = [name for name in OPTIONS if name != "the badge"]
"""Those that may be given any file."""
SHORT = " ".join(options("train.duration=1", "data.toy_pairs=60"))
DOCUMENTS = "data documents FOLDER --train text.txt --vocabulary-size 90"
PAIRS = "data prepare FOLDER --train train.de train.en --languages de en --vocabulary-size 110"
FOLDERS = {
    "data documents": DOCUMENTS,
    "data prepare": PAIRS,
    "train --run": f"train --run FOLDER {SHORT}",
    "compare --out": f"compare --out FOLDER --arms pre-ln:0 --peak-lr 3e-3 --processes 1 {SHORT}",
    "report --out": "report run --out FOLDER",
    "transplant --out": "transplant model.py:build --to peri-ln --out FOLDER",
    "study --out": (
        "study lemmas --scale smoke --out FOLDER --set seeds=2 --set blocks=2 --set width=8 "
        "--set singular_width=4 --set tokens=4 --set vectors=5"
    ),
}
"""A command for each verb that makes a folder; `export` is one more that makes it whole or not at
all (`test_ours.py`), and `demo` is `compare`.
"""


def called(words: str, desk: Path, **paths: Path) -> tuple[int, str]:
    """The exit code of a command in this process, and what it told. paths: for words in
    capitals.
    """
    given = words.split(" ")
    for name, path in paths.items():
        given = [word.replace(name, str(path)) for word in given]
    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(desk)
        patch.setattr(sys, "argv", ["normscope", *given])
        patch.setattr(pool, "run_cells", in_process.run_cells)
        with (
            redirect_stderr(told),
            redirect_stdout(io.StringIO()),
            pytest.raises(SystemExit) as end,
        ):
            main()
    return int(end.value.code or 0), told.getvalue()


def refused(words: str, desk: Path, **paths: Path) -> str:
    """What a command told that has to end in one line, with exit code 2."""
    code, told = called(words, desk, **paths)
    errors = [line for line in told.splitlines() if line.startswith("error: ")]
    assert (code, len(errors)) == (2, 1), told
    return errors[0]


@contextmanager
def within(desk: Path) -> Iterator[Path]:
    """A new folder for an example."""
    with tempfile.TemporaryDirectory(dir=desk.parent) as place:
        yield Path(place)


def parts(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file()]
