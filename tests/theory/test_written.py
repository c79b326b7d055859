"""docs/theory.md and the code name the same equations, and what the page names is there."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import normscope.theory

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (T\d+): .*?\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
ROOM = Path(normscope.theory.__file__).parent
MODULES = [file for file in sorted(ROOM.rglob("*.py")) if file != ROOM / "__init__.py"]
_CITED = re.compile(r"\b(?:Equations?|equations?(?: is| are)) (T[\dT, andto]*\d)")


def _cited(text: str) -> set[str]:
    """Returns the equations that docstrings name; "T4 to T6" has three."""
    found = set()
    for listed in _CITED.findall(text):
        for first, last in re.findall(r"T(\d+)(?: to T(\d+))?", listed):
            found |= {f"T{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def test_equations_are_numbered_in_order() -> None:
    assert list(SECTIONS) == [f"T{number}" for number in range(1, len(SECTIONS) + 1)]
    assert len(SECTIONS) >= 12


@pytest.mark.parametrize("number", SECTIONS)
def test_an_equation_has_its_origin_its_code_its_test_and_where_it_fails(number: str) -> None:
    section = SECTIONS[number]
    assert "```text\n" in section
    assert "*Derivation:*" in section or "*Assumes*" in section
    for word in ("*Code:*", "*Test", "*Fails*"):
        assert word in section, word


@pytest.mark.parametrize("number", SECTIONS)
def test_the_code_of_an_equation_is_there_and_names_it(number: str) -> None:
    (code,) = re.findall(r"\*Code:\*(.*?)\*Tests?:\*", SECTIONS[number], re.DOTALL)
    named = re.findall(r"`([\w.]+)`", code)
    assert named
    files = []
    for path in named:
        module, _, rest = path.rpartition(".")
        if "." in module and module.rpartition(".")[2][:1].isupper():
            module, _, owner = module.rpartition(".")
            rest = f"{owner}.{rest}"
        found = import_module(f"normscope.theory.{module}")
        files.append(Path(found.__file__ or ""))
        for name in rest.split("."):
            found = getattr(found, name)
    assert any(number in _cited(file.read_text(encoding="utf-8")) for file in files)


@pytest.mark.parametrize("number", SECTIONS)
def test_the_tests_of_an_equation_are_there(number: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)((?:::\w+)+)`", SECTIONS[number])
    assert named
    for file, names in named:
        body: list[ast.stmt] = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        for name in names.split("::")[1:]:
            (one,) = [node for node in body if getattr(node, "name", None) == name]
            body = getattr(one, "body", [])


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.relative_to(ROOM).as_posix())
def test_every_module_of_the_room_names_its_equations(file: Path) -> None:
    documented = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    assert _cited(documented)


def test_no_docstring_names_an_equation_that_is_not_on_the_page() -> None:
    cited = set()
    for file in MODULES:
        cited |= _cited(file.read_text(encoding="utf-8"))
    assert cited == set(SECTIONS)


def test_private_names_in_docstrings_exist() -> None:
    """Of the whole package: what a docstring calls `_name` is a name of some code."""
    package = ROOM.parent
    sources = {file: file.read_text(encoding="utf-8") for file in package.rglob("*.py")}
    names = set()
    for source in sources.values():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
    lost = {}
    for file, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            documented = isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
            text = ast.get_docstring(node) if documented else None
            for name in re.findall(r"`(_[a-z]\w*)`", text or ""):
                if name not in names:
                    lost[name] = file.relative_to(package).as_posix()
    assert not lost
