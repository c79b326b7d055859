"""`--help` of every verb: whole lines in a sensible order, with an example that can be typed as it
stands.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from normscope.cli import doctor_options, main
from normscope.cli.main import command_line
from normscope.cli.shared import VERBS, refuse_unwritable
from normscope.doctor.result import Severity
from normscope.errors import UserError
from normscope.limits.kinds import PAGE

APP: Any = get_command(command_line())


def commands(group: Any = APP, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that is shown, with its words."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        if not command.hidden:
            yield from commands(command, (*path, name))


def command_of(path: tuple[str, ...]) -> Any:
    command = APP
    for name in path:
        command = command.commands[name]
    return command


def help_of(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        APP(args=[*path, "--help"], prog_name="normscope")
    assert end.value.code == 0
    return capsys.readouterr().out


EVERY = list(commands())


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_help_fits_eighty_columns_cuts_nothing_and_has_an_example_that_parses(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(path, monkeypatch, capsys)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert not re.search(r"\w\.\.\.$", text, re.MULTILINE)
    assert "[default: (" not in text
    assert "manual's page on" not in text, "a wheel has no manual"
    if hasattr(command_of(path), "commands") and path not in ((), ("placements",), ("study",)):
        return
    (example,) = re.findall(r"^    (?:echo .* \| )?normscope ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    words = shlex.split(example.replace("\\\n", " "))
    command = APP
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    # Raises where an option or a value is not one that the verb takes.
    command.make_context("normscope", words)


ASKED = """
import sys
from normscope.cli import main
slow = ("torch", "numpy", "rich", "matplotlib", "jinja2")
for line in sys.stdin:
    sys.argv = ["normscope", *line.split()]
    try:
        main.main()
    except SystemExit as end:
        assert not end.code, end.code
    others = [name for name in sys.modules if name.startswith("normscope.cli.")]
    print(*(name for name in slow if name in sys.modules), len(others), file=sys.stderr)
