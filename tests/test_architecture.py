"""The house keeps its shape: imports run downwards, placements are known by name in one room, files stay short."""

import ast
import statistics
from collections.abc import Container, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import normscope
from normscope.placement import registered

ROOT = Path(normscope.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

MAY_IMPORT = {
    "__init__": set(),
    "__main__": {"cli", "signals"},
    "errors": set(),
    "limits": set(),
    "files": set(),
    "provenance": set(),
    "signals": set(),
    "processes": set(),
    # A folder is known as a run by its configuration file, and a disk that does not say so is an error of one line.
    "settings": {"files"},
    # What they start are commands of ours.
    "engines": {"files", "processes", "settings", "signals"},
    "placement": set(),
    "theory": {"placement"},
    # Configurations are made by hand too, and refuse names that there are not.
    "model": {"placement", "settings"},
    "measure": set(),
    "data": {"files"},
    "optim": {"settings"},
    "report": {"files"},
    # Advice is about optimisers, and what is said of a model are contents of a report.
    "doctor": {"measure", "theory", "placement", "optim", "report"},
    "train": {"files", "processes", "provenance", "signals", "optim", "settings"},
    "decode": {"model"},
    # A task is all that is particular to what a model learns: how its runs are configured, trained, decoded and loaded.
    "tasks": {"data", "decode", "model", "optim", "placement", "settings", "train"},
    # What they adapt: TensorBoard shows the training loop's events, and other trainers show the doctor's measurements.
    "adapters": {"files", "doctor", "report"},
    # A run may be measured over depth while it trains.
    "runs": {"doctor", "files", "measure", "model", "optim", "settings", "tasks", "train"},
    "exchange": {"files", "data", "model", "optim", "placement", "runs", "settings", "tasks", "train"},
    "targets": {"adapters", "doctor", "measure", "model", "optim", "runs", "settings", "tasks", "train"},
    # A placement's page has what theory says of it, beside what was measured.
    "catalogue": {"placement", "model", "report", "theory"},
    # A study drives runs, so it stands above what assembles one from a configuration.
    # Its spikes are made in another library's trainer too.
    "studies": {
        "adapters",
        "data",
        "doctor",
        "engines",
        "files",
        "measure",
        "model",
        "optim",
        "placement",
        "processes",
        "provenance",
        "report",
        "runs",
    }
    | {"settings", "signals", "tasks", "theory", "train"},
    # Evidence is what studies have found, looked up by what can be trained.
    "choosing": {"optim", "placement", "report", "settings", "studies", "theory"},
    # What Python offers, as the command line does: above everything that it joins.
    "api": {
        "catalogue",
        "choosing",
        "decode",
        "doctor",
        "engines",
        "model",
        "optim",
        "placement",
        "report",
        "runs",
        "settings",
        "studies",
        "tasks",
    }
    | {"theory", "train"},
    "cli": {
        "adapters",
        "api",
        "catalogue",
        "choosing",
        "data",
        "decode",
        "doctor",
        "engines",
        "exchange",
        "files",
        "optim",
        "placement",
    }
    | {"processes", "provenance", "report", "runs", "settings", "signals", "studies", "targets", "tasks", "theory"}
    | {"train"},
}
"""Room or file of the package's root -> what it may import; `errors` apart."""
WITHOUT_ERRORS = {
    "processes",
    "provenance",
    "signals",
    "placement",
    "measure",
    "report",
    "errors",
    "__init__",
    "__main__",
}
"""Rooms whose mistakes are ValueErrors: they serve callers that are not the command line."""


@cache
def parsed(path: Path) -> ast.Module:
    """Most tests go through every file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, "normscope.….name") for every import of ours, relative ones resolved."""
    package = ["normscope", *path.relative_to(ROOT).parent.parts]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "normscope")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = ".".join([*base, *([node.module] if node.module else [])])
            if full.split(".")[0] == "normscope":
                yield from ((node.lineno, f"{full}.{alias.name}") for alias in node.names)


def forbidden(path: Path) -> list[str]:
    room = room_of(path)
    found = []
    for line, name in imports(path):
        target = [*name.split("."), ""][1]
        if target in (room, "__version__"):
            continue
        # What a stranger's file may ask for is checked wherever one is read.
        if target == "limits":
            continue
        if target == "errors" and room not in WITHOUT_ERRORS:
            continue
        if target not in MAY_IMPORT[room]:
            found.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return found


