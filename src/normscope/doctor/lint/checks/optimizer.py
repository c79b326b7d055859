"""The optimiser: norms and gates in its groups, a clip far below the gradient, a rate outside the
usual range.
"""

from collections.abc import Iterator, Sequence
from math import hypot

from torch import nn

from ....optim.groups import Clipping, epsilon_of
from ....report.words import counted, learning_rate
from ...record import Stack
from ...result import Advice, Severity
from ...trace.forward import norm_parameters
from ..failed_trainings import WARMUP_UPDATES, FailedTraining, failed_like
from ..patient import Patient, a_clip, a_judged_rate, an_optimizer, gradients
from ..rule import Fault, rule


def _looked_after(model: nn.Module) -> dict[str, nn.Parameter]:
    """Returns the trainable vectors and numbers of norms and gates by name."""
    numbers = {
        name: parameter for name, parameter in model.named_parameters() if parameter.numel() == 1
    }
    return {name: p for name, p in (norm_parameters(model) | numbers).items() if p.requires_grad}


@rule("weight-decay-on-norms", an_optimizer)
def decayed_norms(patient: Patient) -> Iterator[Fault]:
    """Groups that pull gains to 0, where the norm's output is 0 too, and gates back to where they
    began.
    """
    watched = _looked_after(patient.model)
    known = {id(parameter): name for name, parameter in watched.items()}
    for number, group in enumerate(patient.groups):
        decay = float(group.get("weight_decay") or 0.0)
        found = [known[id(parameter)] for parameter in group["params"] if id(parameter) in known]
        if decay > 0 and found:
            name = group.get("name", number)
            alone = len(found) == len(group["params"]) and len(patient.groups) > 1
            why = _why_meant(patient, [watched[one] for one in found], alone=alone)
            yield Fault(
                severity=Severity.INFO if why else Severity.WARNING,
                where=found,
                message=f"parameter group {name!r} of {type(patient.optimizer).__name__} decays "
                f"{len(found)} gains, shifts or gates of {len(group['params'])} parameters by "
                f"{decay:g}" + (f"; {why}" if why else ""),
                fix=f"nothing, where this is meant; else {_APART}" if why else _APART,
            )


_APART = "put parameters with fewer than two dimensions into a group with weight_decay=0"