"""


def test_version_and_help_answer_without_what_is_slow_to_import() -> None:
    """Help of the doctor, which comes first, needs no other verb's file: console, main, shared,
    the four of help and its own four.
    """
    lines = [
        "doctor --help",
        "--version",
        "--help",
        *(" ".join(path) + " --help" for path in EVERY),
    ]
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    imported = done.stderr.splitlines()
    assert imported[0] == "11"
    assert [line for line in imported if not line.isdigit()] == []
    assert len(imported) == len(lines)


def test_every_verb_stands_in_one_group_in_the_order_of_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grouped = [name for names in VERBS.values() for name in names]
    assert sorted(grouped) == sorted(
        name for name, command in APP.commands.items() if not command.hidden
    )
    text = help_of((), monkeypatch, capsys)
    assert re.findall(r"^  ([a-z][a-z-]*)  +[A-Z]", text, re.MULTILINE) == grouped
    assert [title for title in VERBS if f"\n{title}:\n" in text] == list(VERBS)


def test_studies_are_listed_by_their_questions_a_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = help_of(("study",), monkeypatch, capsys).partition("Commands:\n")[2]
    listed = told.partition("\n\n")[0]
    lines = listed.splitlines()
    assert [line.split()[0] for line in lines] == sorted(command_of(("study",)).commands)
    assert [line for line in lines if not line.endswith("?")] == []


DOCTOR = [
    (["--rate", "-1"], "--rate must be positive and finite, got -1"),
    (["--fail-on", "warn"], "--fail-on warn: choose one of info, warning, error"),
    (["--tokens", "0"], "--tokens must be at least 2, got 0"),
    (["--sequences", "0"], "--sequences must be at least 1, got 0"),
    (["--seed", "-1"], "--seed must be at least 0, got -1"),
    (["--json", "."], "--json .: is a folder"),
    (["--structure-only", "--rate", "1e-3"], "--structure-only takes no --rate"),
]
EARLY = [
    (
        ["doctor", "model.py"],
        "model.py holds Python: name the function too, as in model.py:function",
    ),
    (
        ["train", "absent.toml"],
        "cannot read the configuration absent.toml: No such file or directory",
    ),
    (["train", "broken.toml"], "broken.toml is not TOML: "),
    (["train", "--set", "nonsense"], "--set takes KEY=VALUE"),
    (
        ["train", "--set", "model.placement=sideways"],
        "configuration: model: unknown placement 'sideways'; `normscope placements` lists all",
    ),
    (["train", "--import", "absent.py"], "absent.py: no such file"),
    (["compare", "absent.toml"], "cannot read the configuration absent.toml"),
    (
        ["compare", "--placements", "pre-ln,foo"],
        "unknown placement 'foo'; `normscope placements` lists all",
    ),
    (
        ["compare", "--placements", "post-lm"],
        "unknown placement 'post-lm'; did you mean 'post-ln'?",
    ),
    (["evaluate", "absent"], "absent is not a run folder: it has no config.toml"),
    (
        ["evaluate", "absent", "--save", "gone/scores.json"],
        "--save gone/scores.json: its folder does not exist",
    ),
    (["translate", "absent"], "absent is not a run folder: it has no config.toml"),
    (["export", "absent", "out"], "absent is not a run folder: it has no config.toml"),
    (["doctor", "absent.py:build"], "no such file: absent.py"),
    (["doctor", "absent.toml"], "no such file or folder: absent.toml"),
    (
        ["doctor", "absent.py:build", "--html", "gone/page.html"],
        "--html gone/page.html: its folder does not exist",
    ),
    *((["doctor", "GPT2Config", *given], said) for given, said in DOCTOR),
    (["predict", "sideways"], "unknown placement 'sideways'"),
    (
        ["data", "prepare", "out", "--languages", "de", "--train", "a", "b"],
        "--languages takes two languages",
    ),
    (
        ["data", "prepare", "out", "--train", "a", "b", "--languages", "de"],
        "of the target, got 'de' alone",
    ),
    (
        ["data", "prepare", "out", "--train", "a", "b", "--languages=de"],
        "--languages takes two languages, of the source",
    ),
    (
        ["data", "prepare", "out", "--languages", "de", "en", "--train"],
        "of the source and of the target, got none",
    ),
    (
        ["data", "prepare", "out", "--train", "a", "--languages", "de", "en"],
        "--train takes two files, of the source and of the target, got 'a' alone",
    ),
    (
        ["data", "prepare", "out", "--languages", "german", "en", "--train", "a", "b"],
        "languages: a language is given by its code of two or three small letters, such as de, got "
        "'german'; did you mean 'de'?",
    ),
]
"""What is wrong without asking torch, and the beginning of what is said."""

PROGRAM = """
import contextlib, io, sys
from normscope.cli import main
for line in sys.stdin:
    sys.argv = ["normscope", *line.rstrip("\\n").split("\\t")]
    said = io.StringIO()
    main.say = lambda text: said.write(text)
    try:
        main.main()
    except SystemExit as end:
        code = end.code
    print(code, "torch" in sys.modules, said.getvalue(), sep="\\t")
"""


def test_what_is_wrong_without_asking_torch_is_said_before_torch_is_imported(
    tmp_path_factory: Any,
) -> None:
    folder = tmp_path_factory.mktemp("early")
    (folder / "broken.toml").write_text("[model\n")
    (folder / "model.py").touch()
    (folder / "run").mkdir()
    (folder / "run/config.toml").touch()
    asked = "".join("\t".join(arguments) + "\n" for arguments, _ in EARLY)
    command = [sys.executable, "-c", PROGRAM]
    elsewhere = {**os.environ, "PATH": "/nowhere"}
    done = subprocess.run(
        command, input=asked, cwd=folder, capture_output=True, text=True, check=True, env=elsewhere
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(EARLY)
    for (arguments, words), line in zip(EARLY, lines, strict=True):
        code, with_torch, said = line.split("\t")
        assert (code, with_torch) == ("2", "False"), (arguments, line, done.stderr)
        assert said.startswith("error: "), arguments
        assert words in said, (arguments, said)


def test_a_prompt_that_is_no_text_is_refused_by_its_byte(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["normscope", "generate", "absent", "--prompt", os.fsdecode(b"the \xff dog")]
    )
    with pytest.raises(SystemExit, match="2"):
        main.main()
    assert capsys.readouterr().err.startswith(
        "error: --prompt is not UTF-8, from its byte 5 on: convert the text"
    )


def test_a_folder_without_permission_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_unwritable("--html", tmp_path / "page.html", PAGE)
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path or not mode & os.W_OK)
    with pytest.raises(
        UserError, match=r"--html .*: no permission to write into .*; name another folder"
    ):
        refuse_unwritable("--html", tmp_path / "page.html", PAGE)


def test_what_the_command_line_takes_for_the_librarys_is_its_own() -> None:
    assert tuple(Severity) == doctor_options.SEVERITIES
