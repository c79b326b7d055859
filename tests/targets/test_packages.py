"""A file in a package of the user's, which imports what lies beside it by a dot."""

import xml
from pathlib import Path

import pytest

from normscope.errors import UserError
from normscope.settings.files import OwnFile, import_file


def package(folder: Path, name: str) -> Path:
    inside = folder / name / "models"
    inside.mkdir(parents=True)
    for place in (inside.parent, inside):
        (place / "__init__.py").touch()
    (inside.parent / "sizes.py").write_text("WIDTH = 24\n")
    (inside / "own.py").write_text(
        "from ..sizes import WIDTH\n\n\nclass Model:\n    width = WIDTH\n"
    )
    return inside / "own.py"


def test_relative_imports_are_found_by_the_path_of_a_file(tmp_path: Path) -> None:
    file = package(tmp_path, "towers_of_mine")
    import_file(file)
    module = OwnFile.of(str(file)).module
    assert module.Model.width == 24
    assert module.__package__ == "towers_of_mine.models"


def test_a_package_that_is_there_before_is_not_taken_for_the_users(tmp_path: Path) -> None:
    file = package(tmp_path, xml.__name__)
    with pytest.raises(UserError, match="its relative imports are found where"):
        import_file(file)


def test_without_a_package_it_is_said_what_would_make_one(tmp_path: Path) -> None:
    file = tmp_path / "alone.py"
    file.write_text("from .sizes import WIDTH\n")
    with pytest.raises(UserError, match=r"relative import.*__init__\.py"):
        import_file(file)
