"""`make attack` runs what there is, and counts it as it ended."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def attacks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("attacks_main", HERE / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_kind_names_tests_that_are_there_each_in_one_kind(attacks: ModuleType) -> None:
    named = [test for kind in attacks.KINDS.values() for test in kind["tests"]]
    assert [test for test in named if not (ROOT / test).exists()] == []
    assert len(named) == len(set(named))


def test_no_test_of_the_rooms_of_attacks_is_left_out(attacks: ModuleType) -> None:
    named = [ROOT / test for kind in attacks.KINDS.values() for test in kind["tests"]]
    rooms = [ROOT / "tests" / room for room in ("limits", "faults", "fuzz")]
    there = {file for room in rooms for file in room.glob("test_*.py")}
    about_the_harness = {"test_verdicts.py", "test_watching.py"}
    left = {file for file in there if file not in named and file.parent not in named}
    assert {file.name for file in left} == about_the_harness


def test_an_end_counts_as_what_it_was(attacks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_right(): pass\n"
        "def test_wrong(): assert False\n"
        "@pytest.fixture\n"
        "def broken(): raise OSError\n"
        "def test_error(broken): pass\n"
        "def test_left_out(): pytest.skip('no')\n"
    )
    found = attacks.attacked([str(tmp_path / "test_some.py")], tmp_path / "report.xml")
    assert found == {"answered": 1, "wrong": 2, "skipped": 1}
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        attacks.attacked([str(tmp_path / "none.py")], tmp_path / "other.xml")
