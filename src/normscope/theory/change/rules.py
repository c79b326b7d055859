"""The first update of an optimiser to one matrix, to first order and for a rate of 1.

The numbers that the formula itself trains have steps too: gates, scales of branches and of skips.

The equations are T19 and T24 of docs/theory.md.
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
"""The factor of √max(rows, columns) under Muon, as torch's `match_rms_adamw` has it (Liu et al.
2025, arXiv:2502.16982, section 2.2).
"""


class Hidden(NamedTuple):
    """Says of inputs that they are hidden units: their activation, and z's variance and correlation
    of two tokens.
    """

    activation: Activation
    variance: Entry
    correlation: Entry
    mean: Entry
    """The mean of the units as the matrix reads them, over their root mean square."""


class UpdatedMatrix(NamedTuple):
    """Holds a matrix at its inputs."""

    inputs: Tokens
    """E u_s u_t of an entry."""
    gradient: Tokens
    """E⟨g_s, g_t⟩ at its outputs."""
    fan_in: int
    fan_out: int
    hidden: Hidden | None = None
    """None where inputs are Gaussian."""


class MatrixStep(NamedTuple):
    """Holds how outputs move: −η times Σ_t `coefficients`_ts g_t, and a rest without covariance
    with any gradient.
    """

    coefficients: Tokens
    rest: Tokens
    """E of an entry's square, and of two tokens' product."""


STILL = MatrixStep(NONE, NONE)


def first_step(rule: UpdateRule, matrix: UpdatedMatrix, tokens: int) -> MatrixStep:
    """Returns the step of a matrix's outputs; nothing moves without a gradient or an input.
    Equation T19.
    """
    if matrix.gradient.one <= 0 or matrix.inputs.one <= 0:
        return STILL
    if rule == "random":
        # Entries of δW drawn from N(0, η²), whatever the gradient.
        return MatrixStep(NONE, matrix.inputs.scaled(matrix.fan_in))
    if rule == "gradient":
        return _gradient(matrix, tokens)
    return _orthogonal(matrix, tokens) if rule == "orthogonal" else _sign(matrix, tokens)


def _gradient(matrix: UpdatedMatrix, tokens: int) -> MatrixStep:
    """Returns the step by δW = −η Σ_t g_t u_tᵀ: δW u_s = −η Σ_t g_t (u_t·u_s), where inner products
    of finite vectors scatter. Equation T19.
    """
    u = matrix.inputs
    k = matrix.gradient
    # [tr(K u) u + u K u] f / f_out: what an inner product over f inputs scatters by.
    scatter = u.scaled(trace(k, u, tokens)).plus(sandwich(u, k, tokens))
    rest = scatter.scaled(matrix.fan_in / matrix.fan_out)
    return MatrixStep(u.scaled(matrix.fan_in), rest)


def _orthogonal(matrix: UpdatedMatrix, tokens: int) -> MatrixStep:
    """Returns the step by δW = −η s (G Gᵀ)^(−1/2) G, for G = Γ Uᵀ of rank `tokens`: Γ K^(−1/2) (Uᵀ
    U)^(1/2) at the inputs, K = Γᵀ Γ. Equation T19.
    """
    scale = MUON_SCALE * math.sqrt(max(matrix.fan_in, matrix.fan_out))
    u_u = matrix.inputs.scaled(matrix.fan_in)
    coefficients = polar(u_u, matrix.gradient, tokens).scaled(scale)
    return MatrixStep(coefficients, NONE)


def _sign(matrix: UpdatedMatrix, tokens: int) -> MatrixStep:
    """Returns the step by δW = −η sign G: every output moves by a sum over inputs, each of which
    responds to the sign of its gradient. Equation T19.
    """
    f = matrix.fan_in
    # K at one output.
    entry = matrix.gradient.scaled(1 / matrix.fan_out)
    responses, with_gradient = _response(matrix, entry, tokens)
    # f² R + f (u − R): f inputs respond alike, and each scatters about its response.
    scatter = matrix.inputs.plus(responses, -1.0)
    gram = responses.scaled(f * f).plus(scatter, f)
    coefficients = solved(entry, with_gradient.scaled(f), tokens)
    along_gradients = sandwich(coefficients, entry, tokens)
    return MatrixStep(coefficients, gram.plus(along_gradients, -1.0))


def _response(matrix: UpdatedMatrix, entry: Tokens, tokens: int) -> Response:
    """Returns the inputs' response to the sign of gradients.

    entry: the Gram matrix of gradients at one output.

    Equation T19.
    """
    inputs = matrix.inputs
    if isinstance(inputs, Whole):
        gradients = whole(entry, tokens)
        if matrix.hidden is None:
            return to_gaussian_by_place(inputs.matrix, gradients)
        activation, variance, correlation, mean = matrix.hidden
        covariance = correlation * np.sqrt(np.outer(variance, variance))
        z = whole_of(Products(variance, covariance))
        mean_of_units = mean * np.sqrt(np.diag(inputs.matrix))
        return to_hidden_by_place(activation, z, inputs.matrix, mean_of_units, gradients)
    found = _response_of_alike(matrix, tokens)
    # A response is as large as the inputs, and does not depend on the size of gradients.
    size_of_input = math.sqrt(inputs.one)
    size_of_gradient = math.sqrt(entry.one)
    return Response(
        found.gram.scaled(inputs.one),
        found.with_gradient.scaled(size_of_input * size_of_gradient),
    )


def _response_of_alike(matrix: UpdatedMatrix, tokens: int) -> Response:
    """Returns the response of gradients and inputs of variance 1. Equation T19."""
    gradients = rounded(matrix.gradient.two / matrix.gradient.one)
    if matrix.hidden is None:
        return to_gaussian(tokens, rounded(matrix.inputs.two / matrix.inputs.one), gradients)
    activation, variance, correlation, mean = matrix.hidden
    # ReLU's units have one form whatever z's size; of GELU and SiLU three digits of it are enough.
    variance = 1.0 if activation == "relu" else float(f"{variance:.3g}")
    return to_hidden(tokens, activation, variance, rounded(correlation), gradients, round(mean, 4))


def square_of(step: MatrixStep, gradient: Tokens, fan_out: int, tokens: int) -> Tokens:
    """Returns the Gram matrix of a step's entries: Qᵀ K Q / fan-out, and the rest. Equation T20."""
    return sandwich(step.coefficients, gradient.scaled(1 / fan_out), tokens).plus(step.rest)


