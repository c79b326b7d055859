"""What the commands read, and what each of them makes where there is nothing."""

from pathlib import Path

import pytest

from faults.desk import lay_out
from limits.commands import FOLDERS, LOG, MODEL, OPTIONS, called


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place") / "desk"
    for name in ("train.de", "text.txt", "run"):
        lay_out(place, name)
    (place / "model.py").write_text(MODEL)
    (place / "trainer_state.json").write_text(LOG)
    return place


@pytest.fixture(scope="module")
def ours(desk: Path) -> dict[str, bytes]:
    """What every option writes where there is nothing."""
    found = {}
    folder = desk / "ours"
    folder.mkdir()
    for name, (words, file) in OPTIONS.items():
        code, told = called(words, desk, FILE=folder / file, CARD=folder / "card.md")
        assert code == 0, told
        found[name] = (folder / file).read_bytes()
    return found


@pytest.fixture(scope="module")
def folders(desk: Path) -> dict[str, Path]:
    """What every verb that makes a folder makes."""
    found = {}
    for name, words in FOLDERS.items():
        found[name] = desk / "folders" / name.partition(" -")[0].replace(" ", "-")
        found[name].parent.mkdir(exist_ok=True)
        code, told = called(words, desk, FOLDER=found[name])
        assert code == 0, told
    return found
