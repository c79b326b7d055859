"""The signal through an untrained model: branches that add nothing, and gradients that are lost or
not finite.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import nn

from ...observe.gradients import WITHOUT_AUTOGRAD
from ...observe.path import IN_CODE
from ...record import Sublayer
from ...result import NO_GRADIENT, Severity
from ...trace.forward import joined
from ..patient import Patient, listed
from ..rule import Fault, rule


@rule("dead-sublayer")
def dead_sublayers(patient: Patient) -> Iterator[Fault]:
    """Branches that the output does not depend on, that add nothing, or that get no gradient."""
    places = list(patient.sublayers())
    told = partial(_branches, len(places))
    unread = [place for place in places if not place.measured.reaches_output]
    yield from told(
        unread,
        "that are computed, but that the output does not depend on",
        fix="return the last state of the stream, or leave these sub-layers out",
        severity=Severity.WARNING,
    )
    read = [
        place for place in places if place.measured.reaches_output and not place.is_shut_by_gate
    ]
    # Those behind a factor of 0 that is no parameter.
    by = dict.fromkeys(name for place in read for name in place.measured.shut_by)
    never = "A buffer never opens" if by.keys() - {IN_CODE} else "A constant never changes"
    yield from told(
        [place for place in read if place.measured.shut_by],
        "whose whole input or output is multiplied by 0 or next to it",
        f". {never}: {listed(by)}. What they add is the same vector for every token, or nothing, "
        "and stays so",
        fix="compute the factor after the model is built or loaded, or make it an "
        "nn.Parameter that starts where gradients still pass",
    )
    read = [place for place in read if not place.measured.shut_by]
    constant = [
        place for place in read if place.measured.reaches_loss and _is_constant(patient, place)
    ]
    gains = [gain.name for gain in patient.observed.norm_gains if gain.constant and gain.total == 0]
    yield from told(
        constant,
        "none of whose matrices gets a gradient, while a bias does",
        ". What they add is that bias, one and the same vector for every token"
        + (
            f". Gains of the norms are 0: {listed(gains)}"
            if gains
            else ", and they stay so, as far as this batch tells: a ReLU or GELU all of whose "
            "outputs are 0 has a gradient of 0 too"
        ),
        fix="start these gains at 1, or multiply by 1 + w where they are meant to start at 0"
        if gains
        else (
            "look for a bias far below 0 or a matrix of zeros in front of the activation, and draw "
            "it as that of the others"
        ),
        severity=Severity.WARNING,
    )
    read = [place for place in read if place not in constant]
    # What is added to a stream that is itself nothing tells nothing of the branch.
    read = [place for place in read if place.measured.stream_square > _VANISHED]
    yield from _closed(patient, [place for place in read if place.is_closed], told)
    yield from _without_gradient(patient, [place for place in read if not place.is_closed], told)


_VANISHED = 1e-30
"""Mean square: products of entries of this size are lost in float32."""


def _branches(
    count: int,
    found: Sequence[Sublayer],
    said: str,
    more: str = "",
    *,
    fix: str,
    severity: Severity | None = None,
) -> Iterator[Fault]:
    """A fault of some of the model's branches, where there are any."""
    if found:
        message = f"branches {said}: {len(found)} of {count}{more}"
        yield Fault(severity=severity, where=found, message=message, fix=fix)


def _closed(
    patient: Patient, closed: list[Sublayer], told: Callable[..., Iterator[Fault]]
) -> Iterator[Fault]:
    opening = [
        place for place in closed if any(map(patient.gets_gradient, patient.trained_in(place)))
    ]
    lone = []
    for place in opening:
        stack = next(stack for stack in patient.stacks if place in stack.sublayers)
        likes = [one for one in stack.sublayers if one.kind == place.kind]
        lone += [place] if 2 * sum(one in closed for one in likes) < len(likes) else []
    yield from told(
        lone,
        "that start at 0, though most of their counterparts in the other blocks do not",
        ". They open in training, later than the others",
        fix="draw their last matrix as that of the others, or start all of them at 0",
        severity=Severity.WARNING,
    )
    yield from told(
        [place for place in opening if place not in lone],
        "that add exactly 0 to the stream",
        ". Their weights get a gradient, at once or when what is closed beside them has opened: "
        "they start closed and open in training",
        fix="nothing, if a last matrix or a gain of zeros is meant",
        severity=Severity.INFO,
    )
    yield from told(
        [place for place in closed if place not in opening and place.measured.reaches_loss],
        "that add 0 to the stream, and none of whose weights gets a gradient, even when all else "
        "has moved",
        ". They stay as they are",
        fix="look for two factors in a row that start at 0, a mask of zeros, frozen weights, or a "
        "detached output",
    )


