"""Norms and gates in the optimiser's parameter groups: decayed, or left out."""

from collections.abc import Iterator

from torch import nn

from ...record import Stack
from ...result import Finding, Severity
from ..gradient_reach import is_closed
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
    watched = _looked_after(patient.model)
    known = {id(parameter): name for name, parameter in watched.items()}
    for number, group in enumerate(patient.optimizer.param_groups):
        decay = float(group.get("weight_decay") or 0.0)
        found = [known[id(parameter)] for parameter in group["params"] if id(parameter) in known]
        if decay > 0 and found:
            name = group.get("name", number)
            alone = len(found) == len(group["params"]) and len(patient.optimizer.param_groups) > 1
            why = _why_meant(patient, [watched[one] for one in found], alone=alone)
            yield Finding(
                id="weight-decay-on-norms",
                severity=Severity.INFO if why else Severity.WARNING,
                where=listed(found),
                message=f"parameter group {name!r} of {type(patient.optimizer).__name__} decays {len(found)} gains, "
                f"shifts or gates of {len(group['params'])} parameters by {decay:g}" + (f"; {why}" if why else ""),
                fix=f"nothing, where this is meant; else {_APART}" if why else _APART,
            )


_APART = "put parameters with fewer than two dimensions into a group with weight_decay=0"


def _why_meant(patient: Patient, decayed: list[nn.Parameter], *, alone: bool) -> str:
    """Why decay may be meant for these gains, shifts and gates, as a clause; "" where it is likely an oversight.

    alone: whether they are all that an optimiser with several groups has in one of them.
    """
    if any(parameter.numel() == 1 for parameter in decayed):
        return ""
    if alone:
        return "they have a group of their own, so that this is meant"
    if _counted_from_1(patient):
        return "gains are counted from 1 here, so that decay pulls them to 1"
    if all(_norms_inputs_alone(stack) for stack in patient.stacks):
        return "every norm stands in front of a matrix, where decay of gains was found to help"
    return ""


def _counted_from_1(patient: Patient) -> bool:
    """Whether norms multiply with 1 plus their gain: each one's only vector is near 0, and no branch is closed."""
    if any(is_closed(place) for place in patient.sublayers()):
        return False
    by_module: dict[str, list[nn.Parameter]] = {}
    for name, parameter in norm_parameters(patient.model).items():
        if parameter.numel() > 1:
            by_module.setdefault(name.rpartition(".")[0], []).append(parameter)
    gains = [own[0] for own in by_module.values() if len(own) == 1]
    return bool(gains) and len(gains) == len(by_module) and all(abs(float(g.detach().mean())) < 0.5 for g in gains)


def _norms_inputs_alone(stack: Stack) -> bool:
    """Whether what norms make is read by sub-layers, or by the output's matrix, and is never part of the stream."""
    for sublayer in stack.sublayers:
        segment = sublayer.formula.segment
        read = {id(branch.arguments[0]) for branch in segment.branches}
        norms = [term for term in segment.terms if term.kind == "norm"]
        if any(id(term) not in read for term in norms) or any(branch.inside for branch in segment.branches):
            return False
    return not stack.embedding_norm


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
        "the function, pulling the branch behind it to 0. Gains in front of a matrix can be made up for by it.",
        reference="Brown et al. 2020 and nanoGPT's configure_optimizers: vectors are not decayed; Bachlechner et al. "
        "2020, arXiv:2003.04887, for gates; arXiv:2605.26895: decay helps gains of norms on inputs of matrices, and "
        "harms those on outputs",
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
