"""The gradient of the loss at the outputs, from which everything else goes back."""

import math
from dataclasses import dataclass

import numpy as np

from .kernels import normal_nodes
from .model_setting import ModelSetting
from .moments import Atoms, single
from .operations import norms_of
from .products import Products
from .settings import of_setting
from .stream import MomentEnd, MomentStack


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
    vocabulary = model.vocabulary
    own_row = of_setting(model.setting, stack.placement).row(stack.placement) if model.tied else None
    scale = _output_scale(stack, vocabulary, own_row or 1.0)
    row = scale**2 * (own_row or 1.0)
    own = _OwnRow(0.0, 0.0, 0.0) if own_row is None else _own_row(stack, model, own_row, scale)
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


def _output_scale(stack: MomentStack, vocabulary: int, row: float) -> float:
    """What the placement multiplies rows of that squared length of the output projection with."""
    atoms = Atoms(stack.placement.stack.width)
    rows = single(atoms, atoms.add(row / atoms.width, 0.0))
    end = MomentEnd(norms_of(stack.setting.norm, stack.placement.norm_epsilon))
    return float(stack.placement.output_rows(rows, end, vocabulary).coefficients[0])


@dataclass(frozen=True, slots=True)
class _OwnRow:
    """A token's own input row at the output: its share of the softmax, mean and mean square, and of E‖y‖²."""

    share: float
    square: float
    along: float


def _own_row(stack: MomentStack, model: ModelSetting, row: float, scale: float) -> _OwnRow:
    output = stack.output
    # What is looked up is a multiple of the row, and dropout on it leaves its mean.
    looked_up = stack.atoms.products(0).one * (1 - model.dropout)
    coefficient = float(output.coefficients[0])
    logit = coefficient * math.sqrt(model.width * looked_up * row) * scale
    # Against V entries whose exponentials have the mean e^(q/2); the rest of the output moves the row's own logit.
    others = math.log(model.vocabulary) + scale**2 * row * output.q / 2
    spread = scale * math.sqrt(row * max(0.0, output.q - coefficient**2 * looked_up))
    nodes, weights = normal_nodes(24)
    shares = 1 / (1 + np.exp(np.clip(others - logit - spread * nodes, -700, 700)))
    return _OwnRow(float(weights @ shares), float(weights @ shares**2), coefficient**2 * looked_up / output.q)
