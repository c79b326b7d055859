"""The mean-field prediction for a foreign stack: its formula, its weights' mean squares, its embedding's moments."""

import math
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ..placement import Placement, Site, StackShape, SublayerKind
from ..theory.backward import StackGradients, backward
from ..theory.mixing import Products
from ..theory.moments import Moments
from ..theory.operations import MomentNorms
from ..theory.stream import MomentStack, StreamSetting
from .recipe import BranchWeights, InnerNorm, RecipeStep, StackRecipe
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
    runs = _runs([stack.recipe for stack in stacks])
    gradients = _gradients(runs, measured)
    return tuple(
        stack
        if run is None or not stack.placement
        else replace(stack, predicted=_prediction(run, stack, norms, measured.gradient_norms))
        for stack, run, norms in zip(stacks, runs, gradients, strict=True)
    )


@dataclass(slots=True)
class _Run:
    """A recipe read with moments."""

    recipe: StackRecipe
    stack: MomentStack
    values: dict[int, Moments] = field(default_factory=dict)

    @property
    def end(self) -> Moments:
        return self.values[self.recipe.end]


def _runs(recipes: Sequence[StackRecipe | None]) -> list[_Run | None]:
    """Read in order: an encoder comes before what reads it."""
    found: list[_Run | None] = []
    for recipe in recipes:
        memory = found[recipe.memory] if recipe and recipe.memory is not None and recipe.memory < len(found) else None
        needs_memory = recipe is not None and any(
            step.branch is not None and step.branch.kind == "cross_attention" for step in recipe.steps.values()
        )
        found.append(None if recipe is None or (needs_memory and memory is None) else _read(recipe, memory))
    return found


def _read(recipe: StackRecipe, memory: _Run | None) -> _Run:
    weights: dict[int, BranchWeights] = {}

    def std(name: str, site: Site) -> float:
        of = weights[site.block]
        fan_in = of.inner_width if name == "ffn_out" else recipe.width
        return math.sqrt(of.gains[name] / fan_in)

    stack = MomentStack(
        Placement(StackShape(kind="encoder", width=recipe.width, encoder_blocks=1)),
        StreamSetting(
            tokens=recipe.tokens,
            weight_std=std,
            memory=memory.end.products if memory else None,
            memory_tokens=memory.recipe.tokens if memory else 0,
        ),
    )
    for products, centred in recipe.parts:
        stack.atoms.add(*products, centred=centred)
    run = _Run(recipe, stack)
    run.values[recipe.source] = Moments.of(stack.atoms, np.ones(len(recipe.parts)))
    for number in sorted(recipe.steps):
        step = recipe.steps[number]
        sources = [run.values[source] for source in step.sources]
        if step.branch is not None:
            weights[len(stack.applied) + 1] = step.branch
            run.values[number] = _applied(run, step.branch, sources[0])
        else:
            run.values[number] = _combined(step, sources)
    stack.output = run.end
    return run


def _combined(step: RecipeStep, sources: Sequence[Moments]) -> Moments:
    if step.norm is not None:
        return _norm(step.norm)(sources[0])
    total = sources[0] * step.factors[0]
    for source, factor in zip(sources[1:], step.factors[1:], strict=True):
        total = total + source * factor
    return total


def _norm(norm: InnerNorm) -> Callable[[Moments], Moments]:
    def of(x: Moments, norms: MomentNorms) -> Moments:
        return norms(x) * norm.gain

    return partial(of, norms=MomentNorms(norm.epsilon, centres=norm.centres))


def _applied(run: _Run, weights: BranchWeights, x: Moments) -> Moments:
    """F as the next sub-layer of the stack, with a shape and an activation of its own."""
    causal = run.recipe.causal and weights.kind == "attention"
    shape = StackShape(
        kind="decoder" if causal else "encoder",
        width=run.recipe.width,
        ffn_width=weights.inner_width,
        encoder_blocks=1,
        decoder_blocks=1,
    )
    run.stack.setting = replace(run.stack.setting, activation=weights.activation)
    site = Site(kind=weights.kind, block=len(run.stack.applied) + 1, stack=shape)
    return run.stack.apply(site, x, {place: _norm(norm) for place, norm in weights.inside.items()})


def _gradients(runs: Sequence[_Run | None], measured: ModelMeasurements) -> list[list[float] | None]:
    """By stack and sub-layer, up to a factor: from the loss to the last stack, and to those whose ends it reads."""
    found: list[list[float] | None] = [None] * len(runs)
    *others, last = runs
    if last is None or not last.recipe.asked_everywhere or any(n != last.recipe.memory for n in range(len(others))):
        return found
    at_output = _loss_gradient(last, measured)
    if at_output is None:
        return found
    gradients = backward(last.stack, at_output)
    found[-1] = _by_sublayer(last, gradients)
    for n, run in enumerate(others):
        if run is not None:
            found[n] = _by_sublayer(run, backward(run.stack, gradients.memory))
    return found


def _loss_gradient(run: _Run, measured: ModelMeasurements) -> Products | None:
    """Of a cross-entropy at random targets: softmax less target, for one token and for two, as in `theory.loss`."""
    if measured.classes is not None and measured.logit_deviation is not None:
        classes, variance = measured.classes, measured.logit_deviation**2
    elif measured.loss_is_stand_in:
        # Hidden states in the place of logits.
        classes, variance = run.recipe.width, run.end.q
    else:
        return None
    together = variance * run.end.p / run.end.q if run.end.q else 0.0
    one = 1 - 2 / classes + min(1.0, math.exp(min(variance, 700.0)) / classes)
    return Products(one, min(1.0, (math.exp(min(together, 700.0)) - 1) / classes))


def _by_sublayer(run: _Run, gradients: StackGradients) -> list[float]:
    """Norm of all matrices' gradients together, in the order of application."""
    taken: Counter[str] = Counter()
    found = []
    for applied in run.stack.applied:
        kind = applied.site.kind
        place = taken[kind]
        taken[kind] += 1
        norms = [gradients.weights[name][place] for name in _MATRICES[kind] if name in gradients.weights]
        found.append(math.hypot(*norms))
    return found


def _prediction(run: _Run, stack: Stack, norms: list[float] | None, trained: Container[str]) -> StackTheory:
    before = [run.values[number] for number in run.recipe.streams]
    return StackTheory(
        stream_square=tuple(x.q for x in before),
        correlation=tuple(x.p / x.q if x.q else 0.0 for x in before),
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
