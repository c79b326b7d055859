"""The rule that says what a clip leaves of a rate, and which rules a diagnosis asked."""

import math
from dataclasses import replace

import torch

from doctor.bugs import both
from doctor.wired import patient, pre
from normscope.doctor.lint.linter import RULES, asked_rules, lint
from normscope.doctor.result import Finding


def found(clip: float | None, kind: type[torch.optim.Optimizer]) -> list[Finding]:
    model = both(pre, final=1)()
    of = replace(patient(model), optimizer=kind(model.parameters(), lr=0.1), clip_norm=clip)
    return [finding for finding in lint(of) if finding.id == "clip-hides-rate"]


def test_a_clip_a_thousand_times_below_the_gradient():
    (norm,) = {math.hypot(*patient(both(pre, final=1)()).observed.gradient_norms.values())}
    (warning,) = found(norm / 2000, torch.optim.SGD)
    assert warning.severity == "warning"
    assert (
        "2,000 times less. The first update of SGD at a rate of 0.1 is the one that a rate of 5e-05"
        in warning.message
    )
    (note,) = found(norm / 2000, torch.optim.Adam)
    assert (note.severity, "hides no rate" in note.message) == ("info", True)
    assert (
        found(norm / 500, torch.optim.SGD)
        == found(math.inf, torch.optim.SGD)
        == found(None, torch.optim.SGD)
        == []
    )


def test_a_diagnosis_says_of_every_rule_whether_it_was_asked():
    model = both(pre, final=1)()
    of = patient(model)
    asked = {rule.id: rule for rule in asked_rules(of, silenced=["no-norm"])}
    assert list(asked) == [rule.id for rule in RULES]
    assert all(rule.asked == (rule.reason == "") for rule in asked.values())
    assert asked["lost-residual"].asked
    assert asked["no-norm"].reason == "it was silenced"
    assert asked["checkpoint-tensors"].reason == "no checkpoint was loaded"
    assert asked["clip-hides-rate"].reason == (
        "no optimiser with its parameter groups was given and no norm was given that gradients are "
        "clipped to"
    )
    told = replace(of, optimizer=torch.optim.SGD(model.parameters(), 0.1), clip_norm=1.0)
    more = {rule.id for rule in asked_rules(told) if rule.asked and not asked[rule.id].asked}
    assert more >= {"no-norm", "weight-decay-on-norms", "clip-hides-rate"}
    lacked = {reason for id in more for reason in asked[id].reason.split(" and ")}
    assert lacked == {
        "it was silenced",
        "no optimiser with its parameter groups was given",
        "no norm was given that gradients are clipped to",
    }
