"""The mean-field prediction for a foreign stack: its formula, its weights' mean squares, its
embedding's moments.
"""

import math
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..placement import Placement, Site, StackShape, SublayerKind
from ..theory.backward import StackGradients, backward
from ..theory.mixing import Products
from ..theory.moments import Moments
from ..theory.operations import MomentNorms
from ..theory.places import RANDOM
from ..theory.stream import MomentStack, StreamSetting
from .find.terms import Term
from .measured import ModelMeasurements, SublayerMeasurements
from .record import BranchWeights, Stack, StackRecipe, StackTheory
from .trace.norms import NormFunction

_ATTENTION = ("query", "key", "value", "output")
_MATRICES: Mapping[SublayerKind, tuple[str, ...]] = {
    "attention": _ATTENTION,
    "cross_attention": tuple(f"cross_{name}" for name in _ATTENTION),
    "feed_forward": ("ffn_in", "ffn_gate", "ffn_out"),
}
ASSUMPTIONS = (
    "mean field: weights independent of one another and of the input, with the mean squares that "
    "the model's have, wide layers, attention with the weights of independent Gaussian scores, and "
    "a loss that asks every token for a class drawn at random"
)


@dataclass(slots=True)
class _RecipeReading:
    """A recipe read with moments: of its terms, one by one, what they are."""

    recipe: StackRecipe
    memory: "_RecipeReading | None"
    """The reading of the stack that cross-attention reads."""
    stack: MomentStack = field(init=False)
    values: dict[Term, Moments] = field(default_factory=dict)
    _applied: list[BranchWeights] = field(default_factory=list)

    def __post_init__(self) -> None:
        recipe, memory = self.recipe, self.memory
        self.stack = MomentStack(
            Placement(
                StackShape(
                    kind="decoder" if recipe.causal else "encoder",
                    width=recipe.width,
                    encoder_blocks=1,
                    decoder_blocks=1,
                )
            ),
            StreamSetting(
                tokens=recipe.tokens,
                weight_std=self._std,
                memory=memory.end.mean if memory else None,
                memory_tokens=memory.recipe.tokens if memory else 0,
                memory_differing=memory.end.differing if memory else RANDOM,
            ),
        )
        for products, centred in recipe.parts:
            self.stack.atoms.add(*products, centred=centred)
        self.values[recipe.source] = Moments.sum_of(self.stack.atoms)
        for term in recipe.terms:
            self.values[term] = self._read(
                term, *(self.values[argument] for argument in term.arguments)
            )
        self.stack.output = self.end

    @property
    def end(self) -> Moments:
        return self.values[self.recipe.end]

    def _read(self, term: Term, x: Moments, *others: Moments) -> Moments:
        if term.kind == "branch":
            return self._apply(self.recipe.weights[term.branch], x)
        if term.norm is not None:
            x = _norm(term.norm)(x)
            for gain in term.gains:
                x = x * gain.size
        elif term.factor is not None:
            x = x * term.factor.size
        for other in others:
            x = x + other
        return x

    def _std(self, name: str, site: Site) -> float:
        of = self._applied[site.block - 1]
        fan_in = of.inner_width if name == "ffn_out" else self.recipe.width
        return math.sqrt(of.gains[name] / fan_in)

    def _apply(self, weights: BranchWeights | None, x: Moments) -> Moments:
        """F as the next sub-layer of the stack, with a shape and an activation of its own."""
        assert weights is not None
        self._applied.append(weights)
        causal = self.recipe.causal and weights.kind == "attention"
        shape = StackShape(
            kind="decoder" if causal else "encoder",
            width=self.recipe.width,
            ffn_width=weights.inner_width,
            encoder_blocks=1,
            decoder_blocks=1,
        )
        self.stack.setting = replace(
            self.stack.setting, activation=weights.activation, angles=weights.angles
        )
        site = Site(kind=weights.kind, block=len(self._applied), stack=shape)
        return self.stack.apply(
            site, x, {place: _norm(norm) for place, norm in weights.inside.items()}
        )


def _norm(norm: NormFunction) -> Callable[[Moments], Moments]:
    divided = MomentNorms(
        0.0 if math.isnan(norm.epsilon) else norm.epsilon, centres=norm.kind == "layer"
    )
    return lambda x: divided(x) * norm.gain


