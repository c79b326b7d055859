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
    for listed in _CITED.findall(" ".join(text.split())):
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


PLUMBING = {
    "says that a number has no name of its own": {"moments.Moments.__rtruediv__"},
    "holds coefficients or moments, and computes none": {
        "lanes.Grown.append",
        "lanes.first_of",
        "lanes.growing",
        "lanes._held",
        "lanes._appended",
        "moments._LastTotal.sum_before",
        "places._filled",
    },
    "asks something of a number, or rounds it": {
        "lanes._is_same",
        "lanes.divides",
        "mixing.between",
        "mixing.root",
        "mixing.vanishes",
    },
    "sorts what was computed": {"change._by_kind", "doubts._runs"},
    "chooses what is predicted, and how": {
        "predict._placement",
        "predict.predict_many",
        "predict.predict_or_refuse",
        "predict._each",
        "predict._one",
        "predict._numbers_in_words",
    },
    "reads a setting, or its shape": {
        "settings.InitialState.output_is_drawn",
        "settings.InitialState.width",
        "settings.ModelSetting.shape",
        "stream.MomentStack.tokens",
        "stream._sites",
        "sublayers.Projection.length",
    },
}
"""Functions that compute no quantity, by why not."""
_BUILT = re.compile(r"__(init|new|post_init|len|getitem|getattr)__$")
"""Methods that build an object or find an entry of it."""


def _functions(file: Path) -> dict[str, ast.FunctionDef]:
    """Returns a module's functions by their full names, those within a function left out: the
    function that they stand in says what they are for.
    """
    module = ".".join(file.relative_to(ROOM).with_suffix("").parts).removesuffix(".__init__")
    found: dict[str, ast.FunctionDef] = {}

    def look(body: list[ast.stmt], owner: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                look(node.body, f"{owner}.{node.name}")
            elif isinstance(node, ast.FunctionDef):
                found[f"{owner}.{node.name}"] = node

    look(ast.parse(file.read_text(encoding="utf-8")).body, module)
    return found


FUNCTIONS = {name: one for file in MODULES for name, one in _functions(file).items()}
QUANTITIES = {
    name: one
    for name, one in FUNCTIONS.items()
    if not _BUILT.search(name) and not any(name in some for some in PLUMBING.values())
}


def test_every_function_that_computes_cites_its_equation() -> None:
    silent = [name for name, one in QUANTITIES.items() if not _cited(ast.get_docstring(one) or "")]
    assert not silent, "cite an equation of docs/theory.md, or say in PLUMBING why there is none"
    assert len(QUANTITIES) > 250


def test_plumbing_is_there_and_cites_nothing() -> None:
    for names in PLUMBING.values():
        for name in names:
            assert not _cited(ast.get_docstring(FUNCTIONS[name]) or ""), name


@pytest.mark.parametrize("number", SECTIONS)
def test_every_equation_is_cited_by_a_function(number: str) -> None:
    citing = [
        name for name, one in QUANTITIES.items() if number in _cited(ast.get_docstring(one) or "")
    ]
    # `predict` cites all of them.
    assert [name for name in citing if name != "predict.predict"]


def _numbers(tree: ast.Module) -> dict[str, str]:
    """Returns a module's constants that are numbers, each with what stands below it."""
    found = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        parts = [one for one in ast.walk(node.value) if isinstance(one, ast.Constant | ast.Name)]
        is_value = isinstance(node.value, ast.Constant | ast.UnaryOp | ast.BinOp | ast.Tuple)
        if is_value and all(isinstance(getattr(one, "value", None), int | float) for one in parts):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            found[node.targets[0].id] = str(after.value.value) if is_text else ""
    return found


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.relative_to(ROOM).as_posix())
def test_every_constant_says_where_it_comes_from(file: Path) -> None:
    numbers = _numbers(ast.parse(file.read_text(encoding="utf-8")))
    assert not [name for name, text in numbers.items() if len(text.split()) < 4]


def test_a_constant_without_a_word_is_found() -> None:
    tree = ast.parse('A = 2\n"""Directions: x and its mean."""\nB = -1.5\nC = f(3)\nD = (1, 2)\n')
    assert _numbers(tree) == {"A": "Directions: x and its mean.", "B": "", "D": ""}


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
