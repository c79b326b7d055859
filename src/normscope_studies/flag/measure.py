"""One training, and what the doctor's rule says of its weights under both flags."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from normscope.doctor.lint.alignment import alignment
from normscope.doctor.lint.checks.training import contradicts_training
from normscope.doctor.lint.rules import Loading, Patient
from normscope.doctor.observe.examine import examined

from .model import Language, loaded, loss_of, training


def patient_under(model: Language, tokens: Tensor, *, pre: bool) -> Patient:
    """The same weights under a flag, looked at on the data of the training."""
    other = loaded(model, pre=pre)
    stacks, observed = examined(other, (tokens[:, :-1],), lambda logits: loss_of(logits, tokens), rewire=True)
    complete = Loading(missing=(), unexpected=())
    return Patient(model=other, stacks=stacks, observed=observed, dtype=torch.float32, loading=complete)


def measured(
    *, trained_pre: bool, width: int, blocks: int, rate: float, after: tuple[int, ...], seed: int
) -> list[dict[str, Any]]:
    """Of each number of updates and both flags: what is found, and the numbers that it is found by."""
    models = training(pre=trained_pre, width=width, blocks=blocks, rate=rate, after=after, seed=seed)
    return [
        {"updates": updates, "loaded_pre": pre, **_seen(model, tokens, pre=pre)}
        for updates, (model, tokens) in zip(after, models, strict=True)
        for pre in (trained_pre, not trained_pre)
    ]


def _seen(model: Language, tokens: Tensor, *, pre: bool) -> dict[str, Any]:
    patient = patient_under(model, tokens, pre=pre)
    without_text = replace(patient, observed=replace(patient.observed, rewired_loss_nats=None))
    compared = alignment(patient, 0)
    assert compared is not None
    return {
        "said": _said(patient),
        "said_of_weights": _said(without_text),
        "difference": compared.difference,
        "standard_errors": compared.certainty,
        "shifts": compared.shifts,
        "loss_nats": patient.observed.loss_nats,
        "rewired_loss_nats": patient.observed.rewired_loss_nats,
    }


def _said(patient: Patient) -> str:
    found = list(contradicts_training(patient))
    return found[0].severity.value if found else ""
