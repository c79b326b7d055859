"""Rebuilt public errors are found by their rule, and are not found where they are put right."""

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor import bugs_skip_path, bugs_starts, bugs_values
from doctor.rules import VALUES as RULES
from doctor.wired import tokens
from kinds import first_of_each
from normscope.doctor.lint.checks.placements import _shown
from normscope.doctor.lint.patient import Patient, gates_at_zero
from normscope.doctor.observe.examine import examined
from normscope.doctor.result import Finding

BUGS = bugs_values.BUGS | bugs_skip_path.BUGS | bugs_starts.BUGS


def cross_entropy(logits: Tensor) -> Tensor:
    """Against targets drawn evenly."""
    targets = torch.randint(
        logits.shape[-1], logits.shape[:-1], generator=torch.Generator().manual_seed(2)
    )
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def patient(model: nn.Module, **more: object) -> Patient:
    stacks, observed = examined(model, tokens(model), cross_entropy)
    return Patient(
        model=model, stacks=stacks, observed=observed, dtype=next(model.parameters()).dtype, **more
    )


def everything(of: Patient) -> list[Finding]:
    found = [(name, finding) for name, rule in RULES.items() for finding in rule.check(of)]
    assert all(finding.id == name for name, finding in found)
    return [finding for _, finding in found]


def above_info(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity != "info"]


CASES = first_of_each(
    lambda name: BUGS[name].rule, sorted(BUGS, key="LayerScale at 1 in 20 blocks".__eq__)
)
"""The deep one takes ten times as long as others of its rule, and comes last."""


@pytest.mark.parametrize("name", CASES)
def test_public_errors_are_found_and_nothing_else_is(name):
    bug = BUGS[name]
    found_all = everything(patient(bug.build()))
    (found,) = (
        above_info(found_all)
        if bug.severity != "info"
        else [one for one in found_all if one.id == bug.rule]
    )
    assert (found.id, found.severity) == (bug.rule, bug.severity)
    assert bug.said in found.message
    assert found.fix
    assert found.where or bug.rule == "loss-far-from-chance"  # which is the whole model's


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", CASES)
def test_what_is_put_right_is_left_alone(name):
    found = everything(patient(BUGS[name].right()))
    assert above_info(found) == []
    assert not any(
        finding.id == BUGS[name].rule and finding.severity == BUGS[name].severity
        for finding in found
    )


def test_an_amplified_stream_is_shown_from_its_source_to_its_last_sum():
    of = patient(BUGS["joeynmt, DeepNorm's constants under Pre-LN"].build())
    (found,) = RULES["amplified-stream"].check(of)
    (stack,) = of.stacks
    first, last = (stack.sublayers[place].measured for place in (1, -1))
    assert f"from {stack.source_square:.3g} to {last.sum_square:.3g}" in found.message
    assert last.sum_square > first.sum_square


def test_gates_are_found_by_their_full_names():
    class Scale(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.zeros(width))

    model = nn.Sequential(nn.Linear(16, 16), Scale(16), Scale(8), Scale(1))
    assert gates_at_zero(model, 16) == ["3.gain", "1.gain"]


def test_six_numbers_are_said_and_more_are_hinted_at():
    assert _shown([2.0, 2.0, 2.0]) == "2"
    assert _shown([1, 2, 3, 4, 5, 6]) == "1, 2, 3, 4, 5, 6"
    assert _shown([1, 2, 3, 4, 5, 6, 7]) == "1, 2, 3, 4, 5, 6, …"
