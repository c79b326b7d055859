"""Rebuilt public errors are found by their rule, and are not found where they are put right."""

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.bugs_values import BUGS
from doctor.rules import VALUES as RULES
from doctor.wired import tokens
from normscope.doctor.lint.rules import Patient
from normscope.doctor.observe.examine import examined
from normscope.report.doctor.contents import Finding


def cross_entropy(logits: Tensor) -> Tensor:
    """Against targets drawn evenly."""
    targets = torch.randint(logits.shape[-1], logits.shape[:-1], generator=torch.Generator().manual_seed(2))
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def patient(model: nn.Module, **more: object) -> Patient:
    stacks, observed = examined(model, tokens(model), cross_entropy)
    return Patient(model=model, stacks=stacks, observed=observed, dtype=next(model.parameters()).dtype, **more)


def everything(of: Patient) -> list[Finding]:
    return [finding for rule in RULES.values() for finding in rule.check(of)]


def above_info(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity != "info"]


@pytest.mark.parametrize("name", BUGS)
def test_public_errors_are_found_and_nothing_else_is(name):
    bug = BUGS[name]
    (found,) = above_info(everything(patient(bug.build())))
    assert (found.id, found.severity) == (bug.rule, bug.severity)
    assert bug.said in found.message
    assert found.fix


@pytest.mark.parametrize("name", BUGS)
def test_what_is_put_right_is_left_alone(name):
    assert above_info(everything(patient(BUGS[name].right()))) == []
