"""What every verb prints that trains nothing: within the terminal's columns, uncut, also where it has ASCII alone."""

import json
import math
import os
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
    "predict independent-hyper-connections residual --stack encoder-decoder --blocks 2 --exponents",
    "doctor --rules",
    "doctor --log trainer_state.json",
    "train --dry-run --set data.toy_pairs=300",
)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("columns", [80, 120])
def test_lines_keep_to_the_columns_and_nothing_is_cut(columns: int, tmp_path: Path) -> None:
    log = [{"step": at, "loss": 3.0 if at < 50 else math.nan, "learning_rate": 1e-3} for at in range(1, 99)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    code, out, err = finish(forked.call(say_all, tmp_path, str(columns)))
    assert code == 0, err
    assert "Traceback" not in err
    said = out.split("\n==== ")
    assert len(said) == len(LINES) + 1
    for line, text, after in zip(LINES, said, said[1:], strict=False):
        lines = text.splitlines()[1 if line != LINES[0] else 0 :]
        assert len(lines) > 5, line
        assert [one for one in lines if len(one) > columns] == [], line
        assert [one for one in lines if one.rstrip().endswith(("…", "..."))] == [], line
        assert after[:1] == ("1" if "--log" in line else "0"), line


def say_all(folder: Path, columns: str) -> None:
    """What is printed for each of LINES, and its exit code, on a terminal that has ASCII alone."""
    os.chdir(folder)
    os.environ["COLUMNS"] = columns
    with open(1, "w", encoding="ascii", closefd=False) as ascii_alone, redirect_stdout(ascii_alone):
        for line in LINES:
            sys.argv = ["normscope", *line.split()]
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
