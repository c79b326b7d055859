"""The statements that the proofs of Xiong et al. 2020 give once their gaps are closed, next to
`paper`, which keeps what is printed.

Statements that exist on both sides have the same name; Lemma 3 is in `lemmas.measure`. Each
docstring says what the paper, or a digest of it, has instead, and why that does not hold. Added to
that: the mean-field recursion, which turns bounds into values.

Per coordinate: q = E‖x‖² / d is the power of one token's stream, p = E⟨x_i, x_j⟩ / d that of two
tokens, ρ = p / q their cosine. A layer is a block; depth counts completed blocks, so that 0 is the
embedding.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch

FEED_FORWARD, ATTENTION = 0.5, 1.0
"""The power a sub-layer's output has at initialisation, per unit of power of what it reads, in the
setting of section
3.3 (f = d, W_V ~ N(0, 1/d), no output projection); attention's for tokens that are all alike, of
which `uniform_attention_share` is what averaging over n tokens leaves."""


# Lemma 2: squared norms
# -----------------------------------------------------------------------------------------------


def post_ln_squared_norm(*, width: int) -> float:
    """E‖x^{post,5}‖² = 3d/2, before a block's last norm.

    Lemma 2 is right. Digests give 3d/2 for the hidden state: that is a norm's output and has
    squared norm d exactly.
    """
    return (1 + FEED_FORWARD) * width


def pre_ln_squared_norm(completed_blocks: int, *, width: int) -> tuple[float, float]:
    """Bounds of E‖x_l‖² after l completed blocks: (1 + l/2) d and (1 + 3l/2) d.

    Each block adds d/2 in its feed-forward and between 0 and d in its attention (eq. 17 to 20). The
    paper's section
    3.1 makes l the number of the layer that *reads* x_l: then l = 1 is the embedding, of squared
    norm d, below the claimed 3d/2, and with many tokens the next layers fall short too. The
    induction's start E‖x_0‖² = d is used, never stated. Digests have (1 + 2l) d for the lower
    bound, which is above the upper one.
    """
    least = 1 + FEED_FORWARD * completed_blocks
    return least * width, (least + ATTENTION * completed_blocks) * width


# Definition 1 and the probability of Theorem 1
# ------------------------------------------------------------------------


def is_bounded(
    values: Sequence[float], probabilities: Sequence[float], *, epsilon: float, delta: float
) -> bool:
    """Definition 1 made two-sided, for a variable of finitely many values: Pr[|Z - EZ| ≤ ε EZ] ≥ 1
    - δ.

    The paper's looks upwards only, and eq. (41) to (44) draw a lower tail from it by Lemma 5, which
    needs a ceiling that is never exceeded. Z = 1 (p = 0.999) or 10⁶ is (0.1, 0.001)-bounded, and is
    at most 0.1 EZ with probability
    0.999 where the step claims 0.1. Made two-sided, the definition itself gives Z ≥ (1 - ε) EZ with
    probability 1 - δ: α₀ is 1 - ε and no third term is left.
    """
    mean = math.fsum(z * p for z, p in zip(values, probabilities, strict=True))
    return (
        math.fsum(
            p for z, p in zip(values, probabilities, strict=True) if abs(z - mean) > epsilon * mean
        )
        <= delta
    )


def chi_square_tails(*, width: int, epsilon: float) -> tuple[float, float]:
    """Exactly Pr[Z < (1-ε) d] and Pr[Z > (1+ε) d] for Z = ‖Y‖², Y ~ N(0, I_d), a chi-square of d
    degrees.

    Their sum is the least δ with which Z is two-sidedly (ε, δ)-bounded. Eq. (66) bounds each by
    exp(-d ε² / 8), so both by twice that: true, but at d = 512, ε = 0.1 it is 1.05, where the exact
    sum is 0.11.
    """
    half = torch.tensor(width / 2, dtype=torch.float64)
    lower = torch.special.gammainc(half, (1 - epsilon) * half)
    upper = torch.special.gammaincc(half, (1 + epsilon) * half)
    return float(lower), float(upper)


def theorem_1_probability(*, delta: float, positions: int = 1) -> float:
    """Returns the least probability of `last_layer_gradient_bound` for a mean over n positions:
    0.99 - n δ, or 0.

    The paper subtracts ε / (0.9 + ε) more (see `is_bounded`), which leaves 0.765 with its measured
    (0.1, 0.125). It also takes one position's probability for the mean over n in eq. (45) and (46):
    each position may leave its bound, so δ counts n times (once only if it is for all positions
    together), and 0.01 too unless the logarithm becomes ln(100 n d). Here 0.01 counts once: it is
    spent on the mean over positions of ‖h‖².
    """
    return max(0.0, 0.99 - positions * delta)


def last_layer_gradient_bound(*, width: int, power: float, epsilon: float) -> float:
    """‖∂L/∂W^{2,L}‖_F ≤ √(d/2 · (1 + √(500/d))) / √((1-ε) q) where ‖∂L/∂x‖ is 1, with
    `theorem_1_probability`.

    O(√d) for Post-LN (q = 3/2) and O(√(d/L)) for Pre-LN (q ≥ 1 + L/2), where Theorem 1 has d√(ln d)
    and d√(ln d / L). With h = ReLU(xW₁) and g = ∂L/∂x one position's gradient is a matrix of rank
    one, hᵀ(gJ), of norm ‖h‖ ‖gJ‖; bounding it element by element charges all of ‖gJ‖ to each of the
    d columns. E‖h‖² = d/2 and Var ‖h‖² = 5d/4, for a mean over positions at most that, so Chebyshev
    gives the factor 1 + √(500/d) with probability 0.99. `power` is q = E‖y‖² / d of the last norm's
    input, centred: 3/2 - 1/(2d) for Post-LN, (1 - 1/d) q_L for Pre-LN. `epsilon` is that of
    `is_bounded` for the ‖y‖² of each position.
    """
    inner = width / 2 * (1 + math.sqrt(500 / width))
    return math.sqrt(inner / ((1 - epsilon) * power))


def feed_forward_gradient(*, width: int, power: float, loss_gradient_norm: float = 1.0) -> float:
    """Expected size of ‖∂L/∂W₂‖_F for one position: √(d/2) ‖∂L/∂x‖ / √q.

    Theorem 1 is a bound from above; that the scale "is of order" its bound does not follow, and
    this is what it is: √(d/2) √(2/3) ‖∂L/∂x‖ for Post-LN, less than the paper's order by √(3 d ln
    d), 98 at d = 512. A mean over positions has at most this norm. `power` is q of the stream a
    norm reads behind this W₂: 3/2 in every block of Post-LN; in Pre-LN q_L of `pre_ln_stream` for
    the last block, q_l for block l where all sub-layers are feed-forward.
    """
    return loss_gradient_norm * math.sqrt(width / 2 / power)


# Mean field: values instead of bounds
# ---------------------------------------------------------------------------------


def relu_kernel(rho: float) -> float:
    """κ(ρ) = (√(1-ρ²) + ρ (π - arccos ρ)) / π: the cosine of ReLU(u) and ReLU(v) for Gaussians u, v
    of cosine ρ.

    The arc-cosine kernel of degree 1, Cho & Saul 2009, section 2. κ(-1) = 0, κ(0) = 1/π, κ(1) = 1.
    """
    return (math.sqrt((1 - rho) * (1 + rho)) + rho * (math.pi - math.acos(rho))) / math.pi


def uniform_attention_share(rho: float, *, tokens: int) -> float:
    """(1 + (n-1) ρ) / n: the power of the mean of n tokens of power 1 and cosine ρ, hence also of
    two such means.

    Eq. (5) and (17), which the paper bounds by 0 and 1.
    """
    return (1 + (tokens - 1) * rho) / tokens


def pre_ln_stream(blocks: int, *, tokens: int) -> list[tuple[float, float]]:
    """(q, p) of Pre-LN's stream after 0 … `blocks` blocks, of an embedding with q = 1 and p = 0.

    Norms bring q to 1 and p to ρ; attention adds (1 + (n-1) ρ) / n to q and p alike, the
    feed-forward 1/2 to q and κ(ρ) / 2 to p. q lies within `pre_ln_squared_norm` and tells where:
    near the lower end for many tokens and few blocks, and rising at the upper end's rate once the
    tokens have become alike.
    """
    q, p = 1.0, 0.0
    stream = [(q, p)]
    for _ in range(blocks):
        added = ATTENTION * uniform_attention_share(p / q, tokens=tokens)
        q, p = q + added, p + added
        q, p = q + FEED_FORWARD, p + FEED_FORWARD * relu_kernel(p / q)
        stream.append((q, p))
    return stream


def post_ln_cosines(blocks: int, *, tokens: int) -> list[float]:
    """ρ of Post-LN's hidden states after 0 … `blocks` blocks; q is 1 there, and ρ of the embedding
    0.
    """
    rho = 0.0
    cosines = [rho]
    for _ in range(blocks):
        added = ATTENTION * uniform_attention_share(rho, tokens=tokens)
        rho = (rho + added) / (1 + added)
        rho = (rho + FEED_FORWARD * relu_kernel(rho)) / (1 + FEED_FORWARD)
        cosines.append(rho)
    return cosines


# Appendix F: gradients of the other layers
# ----------------------------------------------------------------------------


def pre_ln_gradient_profile(stream: Sequence[tuple[float, float]]) -> list[float]:
    """‖∂L/∂W^{2,l}‖ of Pre-LN relative to the last block's, √(q_L / q_l), for blocks l = 1 … L of a
    `pre_ln_stream`.

    Appendix F makes it "independent of l" since each block's Jacobian is close to 1. It is 1 +
    O(1/l), and the sum of 1/l diverges: block l's feed-forward multiplies the squared gradient by 1
    + 1/(2 q_{l-1}) = q_l / q_{l-1}, a product that telescopes to q_L / q_l. So the bottom block's
    gradient is as large as in Post-LN and only the top's falls as 1/√L, where section 3.3 has "all
    parameters normalised by √L". (Post-LN's is 1 throughout: appendix F bounds one factor of a
    block's backward gain, √(2/3), and drops the residual feed-forward's own, which cancels it.)
    With attention, a mean over n positions also depends on how alike their hidden states and their
    gradients are, which is left out: measured ends differ by up to 11 %.
    """
    top, _ = stream[-1]
    return [math.sqrt(top / q) for q, _ in stream[1:]]


def residual_jacobian_norm(
    sublayer: Literal["attention", "feed_forward"], *, power: float
) -> float:
    """‖∂(x + F(LN(x)))/∂x‖₂ of a sub-layer of Pre-LN at large width, x of power q.

    Appendix F calls it "nearly 1" for large l, since the norm's Jacobian has the norm 1/√q. It is 1
    + 1.41/√q for attention and 1 + 1.30/√q for the feed-forward where q is large: 1.28 and 1.26 at
    q = 28, which 24 blocks reach, and within a tenth of 1 from q = 205 and 177 on. By how much it
    makes a gradient grow on average is another number, √(1 + `ATTENTION`/q) and √(1 +
    `FEED_FORWARD`/q), whose product over layers `pre_ln_gradient_profile` has.

    The matrix is I + A/√q: A is W_V, or W₁ D W₂ with half of D's diagonal 0 and half 1. Directions
    of A's singular vectors have nothing to do with each other, so that the singular values of the
    sum, with both signs, are those of I and of A/√q freely added (Haagerup and Schultz 2007,
    Mathematica Scandinavica 100, section 3). The largest is the least value over z > 0 of 1/z and
    both R-transforms: (√(1 + 4z²) − 1) / 2z for I, z/q for W_V, z / 2(q − z²) for W₁ D W₂.
    """

    def upper_edge(z: float) -> float:
        added = z / power if sublayer == "attention" else z / (2 * (power - z**2))
        return (1 + math.sqrt(1 + 4 * z**2)) / (2 * z) + added

    return _least_value(upper_edge, 0.0, math.sqrt(power))


def _least_value(of: Callable[[float], float], low: float, high: float) -> float:
    """Returns the least value, between the ends, of a function that falls and then rises: by
    thirds.
    """
    for _ in range(100):
        third = (high - low) / 3
        if of(low + third) < of(high - third):
            high -= third
        else:
            low += third
    return of((low + high) / 2)
