"""The mean-field prediction for a foreign stack: its formula, its weights' mean squares, its embedding's moments."""

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from ..placement import SublayerKind
from ..theory.backward import StackGradients, backward
from ..theory.mixing import Products
from .recipe import RecipeReading
from .record import ModelMeasurements, Stack, StackTheory

_ATTENTION = ("query", "key", "value", "output")
_MATRICES: Mapping[SublayerKind, tuple[str, ...]] = {
    "attention": _ATTENTION,
    "cross_attention": tuple(f"cross_{name}" for name in _ATTENTION),
    "feed_forward": ("ffn_in", "ffn_gate", "ffn_out"),
}
ASSUMPTIONS = (
    "mean field: weights independent of one another and of the input, with the mean squares that the model's have, "
    "wide layers, attention with the weights of independent Gaussian scores, and a loss that asks every token for a "
    "class drawn at random"
)


def with_predictions(stacks: Sequence[Stack], measured: ModelMeasurements) -> tuple[Stack, ...]:
    """The stacks with their predictions; none where a placement is not known, or theory has no model of its formula.

    From the measurement it takes E‖x‖² and the products of tokens where the first sub-layer begins, and for gradients
    one factor a stack: the least-squares fit of logarithms. Everything else is read from the formula that was found and
    from the weights. Gradients are those of matrices, as the measured ones are that the factor is fitted to. They are
    None where the output does not say something of every token, where sub-layers share their weights or have frozen
    matrices, and where a stack is read by something else than the output or a decoder.
    """
    readings = _readings(stacks)
    gradients = _gradients(readings, stacks, measured)
    return tuple(
        stack
        if reading is None or not stack.placement
        else replace(stack, predicted=_prediction(reading, stack, norms, measured.gradient_norms))
        for stack, reading, norms in zip(stacks, readings, gradients, strict=True)
    )


def _readings(stacks: Sequence[Stack]) -> list[RecipeReading | None]:
    """Made in order: an encoder comes before what reads it."""
    found: list[RecipeReading | None] = []
    for stack in stacks:
        recipe = stack.recipe
        memory = found[stack.memory] if stack.memory is not None and stack.memory < len(found) else None
        lacks = memory is None and any(sublayer.kind == "cross_attention" for sublayer in stack.sublayers)
        found.append(None if recipe is None or lacks else RecipeReading(recipe, memory))
    return found


def _gradients(
    readings: Sequence[RecipeReading | None], stacks: Sequence[Stack], measured: ModelMeasurements
) -> list[list[float] | None]:
    """By stack and sub-layer, up to a factor: from the loss to the last stack, and to those whose ends it reads."""
    found: list[list[float] | None] = [None] * len(readings)
    *others, last = readings
    if last is None or not last.recipe.asked_everywhere or any(n != stacks[-1].memory for n in range(len(others))):
        return found
    at_output = _loss_gradient(last, measured)
    if at_output is None:
        return found
    gradients = backward(last.stack, at_output)
    found[-1] = _by_sublayer(last, gradients)
    for n, reading in enumerate(others):
        if reading is not None:
            found[n] = _by_sublayer(reading, backward(reading.stack, gradients.memory))
    return found


def _loss_gradient(last: RecipeReading, measured: ModelMeasurements) -> Products | None:
    """Of a cross-entropy at random targets: softmax less target, for one token and for two, as in `theory.loss`."""
    end = last.end.mean
    if measured.classes is not None and measured.logit_deviation is not None:
        classes, variance = measured.classes, measured.logit_deviation**2
    elif measured.loss_is_stand_in:
        # Hidden states in the place of logits.
        classes, variance = last.recipe.width, end.one
    else:
        return None
    together = variance * end.two / end.one if end.one else 0.0
    one = 1 - 2 / classes + min(1.0, math.exp(min(variance, 700.0)) / classes)
    return Products(one, min(1.0, (math.exp(min(together, 700.0)) - 1) / classes))


def _by_sublayer(reading: RecipeReading, gradients: StackGradients) -> list[float]:
    """Norm of all matrices' gradients together, in the order of application."""
    taken: Counter[str] = Counter()
    found = []
    for applied in reading.stack.applied:
        kind = applied.site.kind
        place = taken[kind]
        taken[kind] += 1
        norms = [gradients.weights[name][place] for name in _MATRICES[kind] if name in gradients.weights]
        found.append(math.hypot(*norms))
    return found


def _prediction(
    reading: RecipeReading, stack: Stack, norms: list[float] | None, trained: Container[str]
) -> StackTheory:
    before = [reading.values[term].mean for term in reading.recipe.streams]
    return StackTheory(
        stream_square=tuple(x.one for x in before),
        correlation=tuple(x.two / x.one if x.one else 0.0 for x in before),
        gradient_norm=_fitted(norms, stack, trained),
        assumptions=ASSUMPTIONS,
    )


def _fitted(norms: list[float] | None, stack: Stack, trained: Container[str]) -> tuple[float | None, ...]:
    """In the order of the sub-layers and with the measurement's mean logarithm; None for each where that is not known.

    trained: names of the parameters with a gradient. A sub-layer is compared where all of its matrices have one, for
    theory's norm is over all of them; and its gradient is not that of one use where several share their weights.
    """
    sublayers = [sublayer.measured for sublayer in stack.sublayers]
    count = len(sublayers)
    shared = len({one.parameters for one in sublayers}) < count
    if norms is None or shared:
        return (None,) * count
    whole = [all(name in trained for name in one.matrices) for one in sublayers]
    measured = [one.gradient_norm if all_of_it else None for one, all_of_it in zip(sublayers, whole, strict=True)]
    logarithms = [math.log(m / p) for m, p in zip(measured, norms, strict=True) if m and p]
    if not logarithms:
        return (None,) * count
    factor = math.exp(math.fsum(logarithms) / len(logarithms))
    return tuple(p * factor if comparable else None for p, comparable in zip(norms, whole, strict=True))