def together(left: MatrixStep, right: MatrixStep) -> MatrixStep:
    """Returns the sum of steps whose rests are independent. Equation T20."""
    return MatrixStep(left.coefficients.plus(right.coefficients), left.rest.plus(right.rest))


MOST_OF_GAUSSIAN = math.sqrt(2 / math.pi)
"""E |z|, what of its sign is a standard normal itself."""


def learnt_steps(
    rule: UpdateRule, uses: Sequence[Use], gradients: Sequence[Products], width: int, tokens: int
) -> list[MatrixStep]:
    """Returns how far each product of a value with a trained number moves, at a rate of 1.

    The number a of a product a x has the gradient Σ_t ⟨g_t, x_t⟩ over all its uses, or for every
    feature its own; the product moves by x times the number's step. Muon leaves what is no matrix
    to AdamW.

    Equation T24.
    """
    squares: dict[Hashable, float] = defaultdict(float)
    for use, g in zip(uses, gradients, strict=True):
        # E (Σ_t ⟨g_t, x_t⟩)² of independent g and x, added up over uses of one number.
        squares[use.number] += trace(over_tokens(g), over_tokens(use.value.products), tokens)
    return [
        _step(rule, use, over_tokens(g), squares[use.number], width, tokens)
        for use, g in zip(uses, gradients, strict=True)
    ]


def _step(
    rule: UpdateRule, use: Use, g: Tokens, square: float, width: int, tokens: int
) -> MatrixStep:
    """Returns the step of one product a x.

    square: E of the number's squared gradient, over all features where it has one for each.

    Equation T24.
    """
    x = over_tokens(use.value.products)
    is_one_number = use.entries == 1
    # How many numbers share that square.
    numbers = 1 if is_one_number else width
    if rule == "random":
        return MatrixStep(NONE, x)
    if square <= 0:
        return STILL
    if rule == "gradient":
        gram = x.scaled(square / numbers)
        coefficients = x
        if not is_one_number:
            # A feature's own g x has a fourth moment of 3, of which 1 is in the mean already.
            gram = gram.plus(sandwich(x, g, tokens), 2 / width)
    else:
        # The sign of a Gaussian has √(2/π) of the Gaussian over its standard deviation.
        gram = x
        coefficients = x.scaled(MOST_OF_GAUSSIAN * math.sqrt(numbers / square))
    along_gradients = sandwich(coefficients, g.scaled(1 / width), tokens)
    return MatrixStep(coefficients, gram.plus(along_gradients, -1.0))
