"""The theory of Xiong et al. 2020, arXiv:2002.04745 ("the paper"), as the paper states it: whatever
is wrong is kept.

The setting throughout (section 3.3): L layers of width d, square weights drawn from N(0, 1/d), one
head, W_Q = W_K = 0 so that attention is a plain mean over the n positions, ReLU, norms with scale 1
and shift 0. Squared norms are sums over the d coordinates of one position. `corrected` holds the
same statements, under the same names, gaps closed.
"""

import math
from collections.abc import Sequence

ALPHA_0 = 0.1
"""The share of its mean below which the proof of Theorem 1 lets a squared norm not fall (end of
appendix E).
"""


def relu_squared_norm(*, width: int) -> float:
    """Lemma 1: E‖ReLU(X)‖² = d / 2 for X ~ N(0, I_d), and σ² times that for X ~ N(0, σ² I_d)."""
    return 0.5 * width


def post_ln_squared_norm(step: int, *, width: int) -> tuple[float, float]:
    """Lemma 2 for Post-LN: least and greatest E‖x^{post,step}‖², the same in every layer l > 0.

    step 0 is the hidden state x^{post} itself, 1 to 5 are the superscripts of Table 1. 0 and 3 are
    norms' outputs (exactly d), 1 and 2 bounded (eq. 2 to 6), 4 is d/2 (eq. 10), 5 is 3d/2 (eq. 13).
    """
    per_coordinate = [(1.0, 1.0), (0.0, 1.0), (1.0, 2.0), (1.0, 1.0), (0.5, 0.5), (1.5, 1.5)]
    least, greatest = per_coordinate[step]
    return least * width, greatest * width


def pre_ln_squared_norm(layer: int, *, width: int) -> tuple[float, float]:
    """Lemma 2 for Pre-LN: (1 + l/2) d ≤ E‖x_l^{pre}‖² ≤ (1 + 3l/2) d, where section 3.1 calls x_l
    the input of layer l.

    The lemma is stated for l > 0.
    """
    return (1 + 0.5 * layer) * width, (1 + 1.5 * layer) * width


def is_bounded(
    values: Sequence[float], probabilities: Sequence[float], *, epsilon: float, delta: float
) -> bool:
    """Definition 1, for a variable Z ≥ 0 of finitely many values: Pr[(Z - EZ) / EZ ≤ ε] ≥ 1 - δ.

    `probabilities`, as long as `values`, are those of the values. The definition looks upwards
    only: Z may be as small as it likes.
    """
    mean = math.fsum(z * p for z, p in zip(values, probabilities, strict=True))
    return (
        math.fsum(
            p for z, p in zip(values, probabilities, strict=True) if z - mean > epsilon * mean
        )
        <= delta
    )


def chi_square_delta(*, width: int, epsilon: float) -> float:
    """Appendix G, eq. (66): ‖Y‖², Y ~ N(0, I_d), is (ε, δ)-bounded with δ = exp(-d ε² / 8).

    For 0 < epsilon < 1.
    """
    return math.exp(-width * epsilon**2 / 8)


def shrink_probability(*, epsilon: float) -> float:
    """Eq. (43): claimed bound ε / (1 + ε - α₀) of the probability that an (ε, δ)-bounded Z is at
    most α₀ EZ.

    It is Lemma 5, Pr[Y ≤ a] ≤ (B - EY) / (B - a) for a Y that never exceeds B, with (1 + ε) EZ for
    B, although Z may exceed that with probability δ.
    """
    return epsilon / (1 + epsilon - ALPHA_0)


def theorem_1_probability(*, epsilon: float, delta: float) -> float:
    """Theorem 1: its bounds hold with probability at least 0.99 - δ - ε / (0.9 + ε), 0.9 being 1 -
    α₀.
    """
    return 0.99 - delta - shrink_probability(epsilon=epsilon)


def post_ln_gradient_order(*, width: int) -> float:
    """Theorem 1: ‖∂L/∂W^{2,L}‖_F ≤ O(d √(ln d)) for Post-LN, here with constant 1."""
    return width * math.sqrt(math.log(width))


def pre_ln_gradient_order(*, width: int, layers: int) -> float:
    """Theorem 1: ‖∂L/∂W^{2,L}‖_F ≤ O(d √(ln d / L)) for Pre-LN, here with constant 1."""
    return width * math.sqrt(math.log(width) / layers)


def last_layer_gradient_bound(*, width: int, power: float) -> float:
    """Returns the bound of ‖∂L/∂W^{2,L}‖_F with the constants of its proof, eq. (39) to (46) and
    (56), where ‖∂L/∂x‖ is 1.

    Each of the d² squared elements is at most ‖∂L/∂x‖² · d / (α₀ E‖x‖²) · 2 ln(100 d). `power` is
    E‖x‖² / d of the last norm's input: 3/2 for Post-LN, Lemma 2 for Pre-LN. The paper takes ‖∂L/∂x‖
    at the norm's output to be O(1).
    """
    return width * math.sqrt(2 * math.log(100 * width) / (ALPHA_0 * power))


def post_ln_gradient_profile(layers: int) -> list[float]:
    """Appendix F: the factor (2/3)^{(L-l)/2} claimed for ‖∂L/∂W^{2,l}‖ of Post-LN, relative to the
    last layer's.

    Layers l = 1 … L, in this order: "exponentially decreases as l goes smaller".
    """
    return [(2 / 3) ** ((layers - layer) / 2) for layer in range(1, layers + 1)]


def pre_ln_gradient_profile(layers: int) -> list[float]:
    """Appendix F: ‖∂L/∂W^{2,l}‖ of Pre-LN "is independent of l when l is large": 1 for every layer
    l = 1 … L.
    """
    return [1.0] * layers
