"""The linter as a whole: its rules, the order of its findings, and what a project silences."""

import re
from dataclasses import replace

import pytest

from doctor.bugs import BUGS, both
from doctor.wired import patient, pre
from normscope.doctor.lint.linter import RULES, lint, silenced_in
from normscope.doctor.lint.patient import Loading
from normscope.doctor.result import Severity


def test_rules_have_ids_of_their_own_and_say_why():
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.id == rule.id.lower()
        assert " " not in rule.id
        assert isinstance(rule.severity, Severity)
        assert all([rule.title, rule.explanation, rule.reference])


def test_every_rebuilt_error_belongs_to_a_rule_and_is_no_worse_than_it_says():
    severities = {rule.id: rule.severity.rank for rule in RULES}
    assert all(Severity(bug.severity).rank <= severities[bug.rule] for bug in BUGS.values())


def test_the_worst_comes_first_and_silenced_rules_are_not_asked():
    # A missing final norm, an error said by the loader, and nothing else.
    looked_at = replace(
        patient(both(pre)()), loading=Loading(missing=(), unexpected=("encoder.final_norm.weight",))
    )
    found = lint(looked_at)
    assert [finding.id for finding in found] == ["checkpoint-tensors", "missing-final-norm"]
    assert [finding.id for finding in lint(looked_at, silenced=["checkpoint-tensors"])] == [
        "missing-final-norm"
    ]


@pytest.mark.parametrize(
    ("silenced", "said"),
    [
        ("missing-finalnorm", "; did you mean 'missing-final-norm'? Known are"),
        ("typo", ". Known are"),
    ],
)
def test_silencing_a_rule_that_does_not_exist(silenced, said):
    with pytest.raises(ValueError, match=re.escape(f"no rule is called {silenced!r}{said}")):
        lint(patient(both(pre)()), silenced=[silenced])


def test_the_nearest_project_file_upwards_decides(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.normscope.doctor]\nsilence = ["no-norm", "mixed-placements"]\n'
    )
    assert silenced_in(inner) == ("no-norm", "mixed-placements")
    assert silenced_in(inner / "file.py") == ("no-norm", "mixed-placements")
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\n")
    assert silenced_in(inner) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool", "is not valid TOML"),
        ("tool.normscope = 3", "tool.normscope must be a table, got 3"),
        (
            '[tool.normscope.doctor]\nsilence = "no-norm"',
            "tool.normscope.doctor.silence must be a list of rule ids",
        ),
        (
            "[tool.normscope.doctor]\nsilence = [1]",
            "tool.normscope.doctor.silence must be a list of rule ids",
        ),
        (
            "[tool.normscope.doctor]\nsilenced = []",
            "unknown key tool.normscope.doctor.silenced; allowed is silence",
        ),
        (
            '[tool.normscope.doctor]\nsilence = ["nonorm"]',
            "silence: no rule is called 'nonorm'; did you mean 'no-norm'",
        ),
    ],
)
def test_a_malformed_project_file(tmp_path, text, said):
    file = tmp_path / "pyproject.toml"
    file.write_text(text)
    with pytest.raises(ValueError) as caught:
        silenced_in(tmp_path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(file))
