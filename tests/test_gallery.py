"""docs/gallery.ipynb shows what its code gives now."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import in_process
from normscope.compare import pool
from normscope.report.notebook import LIMIT_BYTES
from notebooks import Cell, executed, load, told

FILE = Path(__file__).parents[1] / "docs" / "gallery.ipynb"
AGAIN = "run `make gallery` and commit what it writes"
SHORT = {
    "train__duration=100": "train__duration=2",
    "train__validate_every=25": "train__validate_every=1",
}
"""Runs of the test; a minute as printed."""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Cell, Cell]]:
    """Code cells as they are committed, beside what they give now."""
    committed = load(FILE)
    shorter = {
        **committed,
        "cells": [{**cell, "source": _shorter(cell)} for cell in committed["cells"]],
    }
    with pytest.MonkeyPatch.context() as patch:
        # The pool's processes have tests of their own.
        patch.setattr(pool, "run_cells", in_process.run_cells)
        now = executed(shorter, tmp_path_factory.mktemp("gallery"))
    pairs = zip(committed["cells"], now["cells"], strict=True)
    return [(old, new) for old, new in pairs if old["cell_type"] == "code"]


def _shorter(cell: Cell) -> str:
    source = "".join(cell["source"])
    for printed, short in SHORT.items():
        source = source.replace(printed, short)
    return source


def test_every_output_is_what_the_code_gives_now(cells: list[tuple[Cell, Cell]]) -> None:
    seen = 0
    for old, new in cells:
        assert [sorted(one.get("data", {})) for one in old["outputs"]] == [
            sorted(one.get("data", {})) for one in new["outputs"]
        ], AGAIN
        if "trained" not in old["metadata"].get("tags", ()):
            assert told(old) == told(new), AGAIN
            seen += bool(told(old))
    assert seen >= 4


def test_a_training_is_shown_with_the_same_configurations(cells: list[tuple[Cell, Cell]]) -> None:
    """Their numbers are of longer runs; what was trained is the same."""
    named = re.compile(r"^(?:Post|Pre)-LN, (?:no warm-up|warm-up \d+)$")
    shown = [
        [{line for line in told(cell) if named.match(line)} for cell in pair] for pair in cells
    ]
    assert [old for old, _ in shown] == [new for _, new in shown]
    assert {len(old) for old, _ in shown} == {0, 4}


def test_outputs_are_small_and_the_notebook_names_no_machine(
    cells: list[tuple[Cell, Cell]],
) -> None:
    for old, _ in cells:
        for output in old["outputs"]:
            assert all(
                len("".join(text).encode()) <= LIMIT_BYTES
                for text in output.get("data", {}).values()
            )
    text = FILE.read_text(encoding="utf-8")
    assert not re.search(r'[ ">](/[a-z]+){2,}/', text)
    assert "<script" not in text
    assert [old["execution_count"] for old, _ in cells] == list(range(1, len(cells) + 1))


def test_every_link_of_the_notebook_leads_somewhere() -> None:
    for cell in load(FILE)["cells"]:
        if cell["cell_type"] == "markdown":
            for target in re.findall(r"\]\(([^)#]+)", "".join(cell["source"])):
                assert (FILE.parent / target).exists(), target


def test_the_notebook_for_lent_machines_installs_the_wheel_and_looks_at_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is installed here: the command is caught, and NormScope is there."""
    notebook = load(FILE.with_name("first.ipynb"))
    (address,) = (cell for cell in notebook["cells"] if "".join(cell["source"]) == 'WHEEL = ""')
    ran: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **options: ran.append(command))
    assert not executed({**notebook, "cells": notebook["cells"][:3]}, tmp_path)["cells"][2][
        "outputs"
    ]
    assert ran == []
    address["source"] = ['WHEEL = "https://x/normscope.whl"']
    shown = [cell for cell in executed(notebook, tmp_path)["cells"] if cell.get("outputs")]
    assert ran == [[sys.executable, "-m", "pip", "install", "--quiet", "https://x/normscope.whl"]]
    first, moved = (" ".join(told(cell)) for cell in shown)
    assert "missing-final-norm" in first
    assert "pre-ln" in first
    assert "peri-ln" in moved
