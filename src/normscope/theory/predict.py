"""Predicted curves over depth: the stream and the gradient of every matrix, for any placement, before any training."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..placement import Placement, named
from .backward import StackGradients, backward
from .change.prediction import ONE_STACK, Change, change_of
from .change.prediction import Update as Update
from .loss import loss_gradient
from .model_setting import ModelSetting as ModelSetting
from .operations import CENTRING, Norm
from .products import Products
from .settings import Text, of_setting
from .stream import MomentStack, Setting
from .unpredictable import Unpredictable

Curve = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPrediction:
    """Curves of one residual stream, (L+1,) by completed blocks, from the embedding on."""

    q: Curve
    """E‖x_l‖² / d."""
    p: Curve
    """E⟨x_l, x'_l⟩ / d of two tokens of a sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPrediction:
    """Curves of one stack, by depth: (L+1,) by completed blocks for the stream, (L,) by block for gradients."""

    q: Curve
    """E‖x_l‖² / d of the stream that sub-layers read, the first where there are several; from the embedding on."""
    p: Curve
    """E⟨x_l, x'_l⟩ / d of two tokens of a sequence."""
    gradient_norm: dict[str, Curve]
    """Root mean square over draws of the Frobenius norm of each matrix's gradient: query, key, value, output, ffn_in,
    ffn_out (and ffn_gate), and cross_query and so on of cross-attention. Where the norm differs much from draw to draw,
    as in the lower blocks of a deep Post-LN stack, the mean of the norms is smaller."""
    shares: dict[str, Curve] = field(default_factory=dict)
    """What each sub-layer is of the last stream's E‖x‖², by kind, and the embedding's own; they add up to 1."""
    streams: dict[str, StreamPrediction] = field(default_factory=dict)
    """Every residual stream by the name that the formula gives it; of a history of values, the newest one."""
    change: Change | None = None
    """What the first update moves, where it was asked for."""


def predict(
    placement: str, model: ModelSetting, *, scatter: bool = True, update: Update | None = None
) -> dict[str, StackPrediction]:
    """Predictions by stack: "encoder", "decoder" or both.

    scatter: False for the limit of infinite width, where norms divide by the same in every draw.
    update: the first one of a training, to be followed through the stack.
    Raises ValueError for an unknown placement, or one that is not defined for such a model; Unpredictable, which is one
    too, for a formula that theory does not follow.
    """
    if model.stack != "encoder-decoder":
        kind: Literal["encoder", "decoder"] = "encoder" if model.stack == "encoder" else "decoder"
        stack = _forward(named(placement)(model.shape(kind)), model, model.source, scatter)
        found = _prediction(stack, backward(stack, loss_gradient(stack, model)))
        if update is not None:
            found = replace(found, change=change_of(stack.placement, model, stack.setting, update))
        return {kind: found}
    if update is not None:
        raise Unpredictable(ONE_STACK)
    source_tokens = model.tokens if model.source_tokens is None else model.source_tokens
    encoder = _forward(
        named(placement)(model.shape("encoder")), replace(model, tokens=source_tokens), model.source, scatter
    )
    decoder = _forward(named(placement)(model.shape("decoder")), model, model.target, scatter, encoder)
    gradients = backward(decoder, loss_gradient(decoder, model))
    return {
        "encoder": _prediction(encoder, backward(encoder, gradients.memory)),
        "decoder": _prediction(decoder, gradients),
    }


def _forward(
    placement: Placement, model: ModelSetting, text: Text, scatter: bool, encoder: MomentStack | None = None
) -> MomentStack:
    initial = of_setting(model.setting, placement)
    setting = Setting(
        tokens=model.tokens,
        weight_std=initial.weight_std(placement),
        sequences=model.sequences,
        dropout=model.dropout,
        activation=model.activation,
        scatter=scatter,
        norm=_norm_of(model, placement),
        memory=encoder.output.products if encoder is not None else None,
        memory_tokens=encoder.setting.tokens if encoder is not None else 0,
    )
    stack = MomentStack(placement, setting)
    stack.forward(initial.parts(placement, model.tokens, text))
    return stack


def _norm_of(model: ModelSetting, placement: Placement) -> Norm:
    """A placement whose idea is a norm of its own keeps it where a model has LayerNorm: it divides by the RMS."""
    own = model.norm in CENTRING and placement.default_norm not in CENTRING
    return "rms-norm" if own else model.norm


def _prediction(stack: MomentStack, gradients: StackGradients) -> StackPrediction:
    shown = _curves(stack.depths)
    return StackPrediction(
        q=shown.q,
        p=shown.p,
        gradient_norm={name: np.array(norms) for name, norms in gradients.weights.items()},
        shares=stack.shares(),
        streams={name: _curves(depths) for name, depths in stack.streams.items()},
    )


def _curves(depths: Sequence[Products]) -> StreamPrediction:
    return StreamPrediction(
        q=np.array([products.one for products in depths]), p=np.array([products.two for products in depths])
    )
