"""What verbs print that train nothing: within the terminal's columns, uncut, also where it has ASCII alone."""

import json
import math
import os
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import forked
from normscope.cli.main import main
from tiny import finish

LINES = (
    "",
    "placements",
    "placements --long",
    "placements show deepnorm ngpt",
    "choose",
    "choose pre-ln",
    "choose all --blocks 24 --width 1024 --optimizer muon --tokens 5e9",
    "predict",
    "predict pre-ln post-ln --blocks 48 --update adam --rate 1e-3",
    "predict independent-hyper-connections residual --stack encoder-decoder --blocks 2",
    "predict independent-hyper-connections residual --blocks 2 --exponents",
    "doctor --rules",
    "doctor --log trainer_state.json",
    "train --dry-run --set data.toy_pairs=300",
)


def assert_fits(line: str, printed: list[str], columns: int) -> None:
    """No line is cut, none longer than the columns but where one word is, and none coloured."""
    long = [one for one in printed if len(one) > columns and max(map(len, one.split())) < columns - 8]
    assert long == [], line
    assert [one for one in printed if one.rstrip().endswith(("…", "...")) or "\x1b" in one] == [], line


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("columns", [80, 120])
def test_lines_keep_to_the_columns_and_nothing_is_cut(columns: int, tmp_path: Path) -> None:
    log = [{"step": at, "loss": 3.0 if at < 50 else math.nan, "learning_rate": 1e-3} for at in range(1, 99)]
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
    assert out.isascii()
    first, *others = f"\n{out}".split("\n==== ")
    texts = [first, *(text.partition("\n")[2] for text in others)]
    return [(after[:1], text.splitlines()) for text, after in zip(texts, others, strict=False)]


def say_all(folder: Path, lines: tuple[str, ...], columns: str) -> None:
    """Print what is said for each of the lines, and its exit code."""
    os.chdir(folder)
    os.environ["COLUMNS"] = columns
    with open(1, "w", encoding="ascii", closefd=False) as ascii_alone, redirect_stdout(ascii_alone):
        for line in lines:
            sys.argv = ["normscope", *shlex.split(line.replace("COLUMNS", columns))]
            code: object = 0
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
            print(f"\n==== {code}")


def test_an_empty_section_is_not_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["normscope", "choose", "pre-ln"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().out
    assert "Which placements end lower than Pre-LN?" not in said
    assert "Which placements do without warm-up?" in said