def with_predictions(stacks: Sequence[Stack], measured: ModelMeasurements) -> tuple[Stack, ...]:
    """Returns the stacks with their predictions; none where a placement is not known, or theory has
    no model of its formula.

    From the measurement it takes E‖x‖² and the products of tokens where the first sub-layer begins,
    and for gradients one factor a stack: the least-squares fit of logarithms. Everything else is
    read from the formula that was found and from the weights. Gradients are those of matrices, as
    the measured ones are that the factor is fitted to. They are None where the output does not say
    something of every token, where sub-layers share their weights or have frozen matrices, and
    where a stack is read by something else than the output or a decoder.
    """
    readings = _readings(stacks)
    gradients = _gradients(readings, stacks, measured)
    return tuple(
        stack
        if reading is None or not stack.placement
        else replace(stack, predicted=_prediction(reading, stack, norms, measured.gradient_norms))
        for stack, reading, norms in zip(stacks, readings, gradients, strict=True)
    )


def _readings(stacks: Sequence[Stack]) -> list[_RecipeReading | None]:
    """Made in order: an encoder comes before what reads it."""
    found: list[_RecipeReading | None] = []
    for stack in stacks:
        recipe = stack.recipe
        memory = (
            found[stack.memory] if stack.memory is not None and stack.memory < len(found) else None
        )
        lacks = memory is None and any(
            sublayer.kind == "cross_attention" for sublayer in stack.sublayers
        )
        found.append(None if recipe is None or lacks else _RecipeReading(recipe, memory))
    return found


def _gradients(
    readings: Sequence[_RecipeReading | None], stacks: Sequence[Stack], measured: ModelMeasurements
) -> list[list[float] | None]:
    """Computes gradients by stack and sub-layer, up to a factor: from the loss to the last stack,
    and to those whose ends it reads.
    """
    found: list[list[float] | None] = [None] * len(readings)
    *others, last = readings
    if (
        last is None
        or not last.recipe.asked_everywhere
        or any(n != stacks[-1].memory for n in range(len(others)))
    ):
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


def _loss_gradient(last: _RecipeReading, measured: ModelMeasurements) -> Products | None:
    """Returns the gradient of a cross-entropy at random targets: softmax less target, for one token
    and for two, as in `theory.loss`.
    """
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


def _by_sublayer(reading: _RecipeReading, gradients: StackGradients) -> list[float]:
    """Returns the norm of all matrices' gradients together, in the order of application."""
    taken: Counter[str] = Counter()
    found = []
    for applied in reading.stack.applied:
        kind = applied.site.kind
        place = taken[kind]
        taken[kind] += 1
        norms = [
            gradients.weights[name][place] for name in _MATRICES[kind] if name in gradients.weights
        ]
        found.append(math.hypot(*norms))
    return found


def _prediction(
    reading: _RecipeReading, stack: Stack, norms: list[float] | None, trained: Container[str]
) -> StackTheory:
    before = [reading.values[term].mean for term in reading.recipe.streams]
    return StackTheory(
        stream_square=tuple(x.one for x in before),
        correlation=tuple(x.two / x.one if x.one else 0.0 for x in before),
        gradient_norm=_fitted(norms, stack, trained),
        assumptions=ASSUMPTIONS,
    )


def _fitted(
    norms: list[float] | None, stack: Stack, trained: Container[str]
) -> tuple[float | None, ...]:
    """Scales predicted gradient norms, in the order of the sub-layers, to the measurement's mean
    logarithm; None for each where that is not known.

    trained: names of the parameters with a gradient. A sub-layer is compared where all of its
    matrices have one, for theory's norm is over all of them; and its gradient is not that of one
    use where several share their weights.
    """
    sublayers = [sublayer.measured for sublayer in stack.sublayers]
    count = len(sublayers)
    shared = len({one.parameters for one in sublayers}) < count
    if norms is None or shared:
        return (None,) * count

    def is_whole(sublayer: SublayerMeasurements) -> bool:
        return all(name in trained for name in sublayer.matrices)

    whole = [is_whole(one) for one in sublayers]
    measured = [
        one.gradient_norm if all_of_it else None
        for one, all_of_it in zip(sublayers, whole, strict=True)
    ]
    logarithms = [math.log(m / p) for m, p in zip(measured, norms, strict=True) if m and p]
    if not logarithms:
        return (None,) * count
    factor = math.exp(math.fsum(logarithms) / len(logarithms))
    return tuple(
        p * factor if comparable else None for p, comparable in zip(norms, whole, strict=True)
    )
