"""The skill file and llms.txt say what is there; `normscope mcp` prints the one, and refuses in one
line what it cannot serve.
"""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from normscope.agents.skill import instructions, skill
from normscope.cli.main import main
from normscope.cli.shared import VERBS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "src/normscope/agents/SKILL.md"
LLMS = ROOT / "llms.txt"


def told(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[Any, str, str]:
    """Exit code, output and errors of a command line."""
    monkeypatch.setattr(sys, "argv", ["normscope", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return (end.value.code or 0, *capsys.readouterr())


def test_the_command_prints_the_skill_file_as_it_lies_in_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(["mcp", "--skill"], monkeypatch, capsys) == (0, FILE.read_text("utf-8"), "")


def test_a_server_wants_a_folder_and_the_sdk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = told(["mcp"], monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: --root DIR: name the folder whose code may be run")
    code, out, err = told(["mcp", "--root", str(tmp_path / "none")], monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert "no such folder" in err
    monkeypatch.delitem(sys.modules, "normscope.agents.server", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    code, out, err = told(["mcp", "--root", str(tmp_path)], monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"error: this takes mcp[.\w]*: .*pip install .*\[mcp\]'\n", err)


def test_the_skill_has_the_head_that_agents_look_for() -> None:
    head = re.match(r"---\nname: ([a-z-]+)\ndescription: (.+)\n---\n", skill())
    assert head is not None
    name, description = head.groups()
    assert name == "normscope"
    assert 100 < len(description) <= 1024
    assert ": " not in description, "YAML would read a key"
    assert instructions().startswith("# NormScope\n")
    assert skill().endswith(instructions() + "\n")


@pytest.mark.parametrize("page", [FILE, LLMS], ids=lambda page: page.name)
def test_every_command_that_is_named_is_one(page: Path) -> None:
    verbs = {verb for group in VERBS.values() for verb in group} | {"VERB"}
    named = re.findall(r"`normscope ([\w-]+)", page.read_text("utf-8"))
    assert named
    assert set(named) <= verbs


def test_llms_txt_is_of_the_form_that_is_read_and_lists_pages_that_are_there() -> None:
    lines = LLMS.read_text("utf-8").splitlines()
    assert lines[0] == "# NormScope"
    assert lines[2].startswith("> ")
    items = [line for line in lines if line.startswith("- ")]
    pages = [re.fullmatch(r"- \[[^]]+\]\(([^)]+)\): .+", line) for line in items]
    assert all(pages)
    paths = [page[1] for page in pages if page is not None]
    assert len(paths) == len(set(paths)) > 15
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert {"docs/agents.md", "docs/doctor.md", "src/normscope/agents/SKILL.md"} <= set(paths)