def compared(tree: ast.AST, names: set[str]) -> list[int]:
    """Lines where one of `names` stands in a comparison or as a case of a match."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            constants = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            if constants & names:
                lines.append(node.lineno)
    return lines


def test_every_room_stands_in_the_table():
    assert {room_of(path) for path in FILES} <= MAY_IMPORT.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_downwards(path):
    assert forbidden(path) == []


def test_the_table_has_no_circle():
    left = {room: set(below) for room, below in MAY_IMPORT.items()}
    while left:
        free = {room for room, below in left.items() if not below & left.keys()}
        assert free, f"a circle among {', '.join(sorted(left))}"
        left = {room: below for room, below in left.items() if room not in free}


def test_placements_are_told_apart_in_their_own_files_alone():
    names = set(registered())
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in FILES
        if room_of(path) != "placement"
        for line in compared(parsed(path), names)
    ]
    assert found == []


def asks_for_a_task(tree: ast.AST, names: set[str]) -> list[int]:
    """Lines that ask which task a configuration has, by its class or by a task's name."""
    lines = compared(tree, names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            asked = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
            lines += [node.lineno] if any(name.endswith(("RunConfig", "LoadedRun")) for name in asked) else []
    return lines


def test_tasks_are_told_apart_in_their_own_room_alone():
    from normscope.tasks.registry import TASKS

    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in FILES
        if room_of(path) != "tasks"
        for line in asks_for_a_task(parsed(path), set(TASKS))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source", ['if config.task == "translation": pass', "x = isinstance(config, MaskedRunConfig | PairRunConfig)"]
)
def test_the_search_for_tasks_finds_what_it_looks_for(source):
    assert asks_for_a_task(ast.parse(source), {"translation"})


@pytest.mark.parametrize(
    "source",
    [
        'if placement == "pre-ln": pass',
        'x = 1 if name in ("post-ln", "deepnorm") else 2',
        'match name:\n    case "residual": pass',
        'match name:\n    case "a" | "pre-ln": pass',
    ],
)
def test_the_search_finds_what_it_looks_for(source):
    assert compared(ast.parse(source), set(registered()))


def test_the_import_search_finds_what_it_looks_for(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    room = tmp_path / "model"
    room.mkdir()
    path = room / "file.py"
    path.write_text(
        "import torch\nimport normscope.train\nfrom normscope.data import text\nfrom .. import cli\n"
        "from ..tasks.loss import f\nfrom ..placement import named\nfrom . import stack\nfrom .attention import g\n"
        "from ..errors import UserError\n"
    )
    assert [line.split()[-1] for line in forbidden(path)] == [
        "normscope.train",
        "normscope.data.text",
        "normscope.cli",
        "normscope.tasks.loss.f",
    ]


MODULES = {
    ".".join(["normscope", *p.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__"): p for p in FILES
}


def known_at_import(path: Path, modules: Container[str]) -> set[str]:
    """Modules that a file names outside of functions, in annotations' `if TYPE_CHECKING` too."""
    tree = parsed(path)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {line for node in functions for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    names = {name for line, name in imports(path) if line not in late}
    # What is imported from a module may be a module itself.
    return {name if name in modules else name.rpartition(".")[0] for name in names}


def in_circles(knows: Mapping[str, set[str]]) -> set[str]:
    """The modules that stay when those that know none of the others, or are known by none, are taken away in turn."""
    left = dict(knows)
    while True:
        known = {other for others in left.values() for other in others}
        kept = {name: others & left.keys() for name, others in left.items() if name in known and others & left.keys()}
        if kept == left:
            return set(left)
        left = kept


def test_no_module_stands_in_a_circle():
    assert in_circles({name: known_at_import(path, MODULES) - {name} for name, path in MODULES.items()}) == set()


def test_the_search_for_circles_finds_what_it_looks_for(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "model" / "file.py"
    path.parent.mkdir()
    path.write_text(
        "from typing import TYPE_CHECKING\nfrom . import stack\nif TYPE_CHECKING:\n    from .attention import g\n"
        "def f():\n    from .late import h\n"
    )
    modules = {"normscope.model.stack", "normscope.model.attention"}
    assert known_at_import(path, modules) == modules
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b", "c"}
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": set()}) == set()


def test_no_shelf_holds_more_than_twenty_files():
    shelves = {folder: list(folder.glob("*.py")) for folder in {path.parent for path in FILES}}
    crowded = {
        str(folder.relative_to(ROOT)): len(files)
        for folder, files in shelves.items()
        if len(files) > 20 and folder != ROOT / "placement" / "formulas"
    }
    assert crowded == {}
    assert len(shelves[ROOT]) <= 6


def test_files_stay_short():
    lines = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: count for name, count in lines.items() if count > 400} == {}
    assert statistics.median(lines.values()) <= 260
