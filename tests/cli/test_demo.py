"""The verb `demo`: what it passes on to the comparison that it is."""

import sys
from pathlib import Path

import pytest

from normscope.cli.main import main
from normscope.compare import compare as comparing
from normscope.compare.grid import Cell
from normscope.compare.pool import PoolOptions
from normscope.errors import UserError
from normscope.train import StopRule


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ((), None),
        (("--stop-when", "decided"), StopRule()),
        (("--stop-when", "decided:5"), StopRule(5)),
    ],
)
def test_its_runs_end_early_where_that_is_asked_for(
    words: tuple[str, ...], rule: StopRule | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, StopRule | None]] = []

    def run_comparison(
        cells: list[Cell], folder: Path, options: PoolOptions, **others: object
    ) -> None:
        asked.append((folder, options.stop_when))
        raise UserError("enough was seen")

    monkeypatch.setattr(comparing, "run_comparison", run_comparison)
    monkeypatch.setattr(sys, "argv", ["normscope", "demo", "--out", str(tmp_path / "demo"), *words])
    with pytest.raises(SystemExit):
        main()
    assert asked == [(tmp_path / "demo", rule)]
