"""Predicted curves over depth: the stream and the gradient of every matrix, for any placement,
before any training.

Predictions of many placements run on as many cores as there are.

The equations are T1 to T24 of docs/theory.md.
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
    """Returns curves of attention's weights by kind of sub-layer. Logits are taken for independent
    Gaussians, of which theory knows the variance. Equation T23.
    """
    found = {}
    for kind in ("attention", "cross_attention"):
        attends = [applied for applied in stack.applied if applied.site.kind == kind]
        if attends:
            found[kind] = _weight_curves(stack, kind, attends)
    return found


_NODES_OVER_HEADS = (1 / 6, 4 / 6, 1 / 6)
"""Weights of nodes at −√3, 0 and √3 standard deviations: exact to the fifth power of a normal
variable. Equation T23.
"""


def _weight_curves(stack: MomentStack, kind: str, attends: list[Applied]) -> _AttentionWeights:
    """Returns the curves of one kind of attention over the blocks that have it.

    attends: its sub-layers as they were applied, block by block.

    Equation T23.
    """
    places = stack.atoms.places
    queries = np.ones(1) if places is None else places.tokens
    share = queries / queries.sum()
    keys = _keys_seen(stack, kind, len(queries))
    variances = [applied.map.variance for applied in attends]
    variance = np.array(variances).reshape(len(attends), -1)
    # A query's squared length scatters over heads as a χ² does, by √(2 / head), unless it is
    # normed; a node stands √3 of that away.
    head = attends[0].site.stack.width_of_head
    steady = np.array([applied.steady for applied in attends])
    reach = np.where(steady, 0.0, math.sqrt(6 / head))[:, None]
    at_nodes = []
    for side in (-1, 0, 1):
        variance_of_head = variance * np.maximum(0, 1 + side * reach)
        at_nodes.append(_softmax(keys, variance_of_head))
    square, entropy = np.tensordot(_NODES_OVER_HEADS, np.array(at_nodes), 1) @ share
    return _AttentionWeights(deviation=np.sqrt(variance @ share), square=square, entropy=entropy)


def _keys_seen(stack: MomentStack, kind: str, places: int) -> Array:
    """Returns (K,) how many keys a query of each place sees. Equation T17."""
    if kind == "cross_attention":
        return np.full(places, stack.setting.memory_tokens)
    if stack.atoms.places is None:
        return np.full(places, stack.setting.tokens)
    return stack.atoms.places.keys.astype(int)


def _softmax(keys: Array, variance: Array) -> Array:
    """Returns (2, L, K) Σ w² and the entropy, of (K,) keys seen and (L, K) variances; linear in the
    variance between steps. Equations T8 and T23.
    """
    step = np.sqrt(np.minimum(variance, SOFTMAX_WIDEST**2)) * SOFTMAX_STEPS
    low = np.minimum(step.astype(int), int(SOFTMAX_WIDEST * SOFTMAX_STEPS) - 1)
    counts, at = np.unique(keys, return_inverse=True)
    table = _table(tuple(counts.tolist()), int(low.max()) + 1)
    column = np.broadcast_to(at, low.shape)
    below = table[:, low, column]
    above = table[:, low + 1, column]
    found: Array = below + (above - below) * (step**2 - low**2) / (2 * low + 1)
    return found


@lru_cache(maxsize=16)
def _table(counts: tuple[int, ...], steps: int) -> Array:
    """Returns (2, steps + 1, counts) of both, by standard deviations σ of logits.

    The entropy is E ln Σ e^z − E Σ w z. By parts E Σ w z is σ² (1 − E Σ w²), which is also σ times
    the derivative of E ln Σ e^z, so that both follow from E Σ w². Without logits of 4 keys it is
    ln 4.

    Equation T23.
    """
    sigma = np.arange(steps + 1)[:, None] / SOFTMAX_STEPS
    square = np.array([softmax_squares(step, counts) for step in range(steps + 1)])
    slope = sigma * (1 - square)
    # The integral of the slope, by the trapezoidal rule.
    growth = np.cumsum((slope[1:] + slope[:-1]) / 2, 0) / SOFTMAX_STEPS
    from_nothing = np.concatenate([np.zeros((1, len(counts))), growth])
    log_of_sum = np.log(counts) + from_nothing
    return np.array([square, log_of_sum - sigma * slope])


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
    """Shares of each sub-layer in the last stream's E‖x‖², by kind, and the embedding's own; they
    add up to 1.
    """
    streams: dict[str, _StreamPrediction] = field(default_factory=dict)
    """Every residual stream by the name that the formula gives it; of a history of values, the
    newest one.
    """
    attention: dict[str, _AttentionWeights] = field(default_factory=dict)
    """Its weights by kind of sub-layer: attention, cross_attention."""
    change: UpdateChange | None = None
    """The change by the first update, where it was asked for."""
    doubts: tuple[Doubt, ...] = ()
    """Doubts: where it is known to be off, or was compared with nothing."""


@contextmanager
def _numbers_in_words() -> Iterator[None]:
    """Raises Unpredictable where numbers overflow within."""
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
    """Returns predictions by stack: "encoder", "decoder" or both.

    scatter: False for the limit of infinite width, where norms divide by the same in every draw.
    update: the first one of a training, to be followed through the stack. Raises ValueError for an
    unknown placement, or one that is not defined for such a model; Unpredictable, which is one too,
    for a formula that theory does not follow.

    Equations T1 to T24.
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
    # The encoder runs first: its output is what cross-attention reads.
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
    """Returns the placement of that name, with the model's norms on queries and keys."""
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
    """Runs one stack of a model forward; an encoder's output is the decoder's memory. Equations T1
    and T22. Equations T1 and T22.
    """
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
    # With W_Q = W_K = 0 nothing asks how tokens differ, which is half of the work.
    stack.atoms.draws = SCHEMES[initial.scheme].draws["query"].of != "zeros"
    sinusoidal = model.position_encoding == "sinusoidal"
    stack.forward(initial.parts(stack.tokens, text, sinusoidal=sinusoidal))
    return stack


