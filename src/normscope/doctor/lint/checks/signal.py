"""What an untrained model computes: branches that add nothing, lost gradients, losses and
embeddings too large.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from ...measured import OutputMatrix
from ...observe.gradients import WITHOUT_AUTOGRAD
from ...observe.parameters import size_of
from ...observe.path import IN_CODE
from ...record import Stack, Sublayer
from ...result import NO_GRADIENT, Severity
from ...trace.forward import joined
from ..patient import Patient, initial_weights, listed, logits
from ..rule import Fault, rule, stack_rule


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
        fix="compute the factor anew after the model is built or loaded, or make it an "
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
        "that start at 0, though most of their likes in the other blocks do not",
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
    """Whether it has trained matrices, and only what is none of them gets a gradient."""
    trained = patient.trained_in(place)
    matrices = {name for name in trained if name in place.measured.matrices}
    moved = set(filter(patient.gets_gradient, trained))
    return (
        patient.was_differentiated and bool(matrices) and bool(moved) and matrices.isdisjoint(moved)
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


_LARGE_TABLE = 4.0
"""Root mean square of an embedding's entries; torch and T5 draw 1, and most others 0.02."""


def _large_tables(model: torch.nn.Module) -> dict[str, float]:
    """Root mean square of the entries of embeddings that are larger than any in use, by the
    weight's name.
    """
    tables = {
        joined(path, "weight"): one
        for path, one in model.named_modules()
        if isinstance(one, torch.nn.Embedding)
    }
    return {
        name: size
        for name, one in tables.items()
        if _LARGE_TABLE < (size := size_of(one.weight)) < math.inf
    }


SURPRISE_NATS = 2.0
"""Logits of deviation s start about s²/2 above chance: rows of N(0, 0.02²) give 0.0002 d, 1.6 at a
width of 8192.
"""
LEAK_NATS = 0.5
"""How far below chance a model that knows nothing may come."""
LARGEST_DEVIATION = 4.0
"""Of logits, where no loss was given: 8 nats above chance."""


@rule("loss-far-from-chance", initial_weights, logits)
def loss_far_from_chance(patient: Patient) -> Iterator[Fault]:
    """Before training the loss is ln(classes), as in GPT-2 (0.1 above it), and logits are small."""
    seen = patient.observed
    if seen.classes is None or seen.classes < 2:
        return
    if _is_output(patient, _large_tables(patient.model)):
        # The rule about embeddings says why: the output is tied to one.
        return
    message, fix, severity = "", _SMALLER, Severity.WARNING
    head = next((one for one in seen.output_matrices if one.outputs == seen.classes), None)
    chance = f"ln {seen.classes} = {math.log(seen.classes):.2f}"
    if seen.loss_nats is None or seen.loss_is_stand_in:
        if seen.logit_deviation is not None and seen.logit_deviation > LARGEST_DEVIATION:
            message = (
                f"logits deviate by {seen.logit_deviation:.3g} before training, and a loss near "
                f"{chance} wants "
            )
            message += f"them to deviate by at most about 1{_because(patient, head)}"
    else:
        excess = seen.loss_nats - math.log(seen.classes)
        side = "above" if excess > 0 else "below"
        told = (
            f"the loss before training is {seen.loss_nats:.2f} nats a token, {abs(excess):.2f} "
            f"{side} {chance}"
        )
        if excess > SURPRISE_NATS:
            message = (
                f"{told}: the model is sure of what it cannot know{_logits(seen.logit_deviation)}"
            )
            because = _because(patient, head)
            message += because
            fix += (
                ""
                if because
                else "; where logits are small, see that the loss is a mean over tokens and not a "
                "sum"
            )
            tied = head is not None and any(table.name == head.name for table in seen.tables)
            # Logits are large where a token's own row reads what it wrote, and nowhere else.
            small = head and head.size <= 1.2 * head.inputs**-0.5 and head.reads_size <= _ABOVE
            if head and tied and small and (seen.logit_deviation or math.inf) < 2:
                severity, fix = (
                    Severity.INFO,
                    "nothing: the first updates make it answer with other tokens",
                )
                message += (
                    f". The output matrix {head.name} is the embedding too, at the usual deviation "
                    f"of {head.size:.3g}, so that each token's own row answers it"
                )
        elif excess < -LEAK_NATS:
            message = (
                f"{told}: a model that knows nothing yet knows its "
                f"targets{_logits(seen.logit_deviation)}"
            )
            fix = _LEAK
    if message:
        yield Fault(severity=severity, where=head.name if head else "", message=message, fix=fix)


