"""What the first update of an optimiser makes of one matrix, to first order and for a rate of 1.

The numbers that the formula itself trains have steps too: gates, scales of branches and of skips.

The equation is T19 of docs/theory.md.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..kernels import Activation
from ..mixing import Entry, Products
from ..moments import Use
from ..places import whole_of
from .signs import (
    Response,
    rounded,
    to_gaussian,
    to_gaussian_by_place,
    to_hidden,
    to_hidden_by_place,
)
from .tokens import NONE, Tokens, Whole, over_tokens, polar, sandwich, solved, trace, whole

UpdateRule = Literal["gradient", "sign", "orthogonal", "random"]
UPDATES: dict[str, UpdateRule] = {
    "sgd": "gradient",
    # Its first updates are not adapted yet (Liu et al. 2020, arXiv:1908.03265, algorithm 2).
    "radam": "gradient",
    "adam": "sign",
    "adamw": "sign",
    "lion": "sign",
    "muon": "orthogonal",
    # No optimiser, but what Liu et al. 2020 (arXiv:2004.08249, section 4.1) take updates for.
    "random": "random",
}
"""Optimisers, and what their first update is proportional to. Decay of weights is left out."""
MUON_SCALE = 0.2
"""Of √max(rows, columns), as torch's `match_rms_adamw` (Liu et al. 2025, arXiv:2502.16982, section
2.2).
"""


class Hidden(NamedTuple):
    """Inputs that are hidden units: their activation, and z's variance and correlation of two
    tokens.
    """

    activation: Activation
    variance: Entry
    correlation: Entry
    mean: Entry
    """Of the units as the matrix reads them, over their root mean square."""


class UpdatedMatrix(NamedTuple):
    """A matrix at its inputs."""

    inputs: Tokens
    """E u_s u_t of an entry."""
    gradient: Tokens
    """E⟨g_s, g_t⟩ at its outputs."""
    fan_in: int
    fan_out: int
    hidden: Hidden | None = None
    """Where inputs are Gaussian, None."""


class MatrixStep(NamedTuple):
    """How outputs move: -η times Σ_t `coefficients`_ts g_t, and a rest without covariance with any
    gradient.
    """

    coefficients: Tokens
    rest: Tokens
    """E of an entry's square, and of two tokens' product."""


STILL = MatrixStep(NONE, NONE)


def first_step(rule: UpdateRule, matrix: UpdatedMatrix, tokens: int) -> MatrixStep:
    """The step of a matrix's outputs."""
    if matrix.gradient.one <= 0 or matrix.inputs.one <= 0:
        return STILL
    if rule == "random":
        # Entries of δW drawn from N(0, η²), whatever the gradient.
        return MatrixStep(NONE, matrix.inputs.scaled(matrix.fan_in))
    if rule == "gradient":
        return _gradient(matrix, tokens)
    return _orthogonal(matrix, tokens) if rule == "orthogonal" else _sign(matrix, tokens)


def _gradient(matrix: UpdatedMatrix, tokens: int) -> MatrixStep:
    """δW = -η Σ_t g_t u_tᵀ: δW u_s = -η Σ_t g_t (u_t·u_s), and inner products of finite vectors
    scatter.

    Equation T19.
    """
    u, k = matrix.inputs, matrix.gradient
    scatter = u.scaled(trace(k, u, tokens)).plus(sandwich(u, k, tokens))
    return MatrixStep(u.scaled(matrix.fan_in), scatter.scaled(matrix.fan_in / matrix.fan_out))


def _orthogonal(matrix: UpdatedMatrix, tokens: int) -> MatrixStep:
    """δW = -η s (G Gᵀ)^(-1/2) G, G = Γ Uᵀ of rank `tokens`: Γ K^(-1/2) (Uᵀ U)^(1/2) at the inputs,
    K = Γᵀ Γ.

    Equation T19.
    """
    scale = MUON_SCALE * math.sqrt(max(matrix.fan_in, matrix.fan_out))
    return MatrixStep(
        polar(matrix.inputs.scaled(matrix.fan_in), matrix.gradient, tokens).scaled(scale), NONE
    )


