"""Today's predictions beside the models that `benchmarks/theory_draws.py` has drawn, and the table
of docs/theory.md.
"""

import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import theory_draws  # noqa: E402

HELD = theory_draws.held()
PAGE = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([\w-]+) \| (\d+) \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
CELL = re.compile(r"([+-][\d.]+) ± ([\d.]+) \((?:(encoder|decoder) )?(\w+) (\d+)(, doubted)?\)")
ROWS = {name: (int(draws), cells) for name, draws, *cells in ROW.findall(PAGE)}


@cache
def errors(name: str) -> list[theory_draws.Off]:
    return theory_draws.compared({name: HELD[name]})[name]


def test_every_setting_was_drawn_and_stands_on_the_page() -> None:
    assert set(HELD) == set(theory_draws.SETTINGS) == set(ROWS)
    assert {name: draws for name, (draws, _) in ROWS.items()} == {
        name: setting.draws for name, setting in theory_draws.SETTINGS.items()
    }


@pytest.mark.parametrize("name", HELD)
def test_nothing_is_surely_off_by_more_than_is_said(name: str) -> None:
    """By 7 % of gradients and of the stream, by 10 % of queries and keys, unless it is doubted."""
    beyond = []
    for off in errors(name):
        if not off.doubted and off.surely > theory_draws.limit_of(off):
            beyond.append(off.words)
    assert beyond == []


@pytest.mark.parametrize("name", HELD)
def test_the_page_has_the_errors_that_are_found(name: str) -> None:
    found = {(off.stack, off.matrix, off.block): off for off in errors(name)}
    cells = [CELL.fullmatch(cell) for cell in ROWS[name][1] if cell]
    assert cells
    for cell in cells:
        assert cell is not None
        error, standard, stack, matrix, block, doubted = cell.groups()
        off = found[stack or "", matrix, int(block)]
        # Printed to a tenth; processors differ in the last digits.
        assert float(error) == pytest.approx(off.error, abs=0.1)
        assert float(standard) == pytest.approx(off.standard, abs=0.06)
        assert bool(doubted) == off.doubted


def test_a_prediction_that_is_off_is_found() -> None:
    setting = theory_draws.SETTINGS["tied-pre-ln-1"]
    prediction = theory_draws.predict(setting.placement, setting.model)["encoder"]
    measured = HELD["tied-pre-ln-1"]["encoder"]
    larger = {name: dict(curve) for name, curve in measured.items()}
    larger["value"]["mean"] = (1.12 * np.array(measured["value"]["mean"])).tolist()
    beyond = [
        off.matrix
        for off in theory_draws.errors_of(prediction, larger)
        if off.surely > theory_draws.limit_of(off)
    ]
    assert beyond == ["value"]