_ABOVE = 1.5
"""Factor by which an output matrix, or what it reads, may be larger than what keeps logits at 1."""


def _because(patient: Patient, head: OutputMatrix | None) -> str:
    """What makes logits large, as a sentence: the output matrix, or what it reads; "" where it is
    neither.
    """
    if head is None:
        return ""
    wanted = head.inputs**-0.5
    own = patient.weights.get(head.name)
    same = [name for name, weight in patient.weights.items() if name != head.name and weight is own]
    tied = any(table.name == head.name for table in patient.observed.tables)
    said = f"{head.name}{f' = {listed(same)}' if same else ''}"
    if head.size > _ABOVE * wanted:
        return (
            f". The output matrix {said} ({head.outputs} × "
            f"{head.inputs}){', tied to the embedding,' if tied else ''} starts at a deviation of "
            f"{head.size:.3g}, where 1/√{head.inputs} = {wanted:.3g} keeps logits at 1"
        )
    if head.reads_size > _ABOVE:
        return (
            f". The output matrix {said} reads vectors of deviation {head.reads_size:.3g}, where a "
            "norm gives 1: no norm stands before it, or one with a large gain"
        )
    return ""


_SMALLER = (
    "draw the output matrix, or the embedding that it is tied to, at a deviation of at most "
    "1/√width, or scale logits down"
)
_LEAK = (
    "see that targets are shifted by one, that attention masks the future, and that padding is not "
    "counted among the tokens that the loss is a mean of"
)


def _logits(deviation: float | None) -> str:
    return f" (its logits deviate by {deviation:.3g})" if deviation is not None else ""


TINY_SHARE = 1e-3
LARGE_STREAM = 10.0
"""Mean square; embeddings of N(0, 1/d) times √d, and normed ones, have 1. Narrow models with
weights of N(0, 0.02²) have shares of 1e-4 (BERT of width 32) beside such a stream: there the
weights are small, not the embedding large."""


@stack_rule("embedding-swamps-blocks")
def embedding_swamps_blocks(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """A stream that starts so large that nothing which blocks add to it changes what the next one
    reads.
    """
    measured = [sublayer.measured for sublayer in stack.sublayers]
    # Branches that a gate or a factor holds down are held down on purpose.
    held = any(one.is_closed or abs(one.branch_scale or 1.0) < 0.1 for one in stack.sublayers)
    most, least = max(one.share for one in measured), min(one.stream_square for one in measured)
    # Where norms stand on the stream, its size at the source is soon forgotten.
    if not held and most < TINY_SHARE and least > LARGE_STREAM:
        yield Fault(
            where=stack.name,
            message=(
                f"the stream enters the first block at a mean square of {stack.source_square:.3g}, "
                f"and no sub-layer adds more than {most:.2g} of a sum's square: blocks barely "
                "change what the next one reads"
            ),
        )


@rule("embedding-too-large", initial_weights)
def embedding_too_large(patient: Patient) -> Iterator[Fault]:
    """A table drawn far larger than any that is in use, where its blocks do not suffer from it:
    behind a norm.
    """
    tables = _large_tables(patient.model)
    if not tables or any(True for _ in embedding_swamps_blocks.check(patient)):
        return
    size = max(tables.values())
    tied = (
        " The output matrix is the same table, so that logits are as much too large."
        * _is_output(patient, tables)
    )
    yield Fault(
        where=tables,
        message=(
            f"an embedding starts with entries of root mean square {size:.3g}, where N(0, 1) is "
            "the largest that libraries draw. What is added to it, such as positions, is lost in "
            f"it, and behind a norm its gradient is {size:.3g} times smaller.{tied}"
        ),
    )


def _is_output(patient: Patient, tables: dict[str, float]) -> bool:
    return any(len(patient.weights[name]) == patient.observed.classes for name in tables)
