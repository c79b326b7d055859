"""Predicted curves over depth: the stream and the gradient of every matrix, for any placement,
before any training.

Predictions of many placements run on as many cores as there are.

The equations are T1 to T21 of docs/theory.md.
"""

import gc
import math
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Literal

import numpy as np

from ..placement import Placement, named
from ..placement.query_key import QueryKeyNorm, with_query_key_norm
from ..placement.schemes import SCHEMES
from .attending.positions import angles_of
from .backward import StackGradients, backward
from .change import ONE_STACK, Update as Update, UpdateChange, change_of
from .doubts import Doubt, doubts_of, doubts_of_change
from .loops import stack_of
from .loss import loss_gradient, own_share
from .mixing import SOFTMAX_STEPS, SOFTMAX_WIDEST, Array, Products, softmax_squares
from .moments import Unpredictable
from .operations import CENTRING, Norm
from .places import RANDOM
from .settings import InitialState, ModelSetting as ModelSetting, RepeatedTokens
from .stream import Applied, MomentStack, StreamSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttentionWeights:
    """Curves of one kind of attention by block, (L,), each a mean over queries."""

    deviation: Array
    """Root mean square over queries of the standard deviation of a query's logits over the keys
    that it sees.
    """
    square: Array
    """E Σ_j w_j²: one over the number of keys where all weigh alike, 1 where one has all."""
    entropy: Array
    """E -Σ_j w_j ln w_j, in nats."""


def weights_of(stack: MomentStack) -> dict[str, _AttentionWeights]:
    """By kind of sub-layer. Logits are those of independent Gaussians, of which theory knows the
    variance.
    """
    found = {}
    for kind in ("attention", "cross_attention"):
        attends = [applied for applied in stack.applied if applied.site.kind == kind]
        if attends:
            found[kind] = _weight_curves(stack, kind, attends)
    return found


def _weight_curves(stack: MomentStack, kind: str, attends: list[Applied]) -> _AttentionWeights:
    places, setting = stack.atoms.places, stack.setting
    queries = np.ones(1) if places is None else places.tokens
    if kind == "cross_attention" or places is None:
        keys = np.full(
            len(queries), setting.memory_tokens if kind == "cross_attention" else setting.tokens
        )
    else:
        keys = places.keys.astype(int)
    variances = [applied.map.variance for applied in attends]
    variance = np.array(variances).reshape(len(attends), -1)
    # A query's own length scatters over heads as the root of a χ² does, unless it is normed: three
    # nodes, exact to the fifth power of a normal variable.
    width = attends[0].site.stack.width_of_head
    steady = np.array([applied.steady for applied in attends])
    reach = np.where(steady, 0.0, math.sqrt(6 / width))[:, None]
    share = queries / queries.sum()
    both = np.array(
        [_softmax(keys, variance * np.maximum(0, 1 + side * reach)) for side in (-1, 0, 1)]
    )
    square, entropy = np.tensordot([1 / 6, 4 / 6, 1 / 6], both, 1) @ share
    return _AttentionWeights(deviation=np.sqrt(variance @ share), square=square, entropy=entropy)


def _softmax(keys: Array, variance: Array) -> Array:
    """(2, L, K) Σ w² and the entropy, (K,) keys seen and (L, K) variances; linear in the variance
    between steps.
    """
    place = np.sqrt(np.minimum(variance, SOFTMAX_WIDEST**2)) * SOFTMAX_STEPS
    low = np.minimum(place.astype(int), int(SOFTMAX_WIDEST * SOFTMAX_STEPS) - 1)
    counts, at = np.unique(keys, return_inverse=True)
    table = _table(tuple(counts.tolist()), int(low.max()) + 1)
    below, above = (table[:, step, np.broadcast_to(at, step.shape)] for step in (low, low + 1))
    found: Array = below + (above - below) * (place**2 - low**2) / (2 * low + 1)
    return found


@lru_cache(maxsize=16)
def _table(counts: tuple[int, ...], steps: int) -> Array:
    """(2, steps + 1, counts) of both, by standard deviations.

    By parts E Σ w z is σ² (1 - E Σ w²), which is also σ times the derivative of E ln Σ e^z: the
    entropy follows.
    """
    sigma = np.arange(steps + 1)[:, None] / SOFTMAX_STEPS
    square = np.array([softmax_squares(step, counts) for step in range(steps + 1)])
    slope = sigma * (1 - square)
    growth = np.cumsum((slope[1:] + slope[:-1]) / 2, 0) / SOFTMAX_STEPS
    partition = np.log(counts) + np.concatenate([np.zeros((1, len(counts))), growth])
    return np.array([square, partition - sigma * slope])


