"""The second moments that an activation makes of Gaussian pre-activations, and of gradients on
their way back.

The equations are T4 to T6 of docs/theory.md.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from .mixing import Array, Entry, Products, between, make, root

Activation = Literal["relu", "gelu", "swiglu", "geglu"]
ACTIVATIONS: tuple[Activation, ...] = ("relu", "gelu", "swiglu")
"""That models of ours have."""
GATED: tuple[Activation, ...] = ("swiglu", "geglu")


class Kernel(NamedTuple):
    """For two pre-activations z, z' of variance v and correlation ρ: second moments of φ(z) and of
    φ'(z).

    SwiGLU is φ(z, u) = silu(z) u with u, the gate's partner, drawn as z is but independently; its
    φ' is that by u. GEGLU has GELU in the place of silu.
    """

    one: Entry
    """E φ(z)²"""
    two: Entry
    """E φ(z) φ(z')"""
    slope_one: Entry
    """E φ'(z)²"""
    slope_two: Entry
    """E φ'(z) φ'(z')"""
    mean: Entry
    """E φ(z)"""
    gate_slope_one: Entry = 0.0
    """Gated: E (∂φ/∂z)², and of two."""
    gate_slope_two: Entry = 0.0


def kernel(activation: Activation, variance: Entry, correlation: Entry) -> Kernel:
    """Returns the kernel of a variance and a correlation; by place, of (K,) and (K, K) of them.

    Raises ValueError for an activation that has no kernel here.

    Equations T5 and T6.
    """
    correlation = between(-1.0, correlation, 1.0)
    if activation == "relu":
        return _relu(variance, correlation)
    if activation == "gelu":
        return _by_quadrature(_gelu, _gelu_slope, variance, correlation)
    if activation == "swiglu":
        return _gated(_silu, _silu_slope, variance, correlation)
    if activation == "geglu":
        return _gated(_gelu, _gelu_slope, variance, correlation)
    raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")


def kernel_of_own(
    activation: Activation, variance: Entry, correlation: Entry
) -> tuple[Products, ...]:
    """Returns the second moments of φ'(z) φ(z), what comes back to a pre-activation of its own
    unit: of one token and of two, for each matrix before the activation, the gate's last.

    Of SwiGLU and GEGLU it is φ(z)² u at the partner u, and φ(z) φ'(z) u² at the gate z.

    Equation T15.
    """
    correlation = between(-1.0, correlation, 1.0)
    if activation == "relu":
        found = _relu(variance, correlation)
        return (Products(found.one, found.two),)
    function = _silu if activation == "swiglu" else _gelu
    slope = _silu_slope if activation == "swiglu" else _gelu_slope
    with_slope = _by_quadrature(lambda z: function(z) * slope(z), slope, variance, correlation)
    if activation == "gelu":
        return (Products(with_slope.one, with_slope.two),)
    square = _by_quadrature(lambda z: function(z) ** 2, slope, variance, correlation)
    # √(v v'), which multiplies what two tokens have of the partner.
    size = root(variance)
    of_two = np.outer(size, size) if isinstance(size, np.ndarray) else variance
    return (
        Products(square.one * variance, square.two * of_two * correlation),
        # E u⁴ = 3 v², and E u² u'² = v² (1 + 2 ρ²).
        Products(
            with_slope.one * 3 * variance**2, with_slope.two * of_two**2 * (1 + 2 * correlation**2)
        ),
    )


def excess(activation: Activation, variance: float) -> float:
    """Returns Var φ² / (E φ²)²: how much the square of one hidden unit varies about its mean. 5 of
    ReLU, where E φ⁴ = 3/2 v² and E φ² = v/2. Equation T4.
    """
    if activation == "relu":
        return 5.0
    nodes, weights = normal_nodes()
    value = (_silu if activation == "swiglu" else _gelu)(math.sqrt(variance) * nodes)
    # Where the hidden units vanish, both are their slope at 0 times the input.
    largest = np.abs(value).max()
    value = value / largest if largest else nodes
    ratio = float(weights @ value**4) / float(weights @ value**2) ** 2
    # E u⁴ = 3 (E u²)².
    return (ratio if activation == "gelu" else 3 * ratio) - 1


def activated(activation: Activation, z: Array) -> Array:
    """Returns φ(z) of what is not gated, entry by entry; of SwiGLU and GEGLU the gate's factor.
    Equation T5.
    """
    if activation == "relu":
        return np.maximum(z, 0.0)
    return _silu(z) if activation == "swiglu" else _gelu(z)


def slope(activation: Activation, z: Array) -> Array:
    """Returns φ'(z); of SwiGLU and GEGLU the slope by the gate's partner, which is the gate's
    factor. Equation T6.
    """
    if activation == "relu":
        return (z > 0).astype(np.float64)
    return _gelu_slope(z) if activation == "gelu" else activated(activation, z)


def gate_slope(activation: Activation, z: Array, partner: Array) -> Array:
    """Returns the slope of SwiGLU and GEGLU by the gate's input z: silu'(z) u. Equation T6."""
    return (_silu_slope(z) if activation == "swiglu" else _gelu_slope(z)) * partner


def _relu(variance: Entry, correlation: Entry) -> Kernel:
    """Returns ReLU's kernel: Cho & Saul 2009, eq. 1 and 6 (arc-cosine kernels of order 1 and 0).
    Equations T5 and T6.
    """
    if isinstance(variance, np.ndarray):
        angles = np.arccos(correlation)
        sizes = np.sqrt(np.outer(variance, variance))
        orders_1 = (np.sqrt(1 - correlation**2) + correlation * (math.pi - angles)) / (2 * math.pi)
        return Kernel(
            one=variance / 2,
            two=sizes * orders_1,
            slope_one=np.full_like(variance, 0.5),
            slope_two=(math.pi - angles) / (2 * math.pi),
            mean=np.sqrt(variance / (2 * math.pi)),
        )
    # Half of the units are on. Two tokens turn on those of a wedge of π − arccos ρ.
    angle = math.acos(correlation)
    order_1 = (math.sqrt(1 - correlation**2) + correlation * (math.pi - angle)) / (2 * math.pi)
    slope = (math.pi - angle) / (2 * math.pi)
    mean = math.sqrt(variance / (2 * math.pi))
    return make(Kernel, (variance / 2, variance * order_1, 0.5, slope, mean, 0.0, 0.0))


def _gated(
    function: Callable[[Array], Array],
    slope: Callable[[Array], Array],
    variance: Entry,
    correlation: Entry,
) -> Kernel:
    """Returns a gated unit's kernel: the gate's times that of its independent partner (Shazeer
    2020, eq. 6). Equations T5 and T6.
    """
    gate = _by_quadrature(function, slope, variance, correlation)
    size = root(variance)
    covariance = (np.outer(size, size) if isinstance(size, np.ndarray) else variance) * correlation
    return Kernel(
        one=gate.one * variance,
        two=gate.two * covariance,
        slope_one=gate.one,
        slope_two=gate.two,
        mean=0.0,
        gate_slope_one=gate.slope_one * variance,
        gate_slope_two=gate.slope_two * covariance,
    )


def _by_quadrature(
    function: Callable[[Array], Array],
    slope: Callable[[Array], Array],
    variance: Entry,
    correlation: Entry,
) -> Kernel:
    """Integrates a kernel by Gauss-Hermite quadrature; of arrays its products of two by Hermite's
    series. Equations T5 and T6.
    """
    nodes, weights = normal_nodes()
    if isinstance(variance, np.ndarray):
        z = np.sqrt(variance)[:, None] * nodes
        values, slopes = function(z), slope(z)
        return Kernel(
            one=values**2 @ weights,
            two=of_pairs(values, nodes, weights, correlation),
            slope_one=slopes**2 @ weights,
            slope_two=of_pairs(slopes, nodes, weights, correlation),
            mean=values @ weights,
        )
    # z along rows, and z' = ρ z + √(1 − ρ²) of an independent variable along columns.
    sigma = math.sqrt(variance)
    first = sigma * nodes[:, None]
    second = sigma * (correlation * nodes[:, None] + math.sqrt(1 - correlation**2) * nodes[None, :])
    joint = weights[:, None] * weights[None, :]
    at_first, slope_at_first = function(first), slope(first)
    return Kernel(
        one=float(weights @ at_first[:, 0] ** 2),
        two=float((joint * at_first * function(second)).sum()),
        slope_one=float(weights @ slope_at_first[:, 0] ** 2),
        slope_two=float((joint * slope_at_first * slope(second)).sum()),
        mean=float(weights @ at_first[:, 0]),
    )


_TERMS = 40
"""Terms of Hermite's series: of correlations up to 0.9 what is left is below 0.9⁴⁰, which is 1.5 %
of what the last terms have, and that is taken for one more. Equation T5.
"""


def of_pairs(values: Array, nodes: Array, weights: Array, correlation: Array) -> Array:
    """Returns (K, K) E f(z) f'(z'), for functions f and f' given at nodes of a standard normal, (K,
    S).

    With c_n = E f(z) h_n(z) for Hermite's normalised polynomials h_n it is Σ_n c_n c'_n ρⁿ. What is
    left of E f² after `_TERMS` of them is taken for one term more.

    Equation T5.
    """
    total = np.zeros(correlation.shape)
    # h_(n−1) and h_n at the nodes.
    before = np.zeros_like(nodes)
    here = np.ones_like(nodes)
    power = np.ones(correlation.shape)
    left = values**2 @ weights
    for n in range(_TERMS):
        c = values @ (weights * here)
        total = total + np.outer(c, c) * power
        left = left - c**2
        # √(n + 1) h_(n+1)(z) = z h_n(z) − √n h_(n−1)(z).
        after = (nodes * here - math.sqrt(n) * before) / math.sqrt(n + 1)
        before = here
        here = after
        power = power * correlation
    rest = np.sqrt(np.maximum(left, 0.0))
    result: Array = total + np.outer(rest, rest) * power
    return result


@lru_cache(maxsize=4)
def normal_nodes(count: int = 48) -> tuple[Array, Array]:
    """Returns nodes and weights, (count,) each, for expectations under a standard normal by
    Gauss-Hermite. Equation T5.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


_erf = np.vectorize(math.erf, otypes=[float])


def _gelu(z: Array) -> Array:
    """Returns z Φ(z). Equation T5."""
    result: Array = 0.5 * z * (1 + _erf(z / math.sqrt(2)))
    return result


def _gelu_slope(z: Array) -> Array:
    """Returns Φ(z) + z φ(z), here with φ the normal density. Equation T6."""
    result: Array = 0.5 * (1 + _erf(z / math.sqrt(2))) + z * np.exp(-(z**2) / 2) / math.sqrt(
        2 * math.pi
    )
    return result


def _silu(z: Array) -> Array:
    """Returns z / (1 + e^(−z)). Equation T5."""
    result: Array = z / (1 + np.exp(-z))
    return result


def _silu_slope(z: Array) -> Array:
    """Returns s (1 + z (1 − s)), s = 1 / (1 + e^(−z)). Equation T6."""
    share = 1 / (1 + np.exp(-z))
    result: Array = share * (1 + z * (1 - share))
    return result
