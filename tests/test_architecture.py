"""The house keeps its shape: imports run downwards, placements are known by name in one room, no
shelf is crowded, and a file and a function hold one idea.

Each test lists whoever offends; below each stands a test that its search finds what it looks for,
and that of sizes in `test_anatomy.py`.
"""

import ast
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

import pytest

import normscope
import normscope_studies
from anatomy import long_files, long_functions, parsed
from normscope.placement import registered

ROOT = Path(normscope.__file__).parent
STUDIES = Path(normscope_studies.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
ALL_FILES = [*FILES, *sorted(STUDIES.rglob("*.py"))]

MAY_IMPORT = {
    "__init__": set(),
    "__main__": {"cli", "signals"},
    "errors": set(),
    "limits": set(),
    "files": set(),
    "provenance": set(),
    "signals": set(),
    "processes": set(),
    # A folder is known as a run by its configuration file, and a disk that does not say so is an
    # error of one line.
    "settings": {"files"},
    "placement": set(),
    "theory": {"placement"},
    # Configurations are made by hand too, and refuse names that there are not.
    "model": {"placement", "settings"},
    # What Python offers is held to its signature.
    "measure": {"settings"},
    "data": {"files", "processes"},
    "optim": {"settings"},
    "report": {"files"},
    # Advice is about optimisers and names known rates; a diagnosis is drawn as a report draws, and
    # its page written whole or not at all.
    "doctor": {"choosing", "files", "measure", "theory", "placement", "optim", "report"},
    # What is followed is what the doctor found, and what is added is what our own models have.
    "transplant": {"doctor", "files", "measure", "model", "placement"},
    # A copy of the user's model beside one of ours.
    "prove": {"doctor", "measure", "model", "optim", "placement", "transplant"},
    "train": {"files", "measure", "processes", "provenance", "signals", "optim", "settings"},
    # A search is long, and asks between two of its steps whether it is still wanted.
    "decode": {"data", "model", "signals"},
    # A task is all that is particular to what a model learns: how its runs are configured, trained,
    # decoded and loaded.
    "tasks": {"data", "decode", "model", "optim", "placement", "settings", "train", "transplant"},
    # What they adapt: TensorBoard shows the training loop's events, and other trainers show the
    # doctor's measurements.
    "adapters": {"files", "doctor", "history", "monitor", "report"},
    # A run may be measured over depth while it trains.
    "runs": {"doctor", "files", "measure", "model", "optim", "settings", "tasks", "train"},
    "exchange": {
        "files",
        "data",
        "model",
        "optim",
        "placement",
        "runs",
        "settings",
        "tasks",
        "train",
    },
    "targets": {
        "adapters",
        "doctor",
        "history",
        "measure",
        "model",
        "optim",
        "placement",
        "runs",
        "settings",
        "tasks",
        "train",
        "transplant",
    },
    "catalogue": {"placement", "report"},
    # A log's episodes are explained by what the doctor measures and what a clip leaves, and drawn
    # as a report draws.
    "history": {"doctor", "optim", "report"},
    "monitor": {"doctor", "measure", "report"},
    # Where runs train, each a command of its own: of the room of runs it needs no more than their
    # words.
    "engines": {"files", "processes", "settings", "signals"},
    # What `compare` and `demo` run on: grids of runs.
    "compare": {
        "adapters",
        "data",
        "engines",
        "files",
        "measure",
        "model",
        "optim",
        "placement",
        "processes",
    }
    | {
        "placement",
        "processes",
        "provenance",
        "report",
        "runs",
        "settings",
        "signals",
        "tasks",
        "train",
    },
    # A search of fine-tunings: an encoder of ours or of transformers, trained by its Trainer.
    "finetune": {
        "adapters",
        "data",
        "engines",
        "files",
        "measure",
        "model",
        "processes",
        "provenance",
        "report",
        "runs",
        "settings",
        "signals",
        "tasks",
        "train",
    },
    # Evidence is what studies have found, looked up by what can be trained.
    "choosing": {"placement", "report", "settings", "theory"},
    # What Python offers, as the command line does: above everything that it joins.
    "api": {
        "catalogue",
        "choosing",
        "decode",
        "doctor",
        "measure",
        "model",
        "optim",
        "placement",
        "report",
        "runs",
        "settings",
        "targets",
        "tasks",
    }
    | {"compare", "engines", "finetune", "prove", "theory", "train", "transplant"},
    # What agents and editors ask is our own commands, as processes.
    "agents": {"processes", "settings"},
    "cli": {
        "adapters",
        "agents",
        "api",
        "catalogue",
        "choosing",
        "data",
        "decode",
        "doctor",
        "exchange",
        "files",
        "optim",
        "placement",
    }
    | {
        "processes",
        "provenance",
        "report",
        "runs",
        "settings",
        "signals",
        "targets",
        "tasks",
        "theory",
    }
    | {"compare", "engines", "finetune", "history", "monitor", "prove", "train", "transplant"},
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
    "__main__",
}
"""Rooms whose mistakes are ValueErrors: they serve callers that are not the command line."""


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT.parent).as_posix()


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, "normscope.….name") for every import of ours, relative ones resolved."""
    package = path.relative_to(ROOT.parent).parent.parts
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            full = ".".join([*base, *([node.module] if node.module else [])])
            found = [f"{full}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (
            (node.lineno, name)
            for name in found
            if name.split(".")[0] in ("normscope", "normscope_studies")
        )


def forbidden(path: Path) -> list[str]:
    """Imports of a file of the tool that its room may not make; any of a study is one."""
    room = room_of(path)
    found = []
    for line, name in imports(path):
        package, target, *_ = [*name.split("."), ""]
        ours = package == "normscope"
        if ours and target in (room, "__version__"):
            continue
        # What a stranger's file may ask for is checked wherever one is read.
        if ours and target == "limits":
            continue
        if ours and target == "errors" and room not in WITHOUT_ERRORS:
            continue
        if not ours or target not in MAY_IMPORT[room]:
            found.append(f"{name_of(path)}:{line} imports {name}")
    return found


def compared(tree: ast.AST, names: set[str]) -> list[int]:
    """Lines where one of `names` stands in a comparison or as a case of a match."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            constants = {
                n.value
                for n in ast.walk(node)
                if isinstance(n, ast.Constant) and isinstance(n.value, str)
            }
            if constants & names:
                lines.append(node.lineno)
    return lines