def _sign(matrix: UpdatedMatrix, tokens: int) -> MatrixStep:
    """δW = -η sign G: every output moves by a sum over inputs.

    Equation T19.
    """
    fan_in, entry = matrix.fan_in, matrix.gradient.scaled(1 / matrix.fan_out)
    responses, with_gradient = _response(matrix, entry, tokens)
    gram = responses.scaled(fan_in * fan_in).plus(matrix.inputs.plus(responses, -1.0), fan_in)
    covariance = with_gradient.scaled(fan_in)
    coefficients = solved(entry, covariance, tokens)
    return MatrixStep(coefficients, gram.plus(sandwich(coefficients, entry, tokens), -1.0))


def _response(matrix: UpdatedMatrix, entry: Tokens, tokens: int) -> Response:
    """To the sign of gradients that are `entry` at one output."""
    inputs = matrix.inputs
    if isinstance(inputs, Whole):
        gradients = whole(entry, tokens)
        if matrix.hidden is None:
            return to_gaussian_by_place(inputs.matrix, gradients)
        activation, variance, correlation, mean = matrix.hidden
        z = whole_of(Products(variance, correlation * np.sqrt(np.outer(variance, variance))))
        return to_hidden_by_place(
            activation, z, inputs.matrix, mean * np.sqrt(np.diag(inputs.matrix)), gradients
        )
    found = _response_of_alike(matrix, tokens)
    return Response(
        found.gram.scaled(inputs.one),
        found.with_gradient.scaled(math.sqrt(inputs.one) * math.sqrt(entry.one)),
    )


def _response_of_alike(matrix: UpdatedMatrix, tokens: int) -> Response:
    """For gradients and inputs of variance 1."""
    gradients = rounded(matrix.gradient.two / matrix.gradient.one)
    if matrix.hidden is None:
        return to_gaussian(tokens, rounded(matrix.inputs.two / matrix.inputs.one), gradients)
    activation, variance, correlation, mean = matrix.hidden
    # A power of a unit is as ReLU's whatever z's size; for the others three digits of it are
    # enough.
    variance = 1.0 if activation == "relu" else float(f"{variance:.3g}")
    return to_hidden(tokens, activation, variance, rounded(correlation), gradients, round(mean, 4))


def square_of(step: MatrixStep, gradient: Tokens, fan_out: int, tokens: int) -> Tokens:
    """The Gram matrix of a step's entries."""
    return sandwich(step.coefficients, gradient.scaled(1 / fan_out), tokens).plus(step.rest)


def together(left: MatrixStep, right: MatrixStep) -> MatrixStep:
    """Steps whose rests are independent."""
    return MatrixStep(left.coefficients.plus(right.coefficients), left.rest.plus(right.rest))


MOST_OF_GAUSSIAN = math.sqrt(2 / math.pi)
"""E |z|, what of its sign is a standard normal itself."""


def learnt_steps(
    rule: UpdateRule, uses: Sequence[Use], gradients: Sequence[Products], width: int, tokens: int
) -> list[MatrixStep]:
    """How far each product of a value with a trained number moves, at a rate of 1.

    The number of a product a x has the gradient Σ_t ⟨g_t, x_t⟩ over all its uses, or for every
    feature its own; the product moves by x times the number's step. Muon leaves what is no matrix
    to AdamW.
    """
    squares: dict[Hashable, float] = defaultdict(float)
    for use, g in zip(uses, gradients, strict=True):
        squares[use.number] += trace(over_tokens(g), over_tokens(use.value.products), tokens)
    return [
        _step(rule, use, over_tokens(g), squares[use.number], width, tokens)
        for use, g in zip(uses, gradients, strict=True)
    ]


def _step(
    rule: UpdateRule, use: Use, g: Tokens, square: float, width: int, tokens: int
) -> MatrixStep:
    """square: E of the number's squared gradient, over all features where it has one for each."""
    x, whole = over_tokens(use.value.products), use.entries == 1
    if rule == "random":
        return MatrixStep(NONE, x)
    if square <= 0:
        return STILL
    if rule == "gradient":
        gram = x.scaled(square if whole else square / width)
        coefficients = x
        if not whole:
            gram = gram.plus(sandwich(x, g, tokens), 2 / width)
    else:
        gram = x
        coefficients = x.scaled(MOST_OF_GAUSSIAN * math.sqrt((1 if whole else width) / square))
    return MatrixStep(
        coefficients, gram.plus(sandwich(coefficients, g.scaled(1 / width), tokens), -1.0)
    )
