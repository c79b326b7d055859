"""What the first update of an optimiser makes of one matrix, to first order and for a rate of 1."""

import math
from typing import Literal, NamedTuple

from ..kernels import Activation
from .nodes import rounded
from .signs import Response, to_gaussian, to_hidden
from .tokens import NONE, Alike, sandwich, solved, square_root, trace

Rule = Literal["gradient", "sign", "orthogonal", "random"]
UPDATES: dict[str, Rule] = {
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
"""Of √max(rows, columns), as torch's `match_rms_adamw` (Liu et al. 2025, arXiv:2502.16982, section 2.2)."""


class Hidden(NamedTuple):
    """Inputs that are hidden units: their activation, and z's variance and correlation of two tokens."""

    activation: Activation
    variance: float
    correlation: float
    mean: float
    """Of the units as the matrix reads them, over their root mean square."""


class Matrix(NamedTuple):
    """A matrix at its inputs."""

    inputs: Alike
    """E u_s u_t of an entry."""
    gradient: Alike
    """E⟨g_s, g_t⟩ at its outputs."""
    fan_in: int
    fan_out: int
    hidden: Hidden | None = None
    """Where inputs are Gaussian, None."""


class Step(NamedTuple):
    """How outputs move: -η times Σ_t `coefficients`_ts g_t, and a rest without covariance with any gradient."""

    coefficients: Alike
    rest: Alike
    """E of an entry's square, and of two tokens' product."""


STILL = Step(NONE, NONE)


def first_step(rule: Rule, matrix: Matrix, tokens: int) -> Step:
    """The step of a matrix's outputs."""
    if matrix.gradient.one <= 0 or matrix.inputs.one <= 0:
        return STILL
    if rule == "random":
        # Entries of δW drawn from N(0, η²), whatever the gradient.
        return Step(NONE, matrix.inputs.scaled(matrix.fan_in))
    if rule == "gradient":
        return _gradient(matrix, tokens)
    return _orthogonal(matrix, tokens) if rule == "orthogonal" else _sign(matrix, tokens)


def _gradient(matrix: Matrix, tokens: int) -> Step:
    """δW = -η Σ_t g_t u_tᵀ: δW u_s = -η Σ_t g_t (u_t·u_s), and inner products of finite vectors scatter."""
    u, k = matrix.inputs, matrix.gradient
    scatter = u.scaled(trace(k, u, tokens)).plus(sandwich(u, k, tokens))
    return Step(u.scaled(matrix.fan_in), scatter.scaled(matrix.fan_in / matrix.fan_out))


def _orthogonal(matrix: Matrix, tokens: int) -> Step:
    """δW = -η s (G Gᵀ)^(-1/2) G, G = Γ Uᵀ of rank `tokens`: Γ K^(-1/2) (Uᵀ U)^(1/2) at the inputs, K = Γᵀ Γ."""
    scale = MUON_SCALE * math.sqrt(max(matrix.fan_in, matrix.fan_out))
    # The root of an inner product is solved for with the gradients' own.
    root = square_root(matrix.gradient, tokens)
    size = square_root(matrix.inputs.scaled(matrix.fan_in), tokens)
    return Step(solved(root, size, tokens).scaled(scale), NONE)


def _sign(matrix: Matrix, tokens: int) -> Step:
    """δW = -η sign G: every output moves by a sum over inputs."""
    response = _response(matrix, tokens)
    size, fan_in = math.sqrt(matrix.inputs.one), matrix.fan_in
    responses = response.gram.scaled(matrix.inputs.one)
    gram = responses.scaled(fan_in * fan_in).plus(matrix.inputs.plus(responses, -1.0), fan_in)
    entry = matrix.gradient.scaled(1 / matrix.fan_out)
    covariance = response.with_gradient.scaled(fan_in * size * math.sqrt(entry.one))
    coefficients = solved(entry, covariance, tokens)
    return Step(coefficients, gram.plus(sandwich(coefficients, entry, tokens), -1.0))


def _response(matrix: Matrix, tokens: int) -> Response:
    gradients = rounded(matrix.gradient.two / matrix.gradient.one)
    if matrix.hidden is None:
        return to_gaussian(tokens, rounded(matrix.inputs.two / matrix.inputs.one), gradients)
    activation, variance, correlation, mean = matrix.hidden
    # A power of a unit is as ReLU's whatever z's size; for the others three digits of it are enough.
    variance = 1.0 if activation == "relu" else float(f"{variance:.3g}")
    return to_hidden(tokens, activation, variance, rounded(correlation), gradients, round(mean, 4))


def square_of(step: Step, gradient: Alike, fan_out: int, tokens: int) -> Alike:
    """The Gram matrix of a step's entries."""
    return sandwich(step.coefficients, gradient.scaled(1 / fan_out), tokens).plus(step.rest)


def together(left: Step, right: Step) -> Step:
    """Steps whose rests are independent."""
    return Step(left.coefficients.plus(right.coefficients), left.rest.plus(right.rest))