def _norm_of(model: ModelSetting, placement: Placement) -> Norm:
    """Returns the norm that a stack has: a placement whose idea is a norm of its own keeps it where
    a model has LayerNorm, and divides by the RMS. Equation T2.
    """
    own = model.norm in CENTRING and placement.default_norm not in CENTRING
    return "rms-norm" if own else model.norm


def _prediction(
    stack: MomentStack, gradients: StackGradients, own_share: float = 0.0
) -> StackPrediction:
    """Gathers a stack's curves, forward and back. Raises OverflowError for a stream that has no
    size. Equation T1.
    """
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
    """Returns q and p by depth. Equation T1."""
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
    """Returns what `predict` says of each placement. Raises as it does."""
    found, refused = predict_or_refuse(placements, model, update)
    for reason in refused.values():
        raise reason
    return found


def predict_or_refuse(
    placements: Sequence[str], model: ModelSetting, update: Update | None = None
) -> tuple[dict[str, _Stacks], dict[str, Unpredictable]]:
    """Returns what `predict` says of each placement that theory follows, and the reason for each
    that it does not.
    """
    both = dict(zip(placements, _each(placements, model, update), strict=True))
    refused = {name: one for name, one in both.items() if isinstance(one, Unpredictable)}
    return {name: one for name, one in both.items() if not isinstance(one, Unpredictable)}, refused


def _each(
    placements: Sequence[str], model: ModelSetting, update: Update | None
) -> "list[_Stacks | Unpredictable]":
    """Predicts placements one after the other, or on all cores where that is worth starting
    processes.
    """
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
    """Predicts one placement, or returns the reason why not."""
    try:
        return predict(placement, model, update=update)
    except Unpredictable as reason:
        return reason
