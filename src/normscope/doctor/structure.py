"""A model's structure without its weights: streams, names of placements, and the rules that need no numbers."""

from collections.abc import Collection

import torch
from torch import nn

from .diagnosis import Diagnosis
from .find.search import streams_in
from .identify.stacks import as_stacks
from .lint.linter import asked_rules, lint
from .lint.rules import Patient
from .record import ModelMeasurements
from .trace.forward import Inputs


def structure(
    model: nn.Module,
    batch: Inputs,
    *,
    wanted_placement: str | None = None,
    silenced: Collection[str] = (),
    target: str = "",
) -> Diagnosis:
    """What a model is wired like, from its operations alone; it may lie on the meta device, and have no weights at all.

    Every measurement of the diagnosis is NaN or None, and its rules say which of them were not asked for that reason.
    Scales that are parameters or buffers are unknown on the meta device. Raises ValueError as `find_stacks` does.
    """
    _, streams = streams_in(model, batch)
    stacks, measured = tuple(as_stacks(streams)), ModelMeasurements()
    patient = Patient(
        model=model,
        stacks=stacks,
        observed=measured,
        dtype=next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype()),
        wanted_placement=wanted_placement,
        measured=False,
    )
    return Diagnosis(
        target=target or type(model).__name__,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        stacks=stacks,
        measured=measured,
        findings=lint(patient, silenced),
        advice=None,
        silenced=tuple(silenced),
        rules=asked_rules(patient, silenced),
    )
