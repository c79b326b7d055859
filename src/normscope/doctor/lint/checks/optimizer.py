"""Norms and gates in the optimiser's parameter groups: decayed, or left out."""

from collections.abc import Iterator

from torch import nn

from ....report.doctor.contents import Finding, Severity
from ..needs import an_optimizer
from ..rules import Patient, Rule
from ..vectors import listed, norm_parameters


def _looked_after(model: nn.Module) -> dict[str, nn.Parameter]:
    """Trainable vectors and numbers of norms and gates by name."""
    numbers = {name: parameter for name, parameter in model.named_parameters() if parameter.numel() == 1}
    return {name: p for name, p in (norm_parameters(model) | numbers).items() if p.requires_grad}


def decayed_norms(patient: Patient) -> Iterator[Finding]:
    """Groups that pull gains to 0, where the norm's output is 0 too, and gates back to where they began."""
    if patient.optimizer is None:
        return
    known = {id(parameter): name for name, parameter in _looked_after(patient.model).items()}
    for number, group in enumerate(patient.optimizer.param_groups):
        decay = float(group.get("weight_decay") or 0.0)
        found = [known[id(parameter)] for parameter in group["params"] if id(parameter) in known]
        if decay > 0 and found:
            name = group.get("name", number)
            yield Finding(
                id="weight-decay-on-norms",
                severity=Severity.WARNING,
                where=listed(found),
                message=f"parameter group {name!r} of {type(patient.optimizer).__name__} decays {len(found)} gains, "
                f"shifts or gates of {len(group['params'])} parameters by {decay:g}",
                fix="put parameters with fewer than two dimensions into a group with weight_decay=0",
            )


def unheld_norms(patient: Patient) -> Iterator[Finding]:
    """Trainable gains, shifts and gates that the optimiser will never change."""
    if patient.optimizer is None:
        return
    held = {id(parameter) for group in patient.optimizer.param_groups for parameter in group["params"]}
    watched = _looked_after(patient.model)
    missing = [name for name, parameter in watched.items() if id(parameter) not in held]
    others = [p for p in patient.model.parameters() if p.requires_grad and id(p) not in held]
    if not missing:
        return
    # An optimiser for some of the model, as with two optimisers or with adapters, leaves out matrices too.
    alone = len(others) == len(missing)
    yield Finding(
        id="unused-in-optimizer",
        severity=Severity.WARNING if alone else Severity.INFO,
        where=listed(missing),
        message=f"{len(missing)} of {len(watched)} trainable gains, shifts or gates are in no parameter group"
        + ("" if alone else f", and {len(others) - len(missing)} other parameters are not either"),
        fix="add them to a group (with weight_decay=0), or set requires_grad_(False) where they are meant to stay",
    )


PLACE = 110
RULES: tuple[Rule, ...] = (
    Rule(
        id="weight-decay-on-norms",
        severity=Severity.WARNING,
        title="weight decay on norms or gates",
        explanation="Decay on a matrix under a norm changes its learning rate; on a norm's gain or a gate it changes "
        "the function, pulling the branch behind it to 0.",
        reference="Brown et al. 2020 and nanoGPT's configure_optimizers: vectors are not decayed; Bachlechner et al. "
        "2020, arXiv:2003.04887, for gates",
        check=decayed_norms,
        needs=(an_optimizer,),
    ),
    Rule(
        id="unused-in-optimizer",
        severity=Severity.WARNING,
        title="norms or gates that no optimiser holds",
        explanation="They ask for gradients and get them, and stay at their initial values: groups that were made by "
        "name or by number of dimensions have left them out.",
        reference="torch.optim: an optimiser changes what its param_groups hold and nothing else",
        check=unheld_norms,
        needs=(an_optimizer,),
    ),
)
