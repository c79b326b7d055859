"""A fault beside its healthy twin, and what a finding must say that is right about it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.waves.parts import tokens
from normscope import diagnose
from normscope.doctor.result import Finding, Severity


def next_token(ids: Tensor) -> Callable[[Tensor], Tensor]:
    """Cross-entropy of logits (batch, length, classes) with the tokens one place later."""
    targets = ids[:, 1:].flatten()
    return lambda logits: functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets)


@dataclass(frozen=True, kw_only=True)
class Case:
    model: nn.Module
    inputs: Any = field(default_factory=lambda: (tokens(),))
    loss: Callable[[Any], Tensor] | None = field(default_factory=lambda: next_token(tokens()))
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `diagnose`."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    title: str
    bug: Callable[[], Case]
    twin: Callable[[], Case]
    says: str
    """A regular expression that the text of a right finding matches, its case aside."""


def found(case: Case) -> list[Finding]:
    """Findings at warning or above."""
    torch.manual_seed(0)
    diagnosis = diagnose(case.model, case.inputs, loss=case.loss, advise=False, **case.options)
    return [one for one in diagnosis.findings if one.severity is not Severity.INFO]


def says(fault: Fault, finding: Finding) -> bool:
    text = f"{finding.id} {finding.where} {finding.message} {finding.fix}"
    return re.search(fault.says, text, re.IGNORECASE) is not None
