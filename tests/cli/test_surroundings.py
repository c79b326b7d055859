"""How a command is started: streams that are closed, an interpreter without docstrings, a home that
there is not, a terminal.
"""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from normscope.cli.console import shown_text
from normscope.limits.home import from_home

PREDICT = ("predict", "pre-ln", "--blocks", "2", "--width", "16")


def run(here: Path, *words: str, closed: str = "", python: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit code, and all that was said; closed: such as ">&-", as a shell has it."""
    command = 'exec "$@" ' + closed
    program = ["sh", "-c", command, "sh", sys.executable, *python, "-m", "normscope", *words]
    done = subprocess.run(program, cwd=here, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_command_whose_streams_are_closed_does_its_work(tmp_path: Path, closed: str) -> None:
    code, said = run(tmp_path, *PREDICT, "--plot", "stream.svg", closed=closed)
    assert (code, "Traceback" in said) == (0, False), said
    # What was printed lies in no file that took the closed stream's number.
    assert (tmp_path / "stream.svg").read_text().startswith("<svg")
    assert (tmp_path / "stream.svg").read_text().rstrip().endswith("</svg>")


def test_a_mistake_has_its_exit_code_where_nobody_can_be_told(tmp_path: Path) -> None:
    assert run(tmp_path, "predict", "pre-lm", closed=">&- 2>&-") == (2, "")


def test_every_verb_works_without_docstrings(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--help", python=("-OO",))
    assert (code, "Traceback" in said) == (0, False), said
    assert run(tmp_path, *PREDICT, python=("-OO",)) == run(tmp_path, *PREDICT)


@pytest.mark.parametrize("words", ["doctor ~nobody-here/x.py:build", "doctor ~nobody-here/x"])
def test_a_home_that_there_is_not_is_a_name_like_any_other(tmp_path: Path, words: str) -> None:
    code, said = run(tmp_path, *words.split())
    assert (code, "no such file" in said, "Traceback" in said) == (2, True, False), said


def test_a_home_is_found_as_the_shell_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert from_home("~/x.py") == Path("/home/me/x.py")
    assert from_home("a/~/x.py") == Path("a/~/x.py")


def test_a_text_does_not_steer_a_terminal_and_goes_whole_into_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = "red\x1b[2Jgreen\n\x07\u202eend"
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert shown_text(written) == written
    outer, inner = pty.openpty()
    with os.fdopen(outer, "rb"), os.fdopen(inner, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        shown = shown_text(written)
    assert shown == "red\ufffd[2Jgreen\n\ufffd\ufffdend"
