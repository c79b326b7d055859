"""The sizes before training: the loss compared with that of chance, and embeddings compared with
what blocks add.
"""

import math
from collections.abc import Iterator

import torch

from ...measured import ModelMeasurements, OutputMatrix
from ...record import Stack
from ...result import Severity
from ...trace.forward import joined
from ..patient import Patient, initial_weights, listed, logits
from ..rule import Fault, rule, stack_rule

_LARGE_TABLE = 4.0
"""Root mean square of an embedding's entries; torch and T5 draw 1, and most others 0.02."""


def _large_tables(patient: Patient) -> dict[str, float]:
    """Returns the root mean square of the entries of embeddings that are larger than any in use, by
    the weight's name.
    """
    tables = {
        joined(path, "weight"): one
        for path, one in patient.model.named_modules()
        if isinstance(one, torch.nn.Embedding)
    }
    return {
        name: size
        for name, one in tables.items()
        if _LARGE_TABLE < (size := patient.size_of(one.weight)) < math.inf
    }


SURPRISE_NATS = 2.0
"""Logits of deviation s start about s²/2 above chance: rows of N(0, 0.02²) give 0.0002 d, 1.6 at a
width of 8192.
"""
LEAK_NATS = 0.5
"""The distance in nats by which a model that knows nothing may come below chance."""
LARGEST_DEVIATION = 4.0
"""The largest standard deviation of logits where no loss was given: 8 nats above chance."""


def _answers_its_own_row(seen: ModelMeasurements, head: OutputMatrix) -> bool:
    """Tells whether each token's own row of a usual embedding, tied to the output, answers it."""
    tied = any(table.name == head.name for table in seen.tables)
    # Logits are large where a token's own row reads what it wrote, and nowhere else.
    small = head.size <= 1.2 * head.inputs**-0.5 and head.reads_size <= _ABOVE
    return tied and small and (seen.logit_deviation or math.inf) < 2


@rule("loss-far-from-chance", initial_weights, logits)
def loss_far_from_chance(patient: Patient) -> Iterator[Fault]:
    """Finds a loss far from ln(classes), or large logits, before training; GPT-2 starts 0.1 above
    ln(classes).
    """
    seen = patient.observed
    if seen.classes is None or seen.classes < 2:
        return
    if _is_output(patient, _large_tables(patient)):
        # The rule about embeddings says why: the output is tied to one.
        return
    head = next((one for one in seen.output_matrices if one.outputs == seen.classes), None)
    message, fix, severity = "", _smaller(head), Severity.WARNING
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
        if _is_no_mean(seen):
            message, fix = f"{told}: {_no_mean_words(seen)}", _MEAN
        elif excess > SURPRISE_NATS:
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
            if head and _answers_its_own_row(seen, head):
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
        where = head.name if head else ""
        yield Fault(severity=severity, where=where, message=message, fix=fix)


_MEAN = "take the mean over the tokens that count (reduction='mean'), and no sum of parts of it"
_OFF_MEAN = 0.3
"""Smoothed targets, which cannot be told from a smaller weight at the start, are off by a tenth."""
_SAME = 0.05


def _is_no_mean(seen: ModelMeasurements) -> bool:
    """Tells whether the loss of a single token is near chance, and the whole is far from it because
    it is no mean.
    """
    targets = seen.targets
    if targets is None or seen.loss_nats is None or seen.classes is None:
        return False
    times = targets.times_mean
    if abs(times - 1) < _OFF_MEAN:
        return False
    excess = seen.loss_nats / times - math.log(seen.classes)
    far = abs(seen.loss_nats - math.log(seen.classes)) > LEAK_NATS
    return far and -LEAK_NATS <= excess <= SURPRISE_NATS


def _no_mean_words(seen: ModelMeasurements) -> str:
    targets = seen.targets
    if targets is None or seen.loss_nats is None:
        return ""
    times = targets.times_mean
    said = f"it is {times:.3g} times the mean over the {targets.counted} tokens that count"
    if math.isclose(times, targets.counted, rel_tol=_SAME):
        said = f"it is a sum over the {targets.counted} tokens that count"
    elif math.isclose(times, targets.counted / targets.places, rel_tol=_SAME):
        said = f"it is divided by all {targets.places} places, and {targets.counted} of them count"
    return f"{said}, of which the mean is {seen.loss_nats / times:.2f} nats"


_ABOVE = 1.5
"""Factor by which an output matrix, or what it reads, may be larger than what keeps logits at 1."""


def _because(patient: Patient, head: OutputMatrix | None) -> str:
    """Returns the reason for large logits, as a sentence: the output matrix, or what it reads; ""
    where it is neither.
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


def _smaller(head: OutputMatrix | None) -> str:
    """Returns what makes logits smaller, with the matrix and its number where these are known."""
    if head is None:
        return _SMALLER
    wanted = head.inputs**-0.5
    if head.size > _ABOVE * wanted:
        return (
            f"`{head.name}` has deviation {head.size:.3g}; give it {wanted:.3g}, or scale logits "
            "down by as much"
        )
    if head.reads_size > _ABOVE:
        return (
            f"norm what `{head.name}` reads, which has deviation {head.reads_size:.3g}, or scale "
            "logits down by as much"
        )
    return _SMALLER


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
    tables = _large_tables(patient)
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
