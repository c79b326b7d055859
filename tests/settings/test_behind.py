"""What a file of the user's imports of the user's own code."""

from pathlib import Path

from normscope.settings.behind import imported_behind


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def behind(file: Path) -> list[str]:
    found = imported_behind(file, file.read_bytes())
    return [str(path.relative_to(file.parent)) for path in found]


def test_modules_beside_it_are_found_and_what_they_import(tmp_path: Path) -> None:
    write(tmp_path, model="import first_one\nimport torch, os\n")
    write(tmp_path, first_one="def f():\n    from second_one import g\n")
    write(tmp_path, second_one="import first_one\n", not_imported="")
    assert behind(tmp_path / "model.py") == ["first_one.py", "second_one.py"]


def test_packages_are_found_by_whole_and_by_relative_names(tmp_path: Path) -> None:
    write(tmp_path, model="from own_parts.deep import block\n")
    write(tmp_path / "own_parts", __init__="", side="", unused="")
    write(tmp_path / "own_parts" / "deep", __init__="", block="from ..side import x\n")
    assert behind(tmp_path / "model.py") == [
        "own_parts/__init__.py",
        "own_parts/deep/__init__.py",
        "own_parts/deep/block.py",
        "own_parts/side.py",
    ]


def test_what_is_installed_stands_before_what_lies_beside(tmp_path: Path) -> None:
    write(tmp_path, model="import torch\nimport normscope\nimport json\n", torch="", json="")
    assert behind(tmp_path / "model.py") == []


def test_no_code_runs_and_what_is_no_python_imports_nothing(tmp_path: Path) -> None:
    write(tmp_path, model="import loud_one\n", loud_one="raise SystemExit\n")
    assert behind(tmp_path / "model.py") == ["loud_one.py"]
    write(tmp_path, model="import \x00", broken="def (")
    assert behind(tmp_path / "model.py") == behind(tmp_path / "broken.py") == []
