"""What every verb prints: within the terminal's columns, uncut, also where it has ASCII alone."""

import io
import json
import math
import os
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

import forked
from faults.desk import PRETRAINING, lay_out
from labelled_toy import written
from normscope.cli.main import _HOMES, main
from normscope.compare import grid
from tiny import finish, options, tiny

SMALL = shlex.join(
    options(
        "train.duration=2", "train.validate_every=1", "data.toy_pairs=100", "data.max_tokens=128"
    )
)
LINES = (
    "",
    "placements",
    "placements --long",
    "placements show deepnorm ngpt",
    "choose",
    "choose pre-ln --long",
    "choose all --blocks 24 --width 1024 --optimizer muon --tokens 5e9 --long",
    "predict",
    "predict pre-ln post-ln --blocks 48 --update adam --rate 1e-3",
    "predict independent-hyper-connections residual --stack encoder-decoder --blocks 2",
    "predict independent-hyper-connections residual --blocks 2",
    "doctor --rules",
    "doctor --log trainer_state.json",
    f"train --dry-run {SMALL}",
)
PLAIN = [setting for setting in PRETRAINING[1:] if "masked" not in setting]
TEXT = shlex.join(
    word for setting in (*PLAIN, 'data.corpus="documents"') for word in ("--set", setting)
)
TRAINED = (
    f"train --run trained {SMALL}",
    "data documents documents --train desk/text.txt --vocabulary-size 120",
    f"train --run text --set task=language-model {TEXT}",
    "evaluate trained --beam 1",
    "translate trained --beam 1",
    "generate text --tokens 8 --prompt the",
    "report trained",
    "doctor trained --no-advice",
    "doctor --log trained",
    f"compare --out grid --arms post-ln:0,pre-ln:2 --peak-lr 3e-3 --processes 1 {SMALL}",
    "report grid",
    "data prepare pairs --train desk/train.de desk/train.en --languages de en --vocabulary-size "
    "120",
    "demo --out shown-COLUMNS --processes 1",
    "transplant own_model.py:build --to peri-ln --out out/moved-COLUMNS",
    "export desk/pre out/exported-COLUMNS",
    "finetune desk/pre --train desk/train.tsv --dev desk/dev.tsv --search none --epochs 1 --seeds "
    "2 --processes 1 --out out/tuned-COLUMNS",
    "study lemmas --scale smoke --out study --set seeds=2 --set blocks=2 --set width=8 --set "
    "tokens=4 --set vectors=5 --set singular_width=8",
)
"""Verbs that work with models, on two updates of a tiny one; what one has made is there for the
next.
"""
OWN = """
import torch
from torch import nn

def build():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 7, 32)
"""


def too_long(printed: list[str], columns: int) -> list[str]:
    """Lines longer than the columns, but those in which one word is."""
    return [
        one for one in printed if len(one) > columns and max(map(len, one.split())) < columns - 8
    ]


def assert_fits(line: str, printed: list[str], columns: int) -> None:
    """No line is cut, none too long, and none coloured."""
    assert too_long(printed, columns) == [], line
    assert [one for one in printed if one.rstrip().endswith(("…", "...")) or "\x1b" in one] == [], (
        line
    )


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("columns", [80, 120])
def test_lines_keep_to_the_columns_and_nothing_is_cut(columns: int, tmp_path: Path) -> None:
    log = [
        {"step": at, "loss": 3.0 if at < 50 else math.nan, "learning_rate": 1e-3}
        for at in range(1, 99)
    ]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    for line, (code, printed) in zip(LINES, said(tmp_path, LINES, columns), strict=True):
        assert len(printed) > 5, line
        assert_fits(line, printed, columns)
        assert code == ("1" if "--log" in line else "0"), line


def said(folder: Path, lines: tuple[str, ...], columns: int) -> list[tuple[str, list[str]]]:
    """Exit code and printed lines of each, on a terminal that has ASCII alone."""
    code, out, err = finish(forked.call(say_all, folder, lines, str(columns)))
    assert code == 0, err
    assert "Traceback" not in err
    assert too_long(err.splitlines(), columns) == []
    assert out.isascii()
    first, *others = f"\n{out}".split("\n==== ")
    texts = [first, *(text.partition("\n")[2] for text in others)]
    return [(after[:1], text.splitlines()) for text, after in zip(texts, others, strict=False)]


def say_all(folder: Path, lines: tuple[str, ...], columns: str) -> None:
    """Print what is said for each of the lines, and its exit code."""
    os.chdir(folder)
    os.environ["COLUMNS"] = columns
    grid.demo_config = lambda: tiny("train.duration=2", "data.toy_pairs=100", "data.max_tokens=128")
    grid.DEMO_GRID = replace(grid.DEMO_GRID, placements_and_warmups=(("post-ln", 0), ("pre-ln", 1)))
    ascii_alone = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115
    with ascii_alone, redirect_stdout(ascii_alone), forked.pool_forks():
        for line in lines:
            sys.stdin = io.TextIOWrapper(io.BytesIO(b"ein hund\n"))
            sys.argv = ["normscope", *shlex.split(line.replace("COLUMNS", columns))]
            code: object = 0
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
            print(f"\n==== {code}")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verbs")
    for name in ("text.txt", "pre"):
        lay_out(folder / "desk", name)
    (folder / "own_model.py").write_text(OWN)
    written(folder / "desk")
    return folder


@pytest.mark.thorough
@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("columns", [80, 120])
def test_what_is_said_of_trainings_keeps_to_them_too(columns: int, desk: Path) -> None:
    heard = [*said(desk, TRAINED[:10], columns), *said(desk, TRAINED[10:], columns)]
    for line, (code, printed) in zip(TRAINED, heard, strict=True):
        assert code == "0", line
        assert list(filter(None, printed)), line
        if not line.startswith("translate"):  # a sentence has a line, whatever its length
            assert_fits(line, printed, columns)


def test_every_verb_is_looked_at() -> None:
    # What `mcp` prints is a file, or for a program.
    assert {line.split()[0] for line in (*LINES[1:], *TRAINED)} == set(_HOMES) - {"mcp"}


def test_an_empty_section_is_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["normscope", "choose", "pre-ln", "--long"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().out
    assert "Which placements end lower than Pre-LN?" not in said
    assert "Which placements train without warm-up?" in said