def _why_meant(patient: Patient, decayed: list[nn.Parameter], *, alone: bool) -> str:
    """Returns the reason why decay may be meant for these gains, shifts and gates, as a clause; ""
    where it is likely an oversight.

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
    """Tells whether norms multiply with 1 plus their gain: each one's only vector is near 0, and no
    branch is closed.
    """
    if any(place.is_closed for place in patient.sublayers()):
        return False
    by_module: dict[str, list[nn.Parameter]] = {}
    for name, parameter in norm_parameters(patient.model).items():
        if parameter.numel() > 1:
            by_module.setdefault(name.rpartition(".")[0], []).append(parameter)
    gains = [own[0] for own in by_module.values() if len(own) == 1]
    return (
        bool(gains)
        and len(gains) == len(by_module)
        and all(abs(float(g.detach().mean())) < 0.5 for g in gains)
    )


def _norms_inputs_alone(stack: Stack) -> bool:
    """Tells whether norms' outputs are read only by sub-layers, or by the output's matrix, and are
    never part of the stream.
    """
    for sublayer in stack.sublayers:
        segment = sublayer.formula.segment
        read = {id(branch.arguments[0]) for branch in segment.branches}
        norms = [term for term in segment.terms if term.kind == "norm"]
        if any(id(term) not in read for term in norms) or any(
            branch.inside for branch in segment.branches
        ):
            return False
    return not stack.embedding_norm


@rule("unused-in-optimizer", an_optimizer)
def unheld_norms(patient: Patient) -> Iterator[Fault]:
    """Trainable gains, shifts and gates that the optimiser will never change."""
    held, watched = patient.held, _looked_after(patient.model)
    missing = [name for name, parameter in watched.items() if id(parameter) not in held]
    others = [p for p in patient.model.parameters() if p.requires_grad and id(p) not in held]
    yield from _at_rest(patient)
    if not missing:
        yield from _left_out(patient, others)
        return
    own = {id(p) for p in patient.model.parameters()}
    if not held & own:
        yield Fault(
            where=type(patient.model).__name__,
            message=(
                f"the optimiser holds {len(held)} parameters, none of which is this model's: no "
                "update changes it"
            ),
            fix="make the optimiser of this model's parameters, after it was built, moved and "
            "loaded",
        )
        return
    # An optimiser for some of the model, as with two optimisers or with adapters, leaves out
    # matrices too.
    alone = len(others) == len(missing)
    blocks = [
        patient.weights[name]
        for one in patient.sublayers()
        if one.block
        for name in patient.trained_in(one)
    ]
    if len(blocks) > 1 and not any(id(weight) in held for weight in blocks):
        yield Fault(
            severity=Severity.WARNING,
            where=patient.stacks,
            message=(
                f"the optimiser holds {len(held & own)} of the model's parameters and none of any "
                "block, though these ask for gradients: no update changes a block"
            ),
            fix="build the optimiser after all blocks are registered (nn.ModuleList holds them, a "
            "list does not), or set requires_grad_(False) where they are meant to stay",
        )
        return
    yield Fault(
        severity=Severity.WARNING if alone else Severity.INFO,
        where=missing,
        message=f"{len(missing)} of {len(watched)} trainable gains, shifts or gates are in no "
        "parameter group"
        + ("" if alone else f", and {len(others) - len(missing)} other parameters are not either"),
        fix="add them to a group (with weight_decay=0), or set requires_grad_(False) where they "
        "are meant to stay",
    )


def _left_out(patient: Patient, others: Sequence[nn.Parameter]) -> Iterator[Fault]:
    """Weights that are neither gains nor gates and that no group has, beside most that one has."""
    trained = [p for p in patient.model.parameters() if p.requires_grad]
    names = _names(patient, others)
    # Adapters leave out what they adapt.
    if names and 2 * len(names) < len(trained):
        yield Fault(
            severity=Severity.WARNING,
            where=names,
            message=f"{len(names)} of {len(trained)} trainable parameters are in no parameter "
            f"group of {type(patient.optimizer).__name__}: no update changes them",
            fix="add them to a group, or set requires_grad_(False) where they are meant to stay; "
            "where a second optimiser holds them, silence the rule",
        )


def _at_rest(patient: Patient) -> Iterator[Fault]:
    """Weights in groups with a rate of 0, beside others with a rate."""
    peaks = patient.peaks
    if not any(peaks):
        return
    resting = [
        weight
        for group, peak in zip(patient.groups, peaks, strict=True)
        for weight in group["params"]
        if not peak and weight.requires_grad
    ]
    if names := _names(patient, resting):
        yield Fault(
            severity=Severity.WARNING,
            where=names,
            message=f"{len(names)} trainable parameters are in a group with the rate 0: no update "
            "changes them",
            fix="give the group a rate, or set requires_grad_(False) where they are meant to stay",
        )


def _names(patient: Patient, weights: Sequence[nn.Parameter]) -> list[str]:
    asked = {id(weight) for weight in weights}
    return [name for name, weight in patient.model.named_parameters() if id(weight) in asked]


@rule("clip-hides-rate", an_optimizer, a_clip, gradients)
def clip_hides_rate(patient: Patient) -> Iterator[Fault]:
    """A gradient that is a thousand times the clip: with SGD the rate is a thousand times smaller
    than it looks.
    """
    norm = hypot(*patient.observed.gradient_norms.values())
    if not norm or patient.clip_norm is None:
        return
    sizes = {name: parameter.numel() for name, parameter in patient.model.named_parameters()}
    entries = sum(sizes.get(name, 0) for name in patient.observed.gradient_norms)
    for group in patient.groups:
        rate = float(group.get("lr") or 0.0)
        if not rate > 0:
            continue
        clipping = Clipping(
            gradient_norm=norm,
            clip_norm=patient.clip_norm,
            rate=rate,
            epsilon=epsilon_of(group),
            entries=max(1, entries),
        )
        if clipping.is_far_below:
            yield _clipped(clipping, type(patient.optimizer).__name__)
            return


def _clipped(clipping: Clipping, optimizer: str) -> Fault:
    told = (
        f"the gradient's norm is {clipping.gradient_norm:.3g} and it is clipped to "
        f"{clipping.clip_norm:g}: {1 / clipping.factor:,.0f} times less"
    )
    if clipping.hides_rate:
        return Fault(
            where="",
            in_code=False,
            message=(
                f"{told}. The first update of {optimizer} at a rate of {clipping.rate:.3g} is the "
                f"one that a rate of {clipping.effective_rate:.2g} makes without clipping"
            ),
            fix="clip near the gradient's own norm and take a rate near "
            f"{clipping.effective_rate:.1g}; where the loss is a sum over tokens, take their "
            "mean",
        )
    return Fault(
        severity=Severity.INFO,
        where="",
        in_code=False,
        message=(
            f"{told}. {optimizer} divides by the gradient's size, so that this hides no rate, but "
            "every update weighs the same, whatever its gradient"
        ),
        fix="nothing, where this is meant; a clip near the gradient's own norm acts on outliers "
        "alone",
    )


@rule("rate-out-of-range", a_judged_rate)
def rate_out_of_range(patient: Patient) -> Iterator[Fault]:
    """The rate that the user plans with, outside the range that is known of models like this
    one.
    """
    advice = patient.advice
    if advice is None or advice.wanted_rate is None:
        return
    beside = _failed_like(patient, advice)
    if beside is not None:
        yield _failed(advice.wanted_rate, advice.wanted_warmup_updates, beside)
        return
    if advice.best_interval is None or advice.wanted_place not in ("below", "above"):
        return
    span, usual = advice.best_interval, learning_rate(advice.best_rate, 2)
    message = (
        f"your rate {learning_rate(advice.wanted_rate, 2)} lies {advice.wanted_place} the range "
        f"that a law over known rates gives such a model, {learning_rate(span.low, 2)} to "
        f"{learning_rate(span.high, 2)}"
    )
    if advice.wanted_place == "below":
        fix = (
            f"nothing, or compare it with {usual}; recipes are often below the best "
            "rate of learning-rate sweeps"
        )
    elif advice.is_too_high and not advice.wanted_warmup_updates:
        yield Fault(where="", in_code=False, message=message, fix=f"take a rate near {usual}")
        return
    else:
        # A rate a little above what is known of others, or one with a warm-up, is not certain to be
        # wrong.
        if advice.wanted_warmup_updates:
            own = counted(advice.wanted_warmup_updates, "update")
            message += f"; whether your warm-up of {own} carries it is not known"
        fix = f"compare it with {usual}, or watch the loss where the rate comes to its peak"
    yield Fault(severity=Severity.INFO, where="", in_code=False, message=message, fix=fix)


def _failed_like(patient: Patient, advice: Advice) -> FailedTraining | None:
    """Returns the training of ours of such a shape that learned nothing at such a rate: every sum
    is normed, nothing makes its skip the larger part, and the model is as deep and half as wide or
    more.
    """
    inside = [one for one in patient.sublayers() if one.block > 0]
    plain = all(
        one.formula.sum_is_normed and one.skip_scale == one.branch_scale == 1 for one in inside
    )
    long = (advice.wanted_warmup_updates or 0) > WARMUP_UPDATES
    if not plain or long or patient.trained or advice.optimizer not in ("adam", "adamw"):
        return None
    return failed_like(
        sublayers=len(inside),
        width=max((stack.width for stack in patient.stacks), default=0),
        rate=advice.wanted_rate or 0.0,
    )


def _failed(rate: float, warmup_updates: int | None, beside: FailedTraining) -> Fault:
    said = (
        "without a warm-up" if not warmup_updates else f"after {warmup_updates} updates of warm-up"
    )
    unknown = warmup_updates is None
    if unknown:
        said = "(of whose warm-up nothing is known)"
    return Fault(
        severity=Severity.INFO if unknown else Severity.WARNING,
        where="",
        in_code=False,
        message=(
            f"your rate {learning_rate(rate, 2)} {said} stands where a Post-LN of ours learned "
            f"nothing: {beside.sublayers} sub-layers of width {beside.width} stayed at the "
            f"frequencies of tokens at every rate from {learning_rate(beside.lowest_rate, 2)} to "
            f"{learning_rate(beside.highest_rate, 2)}, after {WARMUP_UPDATES} updates of warm-up "
            f"({beside.source})"
        ),
        fix=f"rise to {learning_rate(rate, 2)} over some thousand updates (4,000 in Vaswani et al. "
        "2017), or take a rate five to ten times lower",
    )
