"""Verbs and options that were removed answer with what to use instead, and the changelog says the
same.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from normscope.cli import main as command
from normscope.cli.main import command_line, main
from normscope.cli.removed import REMOVED
from normscope.placement import named

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"
HEADING = "### Removed before the first release"
APP: Any = get_command(command_line())

Call = Callable[..., tuple[object, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run a command; its exit code, output and messages."""

    def run(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["normscope", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        return (stop.value.code, *capfd.readouterr())

    return run


def found(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and the words after them."""
    at = APP
    while words and words[0] in getattr(at, "commands", {}):
        at = at.commands[words[0]]
        words = words[1:]
    return at, words


def options_of(at: Any) -> set[str]:
    return {name for one in at.params for name in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize("removed", REMOVED)
def test_what_was_removed_answers_in_one_line_with_what_to_use(call: Call, removed: str) -> None:
    wanted = f"error: `normscope {removed}` was removed; {REMOVED[removed]}\n"
    assert call(*removed.split()) == (2, "", wanted)
    assert call(*removed.split(), "x", "--help") == (2, "", wanted)


def test_an_option_that_was_removed_is_known_with_its_value_and_from_a_verb_below(
    call: Call,
) -> None:
    for words in (
        ["choose", "--write-docs=docs"],
        ["placements", "choose", "--write-docs", "docs"],
    ):
        code, out, err = call(*words)
        assert (code, out) == (2, "")
        assert "use `python -m normscope_studies.manual docs`" in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("removed", REMOVED)
def test_what_was_removed_is_not_there(removed: str) -> None:
    at, left = found(removed.split())
    assert len(left) == 1
    assert left[0] not in options_of(at)


@pytest.mark.parametrize("removed", REMOVED)
def test_what_to_use_instead_is_there(removed: str) -> None:
    instead = REMOVED[removed]
    for line in re.findall(r"`normscope ([^`]*)`", instead):
        at, left = found(shlex.split(line))
        assert at is not APP
        assert not hasattr(at, "commands")
        asked = {word for word in left if word.startswith("--")}
        assert asked <= options_of(at)
        if "--placements" in left:
            for name in left[left.index("--placements") + 1].split(","):
                named(name)
    beside = re.sub(r"`[^`]*`", "", instead)
    typed = removed.replace("study --", "study lemmas --").split()
    at, (gone,) = found(typed)
    assert set(re.findall(r"--[a-z-]+", beside)) - {gone} <= options_of(at)


def test_the_changelog_lists_what_was_removed_in_the_same_words() -> None:
    text = CHANGELOG.read_text(encoding="utf-8").partition(HEADING)[2]
    listed = re.findall(r"^- `normscope (.*?)`: (.*)$", text, re.MULTILINE)
    assert listed == [*REMOVED.items()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["doctorr"], "No such command 'doctorr'."),
        (["study", "figure-7"], "No such command 'figure-7'."),
        (["study", "watch"], "No such command 'watch'."),
        (["doctor", "--prob"], "No such option: --prob"),
        (["doctor", "--write-docs"], "No such option: --write-docs"),
    ],
)
def test_what_there_never_was_is_told_as_before(call: Call, words: list[str], said: str) -> None:
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert "removed" not in err


def test_a_value_that_reads_like_a_removed_option_is_a_value(call: Call) -> None:
    code, _, err = call("placements", "--model", "--write-docs")
    assert code == 2
    assert "removed" not in err
    assert "--write-docs" in err


def test_a_verb_that_comes_back_under_the_name_is_run(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = command_line()

    @app.command("watch")
    def watch() -> None:
        print("here again")

    monkeypatch.setattr(command, "command_line", lambda verb="": app)
    assert call("watch") == (0, "here again\n", "")


def test_a_shell_that_completes_after_a_removed_verb_is_told_nothing() -> None:
    asked = {
        "_NORMSCOPE_COMPLETE": "complete_bash",
        "COMP_WORDS": "normscope watch --",
        "COMP_CWORD": "2",
    }
    code = "from normscope.cli.main import command_line\ncommand_line()(prog_name='normscope')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
