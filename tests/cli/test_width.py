"""What every verb prints that trains nothing: within the terminal's columns, uncut, also where it has ASCII alone."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    "train --dry-run",
)
PROGRAM = """
import json, sys
from normscope.cli.main import main

for line in json.loads(sys.argv[1]):
    sys.argv[1:] = line.split()
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    print(f"\\n==== {code}", flush=True)
"""


@pytest.mark.parametrize("columns", [80, 120])
def test_lines_keep_to_the_columns_and_nothing_is_cut(columns: int, tmp_path: Path) -> None:
    log = [{"step": at, "loss": 3.0 if at < 50 else math.nan, "learning_rate": 1e-3} for at in range(1, 99)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    settings = {"COLUMNS": str(columns), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(LINES)], cwd=tmp_path, env=os.environ | settings, capture_output=True
    )
    assert b"Traceback" not in done.stderr, done.stderr
    said = done.stdout.decode("utf-8").split("\n==== ")
    assert len(said) == len(LINES) + 1
    for line, text, after in zip(LINES, said, said[1:], strict=False):
        lines = text.splitlines()[1 if line != LINES[0] else 0 :]
        assert len(lines) > 5, line
        assert [one for one in lines if len(one) > columns] == [], line
        assert [one for one in lines if one.rstrip().endswith(("…", "..."))] == [], line
        assert after[:1] == ("1" if "--log" in line else "0"), line


def test_an_empty_section_is_not_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from normscope.cli.main import main

    monkeypatch.setattr(sys, "argv", ["normscope", "choose", "pre-ln"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().out
    assert "Which placements end lower than Pre-LN?" not in said
    assert "Which placements do without warm-up?" in said
