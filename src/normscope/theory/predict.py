"""Predicted curves over depth: the stream and the gradient of every matrix, for any placement, before any training."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..placement import Placement, StackShape, named
from .backward import StackGradients, backward
from .kernels import ACTIVATIONS, Activation
from .moments import Atoms, single
from .operations import MomentNorms
from .products import Products
from .settings import SETTINGS, Text
from .stream import MomentEnd, MomentStack, Setting

StackKind = Literal["encoder", "decoder", "encoder-decoder"]
_TAKE_THE_MEAN_OFF = frozenset({"layer-norm"})
"""Of the norms a model can have; all others divide by the RMS."""


_ALL_DIFFER = Text()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSetting:
    """The model a prediction is for. The loss is the mean cross-entropy per target token, in nats, at random targets,
    over all sequences. The output projection has rows of squared length 1 where it is not tied."""

    stack: StackKind = "encoder"
    blocks: int = 6
    """Of each stack."""
    width: int = 512
    ffn_width: int = 512
    heads: int = 1
    tokens: int = 16
    """Of a sequence: of the target in an encoder-decoder."""
    source_tokens: int | None = None
    """Of a source sequence, where it is not as long as the target."""
    sequences: int = 1
    """Of the batch that the loss is a mean over."""
    vocabulary: int = 10_000
    """Rows of the output projection."""
    setting: str = "theory"
    """Initial weights and embedding: theory or paper."""
    activation: Activation = "relu"
    norm: Literal["layer-norm", "rms-norm"] = "layer-norm"
    tied: bool = True
    """Whether the output projection is the input's embedding, in settings whose embedding has rows."""
    dropout: float = 0.0
    """On the embedding and on every F(x)."""
    label_smoothing: float = 0.0
    source: Text = _ALL_DIFFER
    """What the source's tokens repeat, or those of a stack on its own."""
    target: Text = _ALL_DIFFER
    """The same of the target: of the decoder's input in an encoder-decoder, and of what the loss asks for."""

    def __post_init__(self) -> None:
        for name in ("blocks", "width", "ffn_width", "heads", "tokens", "sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.vocabulary < 2:
            raise ValueError(f"vocabulary must be at least 2, got {self.vocabulary}")
        if self.width % self.heads:
            raise ValueError(f"width={self.width} must be a multiple of heads={self.heads}")
        if self.width < 4 or self.width % 2:
            raise ValueError(f"width must be even and at least 4, for its sinusoids, got {self.width}")
        if self.source_tokens is not None and self.source_tokens < 1:
            raise ValueError(f"source_tokens must be at least 1, got {self.source_tokens}")
        for name in ("dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        allowed = {
            "setting": tuple(SETTINGS),
            "stack": ("encoder", "decoder", "encoder-decoder"),
            "activation": ACTIVATIONS,
            "norm": ("layer-norm", "rms-norm"),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name} must be one of {', '.join(values)}, got {getattr(self, name)!r}")

    def shape(self, kind: Literal["encoder", "decoder"]) -> StackShape:
        """Of one of its stacks."""
        return StackShape(
            kind=kind,
            width=self.width,
            ffn_width=self.ffn_width,
            heads=self.heads,
            encoder_blocks=self.blocks if self.stack != "decoder" else 0,
            decoder_blocks=self.blocks if self.stack != "encoder" else 0,
        )


Curve = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPrediction:
    """Curves of one stack, by depth: (L+1,) by completed blocks for the stream, (L,) by block for gradients."""

    q: Curve
    """E‖x_l‖² / d, from the embedding on."""
    p: Curve
    """E⟨x_l, x'_l⟩ / d of two tokens of a sequence."""
    gradient_norm: dict[str, Curve]
    """Mean Frobenius norm of each matrix's gradient: query, key, value, output, ffn_in, ffn_out (and ffn_gate), and
    cross_query and so on of cross-attention."""
    shares: dict[str, Curve] = field(default_factory=dict)
    """What each sub-layer is of the last stream's E‖x‖², by kind, and the embedding's own; they add up to 1."""


def predict(placement: str, model: ModelSetting, *, scatter: bool = True) -> dict[str, StackPrediction]:
    """Predictions by stack: "encoder", "decoder" or both.

    scatter: False for the limit of infinite width, where norms divide by the same in every draw.
    Raises ValueError for an unknown placement, or one that is not defined for such a model.
    """
    if model.stack != "encoder-decoder":
        kind: Literal["encoder", "decoder"] = "encoder" if model.stack == "encoder" else "decoder"
        stack = _forward(named(placement)(model.shape(kind)), model, model.source, scatter)
        return {kind: _prediction(stack, backward(stack, loss_gradient(stack, model)))}
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


def loss_gradient(stack: MomentStack, model: ModelSetting) -> Products:
    """At an output token: E‖Σ_v (softmax_v - target_v) E_v‖² / N², N all tokens, and the products of two tokens.

    Logits are Gaussian with the variance q and the covariance p of the output, so that over V entries E Σ softmax² is
    e^q / V and E Σ softmax softmax' is e^p / V, as long as they are small. Tokens that are asked for the same entry
    have its row in common. With a tied projection the output may still hold its own input row E_o, which then has a
    logit apart and a share of the softmax, and so a part of the gradient. Of that part a norm at the output takes off
    what lies along the output itself, y: E_o (1 - α²) is left, and α y, which tokens have in common. (No norm further
    down takes anything off: F is homogeneous, so that the gradient stays orthogonal to the stream.) A text asks for
    the rows that its next places hold, which is the opposite sign.
    """
    output = stack.output
    vocabulary, tied = model.vocabulary, SETTINGS[model.setting].tied and model.tied
    scale = _output_scale(stack, vocabulary)
    # The table's own rows: dropout is on what is looked up.
    own_row = stack.atoms.products(0).one * (1 - model.dropout) if tied else 1.0
    row = scale**2 * own_row
    own = _own_row(stack, model, own_row, scale) if tied else _OwnRow(0.0, 0.0, 0.0)
    removed = own.along if output.normed else 0.0
    others, asked = 1 - 2 * own.share + own.square, 1 - model.label_smoothing
    one = asked**2 * (1 - 2 / vocabulary) + own.square * (1 - removed)
    one += others * _softmaxes(row * output.q, vocabulary, 0)

    def common(p: float, same: float, read: float) -> float:
        found = (1 - own.share) ** 2 * _softmaxes(row * p, vocabulary, 1) + own.share**2 * removed * p / output.q
        return found + (asked**2 + own.share**2 * (1 - removed)) * same - 2 * asked * own.share * read

    two = common(output.p, model.target.same_within, model.target.asked_within)
    apart = common(output.apart, model.target.same_apart, model.target.asked_apart)
    return Products(one, two, apart).scaled(row / (model.tokens * model.sequences) ** 2)


def _softmaxes(covariance: float, vocabulary: int, less: int) -> float:
    """E Σ_v softmax_v softmax'_v, `less` what it is without a covariance where targets take that away."""
    return min(1.0, (math.exp(min(covariance, 700.0)) - less) / vocabulary)


def _output_scale(stack: MomentStack, vocabulary: int) -> float:
    """What the placement multiplies the rows of the output projection with."""
    atoms = Atoms(stack.placement.stack.width)
    rows = single(atoms, atoms.add(1 / atoms.width, 0.0))
    end = MomentEnd(MomentNorms(stack.placement.norm_epsilon, centres=stack.setting.centres))
    return float(stack.placement.output_rows(rows, end, vocabulary).coefficients[0])


@dataclass(frozen=True, slots=True)
class _OwnRow:
    """A token's own input row at the output: its share of the softmax, mean and mean square, and of E‖y‖²."""

    share: float
    square: float
    along: float


def _own_row(stack: MomentStack, model: ModelSetting, row: float, scale: float) -> _OwnRow:
    output = stack.output
    coefficient = float(output.coefficients[0])
    logit = coefficient * math.sqrt(model.width) * row * scale
    # Against V entries whose exponentials have the mean e^(q/2); the rest of the output moves the row's own logit.
    others = math.log(model.vocabulary) + scale**2 * row * output.q / 2
    spread = scale * math.sqrt(row * max(0.0, output.q - coefficient**2 * row))
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    shares = 1 / (1 + np.exp(np.clip(others - logit - spread * nodes, -700, 700)))
    weights = weights / weights.sum()
    return _OwnRow(float(weights @ shares), float(weights @ shares**2), coefficient**2 * row / output.q)


def _forward(
    placement: Placement, model: ModelSetting, text: Text, scatter: bool, encoder: MomentStack | None = None
) -> MomentStack:
    initial = SETTINGS[model.setting]
    setting = Setting(
        tokens=model.tokens,
        weight_std=initial.weight_std(placement),
        sequences=model.sequences,
        dropout=model.dropout,
        activation=model.activation,
        scatter=scatter,
        centres={model.norm, placement.default_norm} <= _TAKE_THE_MEAN_OFF,
        memory=encoder.output.products if encoder is not None else None,
        memory_tokens=encoder.setting.tokens if encoder is not None else 0,
    )
    stack = MomentStack(placement, setting)
    stack.forward(initial.embedding(placement, model.tokens, text))
    return stack


def _prediction(stack: MomentStack, gradients: StackGradients) -> StackPrediction:
    return StackPrediction(
        q=np.array([products.one for products in stack.depths]),
        p=np.array([products.two for products in stack.depths]),
        gradient_norm={name: np.array(norms) for name, norms in gradients.weights.items()},
        shares=stack.shares(),
    )
