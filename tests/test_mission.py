"""What the sources ask for does not fall out: every row and every numbered item of the paper has
its command, which the command line knows and whose trainings can be planned.

The table is `mission.toml`. With --whole its small commands run.
"""

import re
import shlex
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from conftest import SHARED
from labelled_toy import written
from normscope.cli.main import command_line, main
from normscope.data.toy import toy_pairs
from normscope_studies.engine import study as study_frame
from normscope_studies.engine.discovery import studies
from normscope_studies.engine.planning import plan_lines

TABLE = tomllib.loads(Path(__file__).with_name("mission.toml").read_text(encoding="utf-8"))
ROWS: list[dict[str, Any]] = TABLE["rows"]
ITEMS: dict[str, str] = TABLE["items"]
LARGE = [*(command for row in ROWS for command in row["decides"]), *ITEMS.values()]
SMALL = [command.format(**TABLE["settings"]) for row in ROWS for command in row["small"]]
NEEDS = {"finetune": ("transformers", "accelerate"), "probes": ("sklearn",)}
"""The libraries without which a command says what to install, by a word of it."""


def understood(command: str) -> tuple[str, dict[str, Any]]:
    """Returns the verb's name, and the values that it takes from a command line, which is read as
    the command line reads it and not carried out.

    Raises click's UsageError where the verb or an option is not known, or a value is none.
    """
    program, *words = shlex.split(command)
    assert program == "normscope", command
    verb, names = get_command(command_line(words[0])), []
    while isinstance(verb, TyperGroup) and words and not words[0].startswith("-"):
        name, found, words = verb.resolve_command(verb.context_class(verb), words)
        assert name is not None
        assert found is not None
        verb = found
        names.append(name)
    return " ".join(names), verb.make_context(names[-1], words).params


def scale_of(command: str) -> Any:
    """Returns the settings of a study's command. Raises UserError for one that there is not."""
    name, asked = understood(command)
    study = studies()[name.removeprefix("study ")].load()
    assert asked["scale"] in study.scales, command
    return study.scales[asked["scale"]]


@pytest.mark.parametrize("command", dict.fromkeys([*LARGE, *SMALL]))
def test_the_command_line_knows_the_command(command: str) -> None:
    name, _ = understood(command)
    if name.startswith("study "):
        assert scale_of(command) is not None


@pytest.mark.parametrize("command", ["normscope studies", "normscope study figure-9"])
def test_a_command_that_has_gone_is_noticed(command: str) -> None:
    with pytest.raises(Exception, match="No such command"):
        understood(command)


@pytest.mark.parametrize("command", [c for c in SMALL if " study " in c or " train " in c])
def test_what_it_would_train_is_planned(
    command: str, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "corpora/" in command:
        pytest.skip("of a corpus that another command makes, and runs with --whole")
    require(command)
    # A core is not timed for every command.
    untimed = partial(plan_lines, speed_of=lambda config: 1e9)
    monkeypatch.setattr(study_frame, "plan_lines", untimed)
    before = sorted(desk.rglob("*"))
    assert carried_out(f"{command} --dry-run", monkeypatch) == 0
    assert capsys.readouterr().out.strip()
    assert sorted(desk.rglob("*")) == before


@pytest.mark.thorough
def test_every_row_runs_at_a_size_of_minutes(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in SMALL:
        require(command)
        assert carried_out(command, monkeypatch) == 0, command


def test_every_row_has_its_commands() -> None:
    assert [row["number"] for row in ROWS] == list(range(1, 19))
    assert all(row["decides"] and row["small"] for row in ROWS)


def test_the_table_has_the_rows_that_were_agreed() -> None:
    rows = shared("mission-rows.md")
    assert re.findall(r"^\| (\d+) \|", rows, re.MULTILINE) == [str(row["number"]) for row in ROWS]


def test_every_numbered_item_of_the_paper_has_a_command() -> None:
    kinds = "Figure|Table|Lemma|Theorem|Definition"
    assert set(re.findall(rf"\b(?:{kinds}) \d+\b", shared("paper/xiong2020.md"))) == set(ITEMS)


def test_a_study_that_the_tables_name_is_one_that_claims_are_judged_by() -> None:
    """The lists of claims and the rows speak of the same studies."""
    named = {understood(one)[0] for one in [*LARGE, *SMALL] if " study " in one}
    for text in ("paper.toml", "memo.toml"):
        listed = tomllib.loads(
            (Path(study_frame.__file__).parents[1] / text).read_text(encoding="utf-8")
        )
        for study in listed["studies"].values():
            assert understood(study["command"])[0] in named, study["command"]


def shared(name: str) -> str:
    file = SHARED / name
    if not file.is_file():
        pytest.skip(f"{file} is not on this machine")
    return file.read_text(encoding="utf-8")


def require(command: str) -> None:
    for word, libraries in NEEDS.items():
        if word in command:
            for library in libraries:
                pytest.importorskip(library)


def carried_out(command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns the exit code."""
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with parallel text and labelled pairs in it."""
    for split, count in (("train", 400), ("valid", 20)):
        pairs = toy_pairs(count, seed=5, split=split)
        for side, language in enumerate(("de", "en")):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    (tmp_path / "pairs").mkdir()
    written(tmp_path / "pairs")
    monkeypatch.chdir(tmp_path)
    return tmp_path