def _is_constant(patient: Patient, place: Sublayer) -> bool:
    """Tells whether a sub-layer has trained matrices, and only its other parameters get a
    gradient.
    """
    trained = patient.trained_in(place)
    matrices = {name for name in trained if name in place.measured.matrices}
    moved = set(filter(patient.gets_gradient, trained))
    if place.is_closed and not moved.isdisjoint(_gains_of_zero(patient.model)):
        # As of the last norm of a residual network's block: it moves first, and then the matrices.
        return False
    return (
        patient.was_differentiated and bool(matrices) and bool(moved) and matrices.isdisjoint(moved)
    )


def _gains_of_zero(model: nn.Module) -> set[str]:
    """Names of the gains of norms over a batch or over channels that are 0 in every entry."""
    gains = {
        joined(path, "weight"): module.weight
        for path, module in model.named_modules()
        if isinstance(module, _NORMS_OF_CHANNELS) and module.weight is not None
    }
    return {name for name, gain in gains.items() if not bool(gain.detach().any())}


_NORMS_OF_CHANNELS = (
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
)


def _without_gradient(
    patient: Patient, acting: list[Sublayer], told: Callable[..., Iterator[Fault]]
) -> Iterator[Fault]:
    silent = []
    for place in acting if patient.was_differentiated else ():
        trained = patient.trained_in(place)
        # A frozen sub-layer has no gradient on purpose, and neither has one whose output this loss
        # does not ask for.
        if trained and place.measured.reaches_loss and not any(map(patient.gets_gradient, trained)):
            silent.append(place)
    rounded = [place for place in silent if place.measured.rounded_by]
    said = (
        "that add to the stream, but with a gradient of exactly 0 for all of their trainable "
        "weights"
    )
    yield from told(
        [place for place in silent if place not in rounded],
        said,
        fix="look for detach(), no_grad() or .data between them and the loss, or for gradients "
        f"that are too small for {str(patient.dtype).removeprefix('torch.')}",
    )
    by = "".join(place.measured.rounded_by for place in rounded[:1])
    yield from told(
        rounded,
        said,
        f". What they give is rounded ({by}) on its way to the loss, and rounding has no gradient",
        fix="give them a loss on what is not rounded yet, or pass the gradient by: x + (round(x) - "
        "x).detach()",
        # A loss of their own may train them, as a predictor of durations.
        severity=Severity.WARNING,
    )


@rule("nonfinite-gradient")
def nonfinite_gradients(patient: Patient) -> Iterator[Fault]:
    """A loss or gradients that overflow in the very first pass."""
    norms, loss = patient.observed.gradient_norms, patient.observed.loss_nats
    bad = [name for name, norm in norms.items() if not math.isfinite(norm)]
    seen = [f"gradients of {len(bad)} of {len(norms)} parameters are not finite"] if bad else []
    seen += [f"the loss is {loss}"] if loss is not None and not math.isfinite(loss) else []
    if seen:
        yield Fault(
            where=bad,
            message=", and ".join(seen),
            fix="look for 0/0 in norms, for a softmax over nothing but masked places, and for "
            f"values beyond {str(patient.dtype).removeprefix('torch.')}'s largest, "
            f"{torch.finfo(patient.dtype).max:.3g}",
        )


@rule(NO_GRADIENT)
def no_gradient(patient: Patient) -> Iterator[Fault]:
    """An operation in place on what the backward pass needs, or NaN within the pass; a pass without
    autograd is a note, for it may be meant."""
    if patient.no_gradient == WITHOUT_AUTOGRAD:
        yield Fault(
            severity=Severity.INFO,
            where="",
            message=f"{WITHOUT_AUTOGRAD}: nothing in it can be trained",
            fix="nothing in a model that only generates; else take the no_grad, detach or .data "
            "away",
        )
    elif patient.no_gradient.startswith("the loss is nan"):
        yield Fault(
            where="",
            message=patient.no_gradient,
            fix="let every row of a softmax keep one entry, and divide by nothing that may be 0",
        )
    elif patient.no_gradient:
        writers = list(dict.fromkeys(name for name, _ in patient.observed.writers))
        yield Fault(
            where=writers,
            message="an operation in place overwrites what the backward pass needs"
            + (
                f"; {listed(writers)} write{'s' if len(writers) == 1 else ''} into data"
                if writers
                else ""
            )
            + f". {patient.no_gradient.partition(' Hint:')[0]}",
            fix="make a new tensor, x = x * y for x.mul_(y), above all in norms, whose input the "
            "skip path reads",
        )
