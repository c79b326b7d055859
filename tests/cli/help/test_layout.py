"""Options in `--help` stand in the groups of the docstrings, with the same words, and the example
comes last.
"""

import ast
import importlib.util
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import normscope
from normscope.cli.main import command_line

ROOT = Path(__file__).parents[3]
APP: Any = get_command(command_line())
REST = "Other options"
HEADING = re.compile(r"(\S.*):")
TERM = re.compile(r"  (--[\w-]+)(?:\S|, --| (?! ))*(?:  +(.*))?")

Groups = dict[str, dict[str, str]]
"""Heading -> option -> its words."""


def verbs(group: Any = APP, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that is shown and does something by itself, with its words."""
    for name, command in group.commands.items():
        if command.hidden:
            continue
        inner = hasattr(command, "commands")
        if name == "study":
            # All studies have the same options.
            yield *path, name, next(iter(command.commands))
        elif inner:
            yield from verbs(command, (*path, name))
        if not inner or name == "placements":
            yield (*path, name)


VERBS = list(verbs())


def command_of(path: tuple[str, ...]) -> Any:
    command = APP
    for name in path:
        command = command.commands[name]
    return command


def help_of(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        APP(args=[*path, "--help"], prog_name="normscope")
    return capsys.readouterr().out


def groups_of(text: str) -> Groups:
    """What a reader of the terminal sees: options below the headings at the left edge."""
    groups: Groups = {}
    options: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        heading, term = HEADING.fullmatch(line), TERM.fullmatch(line)
        if heading is not None:
            options = groups.setdefault(heading[1], {})
            last = ""
        elif term is not None:
            last = term[1]
            assert last not in options
            options[last] = term[2] or ""
        elif last and line.startswith("      "):
            options[last] += " " + line.strip()
        else:
            last = ""
    return {heading: found for heading, found in groups.items() if found}


@cache
def _docstrings() -> dict[str, str]:
    """Those of all functions of the command line, from their source, by name."""
    found = {}
    for file in (ROOT / "src/normscope/cli").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
                found[node.name] = ast.get_docstring(node) or ""
    return found


def docstring_of(path: tuple[str, ...]) -> str:
    if path[0] == "study":
        return _docstrings()["verb"]
    return _docstrings()["_".join(path) if path[0] == "data" else path[-1]]


def as_manual(docstring: str) -> Groups:
    """A docstring's groups by the manual's own reading."""
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs/site/docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    groups: Groups = {}
    heading = ""
    for line in module.as_fields(inspect.cleandoc(docstring).splitlines()):
        if line.startswith("**"):
            heading = line.strip("*")
        elif line.startswith(":param "):
            name, words = line.removeprefix(":param ").split(":", 1)
            groups.setdefault(heading, {})[name] = words.strip()
    return groups


def option_names(path: tuple[str, ...]) -> dict[str, str]:
    """The parameter of a verb's function -> the option that is typed, without arguments."""
    return {
        one.name: one.opts[0]
        for one in command_of(path).params
        if one.param_type_name == "option" and not getattr(one, "hidden", False)
    }


def squeezed(text: str) -> str:
    """Without spaces, in small letters: lines are broken elsewhere in a terminal."""
    return re.sub(r"\s", "", text).lower()


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_option_stands_in_exactly_one_group(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = groups_of(help_of(path, monkeypatch, capsys))
    shown = [option for found in groups.values() for option in found]
    assert sorted(shown) == sorted([*option_names(path).values(), "--help"])
    assert list(groups.pop(REST)) == ["--help"]
    assert groups
    assert all(len(words) > 8 for found in groups.values() for words in found.values())


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_groups_and_words_are_those_of_the_verbs_docstring(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = groups_of(help_of(path, monkeypatch, capsys))
    typed = option_names(path)
    listed = as_manual(docstring_of(path))
    assert [heading for heading in shown if heading in listed] == [
        heading for heading, found in listed.items() if typed.keys() & found
    ]
    for heading, found in listed.items():
        for name, words in found.items():
            if name in typed:
                told = words.partition("By default ")[0]
                assert squeezed(shown[heading][typed[name]]).startswith(squeezed(told)), name


ALIKE = {
    ("compare",): normscope.compare,
    ("train",): normscope.train,
    ("finetune",): normscope.finetune,
    ("predict",): normscope.predict,
    ("choose",): normscope.choose,
    ("placements",): normscope.placements,
    ("transplant",): normscope.transplant,
    ("doctor",): normscope.diagnose,
}
"""Verbs, and what does the same in Python."""
OTHERWISE = {
    "rate": "wanted_rate",
    "warmup_updates": "wanted_warmup_updates",
    "no_laws": "laws",
    "no_advice": "advise",
    "silence": "silenced",
}
"""Options of the doctor -> parameters of `diagnose`."""


@pytest.mark.parametrize("path", ALIKE, ids=" ".join)
def test_python_and_terminal_have_the_same_groups_in_the_same_order(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = groups_of(help_of(path, monkeypatch, capsys))
    in_python = as_manual(inspect.getdoc(ALIKE[path]) or "")
    both: dict[str, None] = {}
    for name, option in option_names(path).items():
        parameter = OTHERWISE.get(name, name) if path == ("doctor",) else name
        for heading, found in in_python.items():
            if parameter in found:
                assert option in shown[heading], option
                both[heading] = None
    assert [heading for heading in shown if heading in both] == [
        heading for heading in in_python if heading in both
    ]
    assert both


@pytest.mark.parametrize("path", [*VERBS, (), ("study",)], ids=" ".join)
def test_the_example_comes_last(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(path, monkeypatch, capsys)
    _, begun, example = text.partition("\n  For example")
    assert begun
    commands = example.partition("\n\n")[2].splitlines()
    assert "normscope " in commands[0]
    assert all(line.startswith("    ") for line in commands)


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_arguments_come_before_all_options(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {one.param_type_name for one in command_of(path).params}
    headings = re.findall(r"^(\S.*):$", help_of(path, monkeypatch, capsys), re.MULTILINE)
    assert ("argument" in kinds) == (headings[0] == "Arguments")
    assert "Arguments" not in headings[1:]
