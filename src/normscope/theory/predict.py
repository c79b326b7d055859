"""Predicted curves over depth: the stream and the gradient of every matrix, for any placement, before any training."""

import math
from dataclasses import dataclass, field
from typing import Literal

from ..placement import Placement, StackShape, named
from .backward import StackGradients, backward
from .kernels import Activation
from .moments import Atoms, MomentNorms, single
from .settings import SETTINGS
from .stream import MomentEnd, MomentStack, Setting
from .sublayers import Pair, pair_of

StackKind = Literal["encoder", "decoder", "encoder-decoder"]
_TAKE_THE_MEAN_OFF = frozenset({"layer-norm"})
"""Of the norms a model can have; all others divide by the RMS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSetting:
    """The model a prediction is for. The loss is the mean cross-entropy per target token, in nats, at random targets,
    over one sequence. The output projection has rows of squared length 1 where it is not tied."""

    stack: StackKind = "encoder"
    blocks: int = 6
    """Of each stack."""
    width: int = 512
    ffn_width: int = 512
    heads: int = 1
    tokens: int = 16
    """Of the sequence; of source and target each."""
    vocabulary: int = 10_000
    """Rows of the output projection."""
    setting: str = "theory"
    """Initial weights and embedding: theory or paper."""
    activation: Activation = "relu"
    norm: Literal["layer-norm", "rms-norm"] = "layer-norm"
    tied: bool = True
    """Whether the output projection is the input's embedding, in settings whose embedding has rows."""

    def __post_init__(self) -> None:
        for name in ("blocks", "width", "ffn_width", "heads", "tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.vocabulary < 2:
            raise ValueError(f"vocabulary must be at least 2, got {self.vocabulary}")
        if self.width % self.heads:
            raise ValueError(f"width={self.width} must be a multiple of heads={self.heads}")
        if self.width < 4 or self.width % 2:
            raise ValueError(f"width must be even and at least 4, for its sinusoids, got {self.width}")
        allowed = {
            "setting": tuple(SETTINGS),
            "stack": ("encoder", "decoder", "encoder-decoder"),
            "activation": ("relu", "gelu"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPrediction:
    """Curves of one stack, by depth: completed blocks for the stream, blocks for gradients."""

    q: list[float]
    """E‖x_l‖² / d, from the embedding on."""
    p: list[float]
    """E⟨x_l, x'_l⟩ / d of two tokens of the sequence."""
    gradient_norm: dict[str, list[float]]
    """Root of the mean squared Frobenius norm of each matrix's gradient: value, output, ffn_in, ffn_out, and
    cross_value and cross_output."""
    shares: dict[str, list[float]] = field(default_factory=dict)
    """What each sub-layer is of the last stream's E‖x‖², by kind, and the embedding's own; they add up to 1."""


def predict(placement: str, model: ModelSetting) -> dict[str, StackPrediction]:
    """Predictions by stack: "encoder", "decoder" or both.

    Raises ValueError for an unknown placement, or one that is not defined for such a model.
    """
    if model.stack != "encoder-decoder":
        kind: Literal["encoder", "decoder"] = "encoder" if model.stack == "encoder" else "decoder"
        stack = _forward(named(placement)(model.shape(kind)), model, None)
        return {kind: _prediction(stack, backward(stack, loss_gradient(stack, model)))}
    encoder = _forward(named(placement)(model.shape("encoder")), model, None)
    decoder = _forward(named(placement)(model.shape("decoder")), model, pair_of(encoder.output))
    gradients = backward(decoder, loss_gradient(decoder, model))
    return {
        "encoder": _prediction(encoder, backward(encoder, gradients.memory)),
        "decoder": _prediction(decoder, gradients),
    }


def loss_gradient(stack: MomentStack, model: ModelSetting) -> Pair:
    """At an output token: E‖Σ_v (softmax_v - target_v) E_v‖² / n², and the product of two tokens' gradients.

    Logits are Gaussian with the variance q and the covariance p of the output, so that over V entries E Σ softmax² is
    e^q / V and E Σ softmax softmax' is e^p / V, as long as they are small. With a tied projection the output may still
    hold its own input row E_o, which then has a logit apart and a share of the softmax, and so a part of the gradient.
    Of that part a norm at the output takes off what lies along the output itself, y: E_o (1 - α²) is left, and α y,
    which tokens have in common. (No norm further down takes anything off: F is homogeneous, so that the gradient stays
    orthogonal to the stream.)
    """
    output = stack.output
    vocabulary, tied = model.vocabulary, SETTINGS[model.setting].tied and model.tied
    scale = _output_scale(stack, vocabulary)
    row = scale**2 * (float(stack.atoms.q[0]) if tied else 1.0)
    own, along = _own_row(stack, model, scale) if tied else (0.0, 0.0)
    removed = along if output.normed else 0.0
    others = (1 - own) ** 2 * min(1.0, math.exp(min(row * output.q, 700.0)) / vocabulary)
    one = 1 - 2 / vocabulary + own**2 * (1 - removed) + others
    common = (1 - own) ** 2 * min(1.0, math.expm1(min(row * output.p, 700.0)) / vocabulary)
    two = common + own**2 * removed * output.p / output.q
    return Pair(one, two).scaled(row / model.tokens**2)


def _output_scale(stack: MomentStack, vocabulary: int) -> float:
    """What the placement multiplies the rows of the output projection with."""
    atoms = Atoms(stack.placement.stack.width)
    rows = single(atoms, atoms.add(1 / atoms.width, 0.0))
    end = MomentEnd(MomentNorms(stack.placement.norm_epsilon, centres=stack.setting.centres))
    return float(stack.placement.output_rows(rows, end, vocabulary).coefficients[0])


def _own_row(stack: MomentStack, model: ModelSetting, scale: float) -> tuple[float, float]:
    """The softmax's share of the token's own input row, and that row's share of the output's E‖y‖²."""
    output = stack.output
    coefficient, row = float(output.coefficients[0]), float(stack.atoms.q[0])
    # Against V entries whose exponentials have the mean e^(q/2).
    logit = coefficient * math.sqrt(model.width) * row * scale
    others = math.log(model.vocabulary) + scale**2 * row * output.q / 2
    share = 1 / (1 + math.exp(min(700.0, others - logit)))
    return share, coefficient**2 * row / output.q


def _forward(placement: Placement, model: ModelSetting, memory: Pair | None) -> MomentStack:
    initial = SETTINGS[model.setting]
    setting = Setting(
        tokens=model.tokens,
        weight_std=initial.weight_std(placement),
        activation=model.activation,
        centres={model.norm, placement.default_norm} <= _TAKE_THE_MEAN_OFF,
        memory=memory,
        memory_tokens=model.tokens if memory is not None else 0,
    )
    stack = MomentStack(placement, setting)
    stack.forward(initial.embedding(placement, model.tokens))
    return stack


def _prediction(stack: MomentStack, gradients: StackGradients) -> StackPrediction:
    return StackPrediction(
        q=[pair.one for pair in stack.depths],
        p=[pair.two for pair in stack.depths],
        gradient_norm=gradients.weights,
        shares=stack.shares(),
    )
