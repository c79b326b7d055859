"""The curves of a placement's page are those that `predict` gives in a model of the command that
the page prints.
"""

import re
import shlex

import pytest

from normscope.api.prediction import predict
from normscope.placement import registered
from normscope_studies.manual.placements import predictions


@pytest.mark.parametrize("name", ["lns", "t-fixup"])
def test_a_page_says_what_its_command_predicts(name):
    shown = predictions({key: registered()[key] for key in ("pre-ln", "post-ln", name)})[name]
    words = shlex.split(shown.command)
    assert words[:3] == ["normscope", "predict", name]
    stack = words[words.index("--stack") + 1] if "--stack" in words else "encoder"
    expected = predict(name, blocks=int(words[words.index("--blocks") + 1]), stack=stack)
    ends = [
        float(value)
        for kind in expected.stacks[name]
        for curve in (expected[name, kind].q, expected[name, kind].gradient_norm["ffn_out"])
        for value in (curve[0], curve[-1])
    ]
    told = [float(number) for number in re.findall(r"(?:from|to) (\S*\d)", " ".join(shown.told))]
    assert told == pytest.approx(ends, rel=6e-3)  # three digits


def test_what_theory_does_not_follow_has_a_reason_and_no_picture():
    shown = predictions(
        {key: registered()[key] for key in ("pre-ln", "post-ln", "mhc-deepseek-v4")}
    )
    assert shown["mhc-deepseek-v4"].picture == ""
    assert "cannot be predicted" in shown["mhc-deepseek-v4"].told[0]
    assert "Theory" not in shown["pre-ln"].told[0]