def test_every_room_stands_in_the_table():
    assert {room_of(path) for path in FILES} <= MAY_IMPORT.keys()


def test_imports_run_downwards():
    assert [line for path in FILES for line in forbidden(path)] == []


def test_the_table_has_no_circle():
    assert in_circles(MAY_IMPORT) == set()


def test_placements_are_told_apart_in_their_own_files_alone():
    names = set(registered())
    found = [
        f"{name_of(path)}:{line}"
        for path in ALL_FILES
        if path.is_relative_to(STUDIES) or room_of(path) != "placement"
        for line in compared(parsed(path), names)
    ]
    assert found == []


def asks_for_a_task(tree: ast.AST, names: set[str]) -> list[int]:
    """Lines that ask which task a configuration has, by its class or by a task's name."""
    lines = compared(tree, names)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "isinstance"
        ):
            asked = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
            lines += (
                [node.lineno]
                if any(name.endswith(("RunConfig", "LoadedRun")) for name in asked)
                else []
            )
    return lines


def test_tasks_are_told_apart_in_their_own_room_alone():
    from normscope.tasks.registry import TASKS

    found = [
        f"{name_of(path)}:{line}"
        for path in ALL_FILES
        if path.is_relative_to(STUDIES) or room_of(path) != "tasks"
        for line in asks_for_a_task(parsed(path), set(TASKS))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        'if config.task == "translation": pass',
        "x = isinstance(config, MaskedRunConfig | OwnRunConfig)",
    ],
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
    monkeypatch.setitem(globals(), "ROOT", tmp_path / "normscope")
    room = tmp_path / "normscope" / "model"
    room.mkdir(parents=True)
    path = room / "file.py"
    path.write_text(
        "import torch\n"
        "import normscope.train\n"
        "from normscope.data import text\n"
        "from .. import cli\n"
        "from ..tasks.loss import f\n"
        "from ..placement import named\n"
        "from . import stack\n"
        "from .attention import g\n"
        "from ..errors import UserError\n"
        "from normscope_studies import lemmas\n"
    )
    assert [line.split()[-1] for line in forbidden(path)] == [
        "normscope.train",
        "normscope.data.text",
        "normscope.cli",
        "normscope.tasks.loss.f",
        "normscope_studies.lemmas",
    ]


def known(path: Path, modules: Container[str]) -> set[str]:
    """Modules that a file names, wherever in it the import stands."""
    names = {name for _, name in imports(path)}
    # What is imported from a module may be a module itself.
    return {name if name in modules else name.rpartition(".")[0] for name in names}


def in_circles(knows: Mapping[str, set[str]]) -> set[str]:
    """The modules that stay when those that know none of the others, or are known by none, are
    taken away in turn.
    """
    left = dict(knows)
    while True:
        known = {other for others in left.values() for other in others}
        kept = {
            name: others & left.keys()
            for name, others in left.items()
            if name in known and others & left.keys()
        }
        if kept == left:
            return set(left)
        left = kept


def test_no_module_stands_in_a_circle():
    modules = {module_of(path): path for path in ALL_FILES}
    # A package's own names stand in its __init__, which imports them.
    assert (
        in_circles({name: known(path, modules) - {name} for name, path in modules.items()}) == set()
    )


def test_the_search_for_circles_finds_what_it_looks_for(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path / "normscope")
    path = tmp_path / "normscope" / "model" / "file.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "from . import stack\n"
        "if TYPE_CHECKING:\n"
        "    from .attention import g\n"
        "def f():\n"
        "    from .late import h\n"
    )
    modules = {"normscope.model.stack", "normscope.model.attention", "normscope.model.late"}
    assert known(path, modules) == modules
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b", "c"}
    assert in_circles({"a": {"b"}, "b": {"c"}, "c": set()}) == set()


CATALOGUES = {
    STUDIES,
    ROOT / "placement" / "formulas",
    ROOT / "doctor" / "rules",
    ROOT / "doctor" / "mistakes",
}
"""Folders that hold a file an entry, and so as many as there are entries; rules stand in folders of
their own.
"""


def is_catalogue(folder: Path) -> bool:
    return folder in CATALOGUES or folder.parent == ROOT / "doctor" / "rules"


def test_no_shelf_holds_more_than_twenty_files():
    shelves = {folder: list(folder.glob("*.py")) for folder in {path.parent for path in ALL_FILES}}
    crowded = {
        folder.relative_to(ROOT.parent).as_posix(): len(files)
        for folder, files in shelves.items()
        if len(files) > 20 and not is_catalogue(folder)
    }
    assert crowded == {}
    assert len(shelves[ROOT]) <= 6


SECOND_IDEA = (
    "cut each at a second idea, with a name of its own: a module, or a function; shorter names and "
    "packed lines are no way out"
)


def test_no_file_has_more_than_four_hundred_lines():
    assert long_files() == {}, SECOND_IDEA


def test_no_function_has_more_than_sixty_lines():
    assert long_functions() == {}, SECOND_IDEA
