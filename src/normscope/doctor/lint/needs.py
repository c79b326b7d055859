"""What rules must be told before they can be asked; without it a diagnosis says that they were not, and why.

Each is a function of the patient: why a rule that needs this cannot be asked, as a clause, or "" where it can.
"""

from .rules import Patient
from .vectors import at_initialisation


def an_optimizer(patient: Patient) -> str:
    return "" if patient.optimizer is not None else "no optimiser with its parameter groups was given"


def a_clip(patient: Patient) -> str:
    return "" if patient.clip_norm is not None else "no norm was given that gradients are clipped to"


def gradients(patient: Patient) -> str:
    return "" if patient.observed.gradient_norms else "no gradients were taken"


def logits(patient: Patient) -> str:
    return "" if patient.observed.classes is not None else "the output is not known to be logits"


def a_judged_rate(patient: Patient) -> str:
    if patient.advice is None:
        return "no advice on the learning rate was asked for"
    return "" if patient.advice.wanted_rate is not None else "no learning rate was given"


def a_checkpoint(patient: Patient) -> str:
    return "" if patient.loading is not None else "no checkpoint was loaded"


def a_configured_placement(patient: Patient) -> str:
    return "" if patient.wanted_placement is not None else "no configuration names a placement"


def initial_weights(patient: Patient) -> str:
    return "" if at_initialisation(patient) else "the weights have been trained"


def trained_weights(patient: Patient) -> str:
    return "the weights are as they were drawn" if at_initialisation(patient) else ""