@dataclass(frozen=True, slots=True, kw_only=True)
class _StreamPrediction:
    """Curves of one residual stream, (L+1,) by completed blocks, from the embedding on."""

    q: Array
    """E‖x_l‖² / d."""
    p: Array
    """E⟨x_l, x'_l⟩ / d of two tokens of a sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPrediction:
    """Curves of one stack: (L+1,) by completed blocks for the stream, a block as often as it is
    run, (L,) by block for gradients."""

    q: Array
    """E‖x_l‖² / d of the stream that sub-layers read, the first where there are several; from the
    embedding on.
    """
    p: Array
    """E⟨x_l, x'_l⟩ / d of two tokens of a sequence."""
    gradient_norm: dict[str, Array]
    """Root mean square over draws of the Frobenius norm of each matrix's gradient: query, key,
    value, output, ffn_in, ffn_out (and ffn_gate), and cross_query and so on of cross-attention.
    Where the norm differs much from draw to draw, as in the lower blocks of a deep Post-LN stack,
    the mean of the norms is smaller."""
    shares: dict[str, Array] = field(default_factory=dict)
    """What each sub-layer is of the last stream's E‖x‖², by kind, and the embedding's own; they add
    up to 1.
    """
    streams: dict[str, _StreamPrediction] = field(default_factory=dict)
    """Every residual stream by the name that the formula gives it; of a history of values, the
    newest one.
    """
    attention: dict[str, _AttentionWeights] = field(default_factory=dict)
    """Its weights by kind of sub-layer: attention, cross_attention."""
    change: UpdateChange | None = None
    """What the first update moves, where it was asked for."""
    doubts: tuple[Doubt, ...] = ()
    """Where it is known to be off, or was compared with nothing."""


@contextmanager
def _numbers_in_words() -> Iterator[None]:
    collects = gc.isenabled()
    # What it looks through while a stack grows is all in use: that took a sixth of the time.
    gc.disable()
    try:
        yield
    except ArithmeticError as error:
        said = (
            f"infinite numbers or a stream of 0 in the formula ({error}): this placement cannot be "
            "predicted"
        )
        raise Unpredictable(said) from error
    finally:
        (gc.enable if collects else gc.disable)()


@_numbers_in_words()
def predict(
    placement: str, model: ModelSetting, *, scatter: bool = True, update: Update | None = None
) -> dict[str, StackPrediction]:
    """Predictions by stack: "encoder", "decoder" or both.

    scatter: False for the limit of infinite width, where norms divide by the same in every draw.
    update: the first one of a training, to be followed through the stack. Raises ValueError for an
    unknown placement, or one that is not defined for such a model; Unpredictable, which is one too,
    for a formula that theory does not follow.
    """
    if model.loops > 1 and (update is not None or model.stack == "encoder-decoder"):
        raise Unpredictable(
            "loops are followed through one stack, encoder or decoder, and through no update of it"
        )
    made = _placement(placement, model)
    if model.stack != "encoder-decoder":
        kind: Literal["encoder", "decoder"] = "encoder" if model.stack == "encoder" else "decoder"
        stack = _forward(made(model.shape(kind)), model, model.source, scatter)
        gradients = backward(stack, *loss_gradient(stack, model))
        found = _prediction(stack, gradients, own_share(stack, model))
        if update is not None:
            change = change_of(stack.placement, model, stack.setting, update)
            doubts = (*found.doubts, *doubts_of_change(stack, update.optimizer))
            found = replace(found, change=change, doubts=doubts)
        return {kind: found}
    if update is not None:
        raise Unpredictable(ONE_STACK)
    source_tokens = model.tokens if model.source_tokens is None else model.source_tokens
    encoder = _forward(
        made(model.shape("encoder")),
        replace(model, tokens=source_tokens),
        model.source,
        scatter,
    )
    decoder = _forward(made(model.shape("decoder")), model, model.target, scatter, encoder)
    gradients = backward(decoder, *loss_gradient(decoder, model))
    return {
        "encoder": _prediction(encoder, backward(encoder, gradients.memory)),
        "decoder": _prediction(decoder, gradients, own_share(decoder, model)),
    }


