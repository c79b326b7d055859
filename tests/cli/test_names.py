"""Names of placements are given alike to every verb; a newcomer and a shell are told what there
is.
"""

import json
import os
import subprocess
import sys

import pytest

from normscope.cli.main import command_line, main
from normscope.cli.shared import complete_placements, placement_names
from normscope.errors import UserError
from normscope.placement import registered

SMALL = ("--blocks", "2", "--width", "32", "--vocabulary", "50", "--json")


@pytest.fixture
def normscope(monkeypatch, capfd):
    """Run a command; its exit code, output and messages."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["normscope", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        return (int(stop.value.code or 0), *capfd.readouterr())

    return call


@pytest.mark.parametrize(
    "words",
    [
        ("pre-ln", "post-ln"),
        ("pre-ln,post-ln",),
        ("pre-ln,", "post-ln,pre-ln"),
    ],
)
def test_predict_takes_names_as_words_and_with_commas(normscope, words):
    code, out, err = normscope("predict", *words, *SMALL)
    assert (code, err) == (0, "")
    assert list(json.loads(out)) == ["pre-ln", "post-ln"]


def test_predict_without_a_name_predicts_pre_ln(normscope):
    assert normscope("predict", *SMALL)[1] == normscope("predict", "pre-ln", *SMALL)[1]


def test_show_takes_several_names(normscope):
    code, out, _ = normscope(
        "placements", "show", "pre-ln", "post-ln", "--blocks", "2", "--width", "64", "--json"
    )
    assert code == 0
    both = json.loads(out)
    assert list(both) == ["pre-ln", "post-ln"]
    _, alone, _ = normscope(
        "placements", "show", "pre-ln", "--blocks", "2", "--width", "64", "--json"
    )
    assert json.loads(alone) == both["pre-ln"]


@pytest.mark.thorough
def test_show_all_leaves_out_what_is_not_defined_for_the_model(normscope):
    code, out, _ = normscope(
        "placements", "show", "all", "--model", "decoder-only", "--blocks", "2", "--json"
    )
    defined = [
        name for name, placement in registered().items() if "decoder-only" in placement.models
    ]
    assert code == 0
    assert list(json.loads(out)) == defined
    assert len(defined) < len(registered())


def test_one_diagram_is_of_one_placement(normscope, tmp_path):
    code, _, err = normscope(
        "placements", "show", "pre-ln", "post-ln", "--svg", str(tmp_path / "a.svg")
    )
    assert code == 2
    assert "--svg writes one diagram" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "pre-nl"),
        ("placements", "show", "pre-nl"),
        ("compare", "--placements", "pre-nl", "--out", "nowhere"),
        ("compare", "--placements", "post-ln", "--placements", "pre-nl", "--out", "nowhere"),
    ],
)
def test_every_verb_refuses_an_unknown_name_alike(normscope, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = normscope(*words)
    assert (code, out) == (2, "")
    assert "unknown placement 'pre-nl'; did you mean 'pre-ln'?" in err.replace("\n", " ")
    assert not list(tmp_path.iterdir())


def test_all_stands_alone():
    assert placement_names(["all"]) == ["all"]
    with pytest.raises(UserError, match="`all` stands alone, and here it stands beside pre-ln"):
        placement_names(["pre-ln", "all"])


def test_a_name_is_understood_however_it_is_written():
    assert placement_names(["Pre-LN,post_ln", "T Fixup", "preln"]) == [
        "pre-ln",
        "post-ln",
        "t-fixup",
    ]


def test_the_shell_completes_names_after_a_comma_too():
    assert complete_placements("pre-") == ["pre-ln", "pre-to-post"]
    assert complete_placements("pre-ln,pre-") == ["pre-ln,pre-to-post"]
    assert set(complete_placements("")) == {*registered(), "all"}


def test_a_shell_is_answered_without_torch():
    """What bash asks when the tab key is pressed after `normscope predict deepn`."""
    asked = {
        "_NORMSCOPE_COMPLETE": "complete_bash",
        "COMP_WORDS": "normscope predict deepn",
        "COMP_CWORD": "2",
    }
    code = (
        "import sys; from normscope.cli.main import command_line\n"
        "try: command_line()(prog_name='normscope')\n"
        "finally: print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["deepnorm", "deepnorm-to-post", "False"], done.stderr


def test_without_a_verb_a_newcomer_is_told_where_to_start(normscope):
    code, out, err = normscope()
    assert (code, err) == (0, "")
    verbs = [line.split()[1] for line in out.splitlines() if line.startswith("  normscope ")]
    assert verbs == ["demo", "doctor", "predict", "placements", "choose", "compare"]
    app = command_line()
    known = {command.name for command in app.registered_commands} | {
        group.name for group in app.registered_groups
    }
    assert set(verbs) <= known
    assert max(map(len, out.splitlines())) <= 120