def _placement(name: str, model: ModelSetting) -> type[Placement]:
    """The placement of that name, with the model's norms on queries and keys."""
    plain = named(name)
    if model.query_key_norm == "none":
        return plain
    return with_query_key_norm(plain, QueryKeyNorm(whole=model.query_key_norm == "whole"))


def _forward(
    placement: Placement,
    model: ModelSetting,
    text: RepeatedTokens,
    scatter: bool,
    encoder: MomentStack | None = None,
) -> MomentStack:
    initial = InitialState(model.setting, placement)
    rotary = model.position_encoding == "rotary"
    setting = StreamSetting(
        tokens=model.tokens,
        weight_std=initial.weight_std,
        sequences=model.sequences,
        dropout=model.dropout,
        activation=model.activation,
        scatter=scatter,
        norm=_norm_of(model, placement),
        angles=angles_of(placement.stack.width_of_head) if rotary else (),
        memory=encoder.output.mean if encoder is not None else None,
        memory_tokens=encoder.setting.tokens if encoder is not None else 0,
        memory_differing=encoder.output.differing if encoder is not None else RANDOM,
    )
    stack = stack_of(placement, setting)
    stack.atoms.draws = SCHEMES[initial.scheme].draws["query"].of != "zeros"
    sinusoidal = model.position_encoding == "sinusoidal"
    stack.forward(initial.parts(stack.tokens, text, sinusoidal=sinusoidal))
    return stack


def _norm_of(model: ModelSetting, placement: Placement) -> Norm:
    """A placement whose idea is a norm of its own keeps it where a model has LayerNorm: it divides
    by the RMS.
    """
    own = model.norm in CENTRING and placement.default_norm not in CENTRING
    return "rms-norm" if own else model.norm


def _prediction(
    stack: MomentStack, gradients: StackGradients, own_share: float = 0.0
) -> StackPrediction:
    shown = _curves(stack.depths)
    if np.isnan(shown.q).any():
        raise OverflowError("its mean square has no value")
    matrices = tuple(name for name, norms in gradients.weights.items() if any(norms))
    return StackPrediction(
        q=shown.q,
        p=shown.p,
        gradient_norm={name: np.array(norms) for name, norms in gradients.weights.items()},
        shares=stack.shares(),
        attention=weights_of(stack),
        streams={name: _curves(depths) for name, depths in stack.streams.items()},
        doubts=doubts_of(stack, matrices, own_share),
    )


def _curves(depths: Sequence[Products]) -> _StreamPrediction:
    return _StreamPrediction(
        q=np.array([products.one for products in depths]),
        p=np.array([products.two for products in depths]),
    )


_WORTH_PROCESSES = 4000
"""Blocks in all, a tenth of a second of work: what it takes to start processes is a third of
that.
"""
_UPDATE_COSTS = 100
"""A block whose update is followed takes so many times as long."""
_Stacks = dict[str, StackPrediction]


def predict_many(
    placements: Sequence[str], model: ModelSetting, update: Update | None = None
) -> dict[str, _Stacks]:
    """What `predict` says of each. Raises as it does."""
    found, refused = predict_or_refuse(placements, model, update)
    for reason in refused.values():
        raise reason
    return found


def predict_or_refuse(
    placements: Sequence[str], model: ModelSetting, update: Update | None = None
) -> tuple[dict[str, _Stacks], dict[str, Unpredictable]]:
    """What `predict` says of each that theory follows, and why of those that it does not."""
    both = dict(zip(placements, _each(placements, model, update), strict=True))
    refused = {name: one for name, one in both.items() if isinstance(one, Unpredictable)}
    return {name: one for name, one in both.items() if not isinstance(one, Unpredictable)}, refused


def _each(
    placements: Sequence[str], model: ModelSetting, update: Update | None
) -> "list[_Stacks | Unpredictable]":
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    processes = min(cores, len(placements))
    if processes == 1 or len(placements) * model.blocks * model.loops < _WORTH_PROCESSES / (
        1 if update is None else _UPDATE_COSTS
    ):
        return [_one(name, model, update) for name in placements]
    # Forked, so that they know the placements that the user has registered, and import nothing
    # again.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return pool.map(partial(_one, model=model, update=update), placements, chunksize=1)


def _one(placement: str, model: ModelSetting, update: Update | None) -> "_Stacks | Unpredictable":
    try:
        return predict(placement, model, update=update)
    except Unpredictable as reason:
        return reason
