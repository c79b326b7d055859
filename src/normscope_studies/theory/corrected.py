"""What the proofs of Xiong et al. 2020 give once their gaps are closed, beside `paper`, which keeps what is printed.

Statements that exist on both sides have the same name; Lemma 3 holds as `normscope.measure.jacobian` has it. Each
docstring says what the paper, or a digest of it, has instead, and why that does not hold. Added to that: the mean-field
recursion, which turns bounds into values.

Per coordinate: q = E‖x‖² / d is the power of one token's stream, p = E⟨x_i, x_j⟩ / d that of two tokens, ρ = p / q
their cosine. A layer is a block; depth counts completed blocks, so that 0 is the embedding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


def feed_forward_share(*, width: int, inner_width: int) -> float:
    """c = 2df / (d+f)²: the power a ReLU feed-forward with Xavier weights adds, per unit of power of its input.

    W₁ and W₂ have variance 2/(d+f): the inner states have power d/(d+f) after the ReLU (Lemma 1), and f of them, times
    2/(d+f), make one output. The paper takes f = d, where it is 1/2; at d = 512, f = 1024 it is 4/9.
    """
    return 2 * width * inner_width / (width + inner_width) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The power a sub-layer's output has at initialisation, per unit of power of what it reads."""

    feed_forward: float = 0.5
    attention: float = 1.0
    """For tokens that are all alike; `uniform_attention_share` is what averaging over n tokens leaves of it."""


PAPER_SHARES = Shares()
"""Section 3.3: f = d, W_V ~ N(0, 1/d) and no output projection."""
FAIRSEQ_SHARES = Shares(feed_forward=feed_forward_share(width=512, inner_width=1024), attention=0.5)
"""`transformer_iwslt_de_en`: queries, keys and values are drawn with gain 1/√2, so values halve the power they read."""


# Lemma 2: squared norms -----------------------------------------------------------------------------------------------


def post_ln_squared_norm(*, width: int, shares: Shares = PAPER_SHARES) -> float:
    """E‖x^{post,5}‖² = (1 + c) d, before a block's last norm; 3d/2 in the paper's setting, 1.444 d in fairseq's.

    Lemma 2 is right. Digests give 3d/2 for the hidden state: that is a norm's output and has squared norm d exactly.
    """
    return (1 + shares.feed_forward) * width


def pre_ln_squared_norm(
    completed_blocks: int, *, width: int, shares: Shares = PAPER_SHARES, embedding: float = 1.0
) -> tuple[float, float]:
    """Bounds of E‖x_l‖² after l completed blocks: (q₀ + c l) d and (q₀ + (c + a) l) d; the paper has q₀ = 1.

    Each block adds c d in its feed-forward and between 0 and a d in its attention (eq. 17 to 20). The paper's section
    3.1 makes l the number of the layer that *reads* x_l: then l = 1 is the embedding, of squared norm d, below the
    claimed 3d/2, and with many tokens the next layers fall short too. The induction's start E‖x_0‖² = d is used, never
    stated: `embedding` is E‖x_0‖² / d. Digests have (1 + 2l) d for the lower bound, which is above the upper one.
    Raises ValueError for completed_blocks < 0.
    """
    if completed_blocks < 0:
        raise ValueError(f"completed_blocks counts from 0, the embedding, got {completed_blocks}")
    least = embedding + shares.feed_forward * completed_blocks
    return least * width, (least + shares.attention * completed_blocks) * width


# Definition 1 and the probability of Theorem 1 ------------------------------------------------------------------------


def is_bounded(values: Sequence[float], probabilities: Sequence[float], *, epsilon: float, delta: float) -> bool:
    """Definition 1 made two-sided, for a variable of finitely many values: Pr[|Z - EZ| ≤ ε EZ] ≥ 1 - δ.

    The paper's looks upwards only, and eq. (41) to (44) draw a lower tail from it by Lemma 5, which needs a ceiling
    that is never exceeded. Z = 1 (p = 0.999) or 10⁶ is (0.1, 0.001)-bounded, and is at most 0.1 EZ with probability
    0.999 where the step claims 0.1. Made two-sided, the definition itself gives Z ≥ (1 - ε) EZ with probability 1 - δ:
    α₀ is 1 - ε and no third term is left.
    """
    mean = math.fsum(z * p for z, p in zip(values, probabilities, strict=True))
    return math.fsum(p for z, p in zip(values, probabilities, strict=True) if abs(z - mean) > epsilon * mean) <= delta


def chi_square_tails(*, width: int, epsilon: float) -> tuple[float, float]:
    """Exactly Pr[Z < (1-ε) d] and Pr[Z > (1+ε) d] for Z = ‖Y‖², Y ~ N(0, I_d), a chi-square of d degrees.

    Their sum is the least δ with which Z is two-sidedly (ε, δ)-bounded. Eq. (66) bounds each by exp(-d ε² / 8), so both
    by twice that: true, but at d = 512, ε = 0.1 it is 1.05, where the exact sum is 0.11.
    Abramowitz & Stegun 26.4.4 and 26.4.5 (upper tail), 6.5.29 (lower). Raises ValueError unless 0 < epsilon < 1.
    """
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must lie between 0 and 1, got {epsilon}")
    half = width / 2
    below, above = (1 - epsilon) * half, (1 + epsilon) * half
    # Sums of positive terms on either side: one minus the other tail would lose the small one to rounding.
    upper = math.fsum(_poisson_weight(half - k, above) for k in range(1, width // 2 + 1))
    lower = term = _poisson_weight(half, below)
    k = half
    while term > 2**-60 * lower:
        k += 1
        term *= below / k
        lower += term
    return lower, upper + (math.erfc(math.sqrt(above)) if width % 2 else 0.0)


def _poisson_weight(k: float, mean: float) -> float:
    """e^{-mean} mean^k / Γ(k+1), for any k > -1."""
    return math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))


def theorem_1_probability(*, delta: float, positions: int = 1) -> float:
    """At least this probability has `last_layer_gradient_bound` of a mean over n positions: 0.99 - n δ, or 0.

    The paper subtracts ε / (0.9 + ε) more (see `is_bounded`), which leaves 0.765 with its measured (0.1, 0.125). It
    also takes one position's probability for the mean over n in eq. (45) and (46): each position may leave its bound,
    so δ counts n times (once only if it is for all positions together), and 0.01 too unless the logarithm becomes
    ln(100 n d). Here 0.01 counts once: it is spent on the mean over positions of ‖h‖².
    """
    return max(0.0, 0.99 - positions * delta)


def last_layer_gradient_bound(*, width: int, power: float, epsilon: float, loss_gradient_norm: float = 1.0) -> float:
    """‖∂L/∂W^{2,L}‖_F ≤ ‖∂L/∂x‖ √(d/2 · (1 + √(500/d))) / √((1-ε) q), with `theorem_1_probability`.

    O(√d) for Post-LN (q = 3/2) and O(√(d/L)) for Pre-LN (q ≥ 1 + L/2), where Theorem 1 has d√(ln d) and d√(ln d / L).
    With h = ReLU(xW₁) and g = ∂L/∂x one position's gradient is a matrix of rank one, hᵀ(gJ), of norm ‖h‖ ‖gJ‖; bounding
    it element by element charges all of ‖gJ‖ to each of the d columns. E‖h‖² = d/2 and Var ‖h‖² = 5d/4, for a mean over
    positions at most that, so Chebyshev gives the factor 1 + √(500/d) with probability 0.99.
    `power` is q = E‖y‖² / d of the last norm's input, centred: 3/2 - 1/(2d) for Post-LN, (1 - 1/d) q_L for Pre-LN.
    `epsilon` is that of `is_bounded` for the ‖y‖² of each position.
    """
    inner = width / 2 * (1 + math.sqrt(500 / width))
    return loss_gradient_norm * math.sqrt(inner / ((1 - epsilon) * power))


def feed_forward_gradient(
    *, width: int, power: float, loss_gradient_norm: float = 1.0, inner_width: int | None = None
) -> float:
    """Expected size of ‖∂L/∂W₂‖_F for one position: √(d/2) ‖∂L/∂x‖ / √q, or √(df/(d+f)) … for an inner width f.

    Theorem 1 is a bound from above; that the scale "is of order" its bound does not follow, and this is what it is:
    √(d/2) √(2/3) ‖∂L/∂x‖ for Post-LN, less than the paper's order by √(3 d ln d), 98 at d = 512. A mean over positions
    has at most this norm. `power` is q of the stream a norm reads behind this W₂: 1 + c in every block of Post-LN; in
    Pre-LN q_L of `pre_ln_stream` for the last block, q_l for block l where all sub-layers are feed-forward.
    """
    f = width if inner_width is None else inner_width
    return loss_gradient_norm * math.sqrt(width * f / (width + f) / power)


# Mean field: values instead of bounds ---------------------------------------------------------------------------------


def relu_kernel(rho: float) -> float:
    """κ(ρ) = (√(1-ρ²) + ρ (π - arccos ρ)) / π: the cosine of ReLU(u) and ReLU(v) for Gaussians u, v of cosine ρ.

    The arc-cosine kernel of degree 1, Cho & Saul 2009, section 2. κ(-1) = 0, κ(0) = 1/π, κ(1) = 1.
    Raises ValueError outside [-1, 1].
    """
    if not -1 <= rho <= 1:
        raise ValueError(f"a cosine lies between -1 and 1, got {rho}")
    return (math.sqrt((1 - rho) * (1 + rho)) + rho * (math.pi - math.acos(rho))) / math.pi


def uniform_attention_share(rho: float, *, tokens: int) -> float:
    """(1 + (n-1) ρ) / n: the power of the mean of n tokens of power 1 and cosine ρ, hence also of two such means.

    Eq. (5) and (17), which the paper bounds by 0 and 1.
    """
    return (1 + (tokens - 1) * rho) / tokens


def pre_ln_stream(
    blocks: int, *, tokens: int, shares: Shares = PAPER_SHARES, q: float = 1.0, p: float = 0.0
) -> list[tuple[float, float]]:
    """(q, p) of Pre-LN's stream after 0 … `blocks` blocks; `q` and `p` are the embedding's, 1 and 0 in the paper.

    Norms bring q to 1 and p to ρ; attention adds a (1 + (n-1) ρ) / n to q and p alike, the feed-forward c to q and
    c κ(ρ) to p. q lies within `pre_ln_squared_norm` and tells where: near the lower end for many tokens and few blocks,
    and rising at the upper end's rate once the tokens have become alike.
    """
    stream = [(q, p)]
    for _ in range(blocks):
        added = shares.attention * uniform_attention_share(p / q, tokens=tokens)
        q, p = q + added, p + added
        q, p = q + shares.feed_forward, p + shares.feed_forward * relu_kernel(p / q)
        stream.append((q, p))
    return stream


def post_ln_cosines(blocks: int, *, tokens: int, shares: Shares = PAPER_SHARES, rho: float = 0.0) -> list[float]:
    """ρ of Post-LN's hidden states after 0 … `blocks` blocks; q is 1 there. `rho` is the embedding's."""
    cosines = [rho]
    for _ in range(blocks):
        added = shares.attention * uniform_attention_share(rho, tokens=tokens)
        rho = (rho + added) / (1 + added)
        rho = (rho + shares.feed_forward * relu_kernel(rho)) / (1 + shares.feed_forward)
        cosines.append(rho)
    return cosines


# Appendix F: gradients of the other layers ----------------------------------------------------------------------------


def post_ln_gradient_profile(layers: int) -> list[float]:
    """‖∂L/∂W^{2,l}‖ of Post-LN relative to the last block's, l = 1 … L, all sub-layers feed-forward: 1 throughout.

    Appendix F bounds one factor of a block's backward gain, 1/√(1+c) = √(2/3) of the norm, and drops the others: the
    residual feed-forward's own gain is √(1+c), which cancels it exactly, whatever c is. Attention changes this by
    some per cent a block, in either direction; a decoder's cross-attention does damp (by 1/√(1+a) a block), because
    part of what passes its norm came from the encoder.
    """
    return [1.0] * layers


def pre_ln_gradient_profile(stream: Sequence[tuple[float, float]]) -> list[float]:
    """‖∂L/∂W^{2,l}‖ of Pre-LN relative to the last block's, √(q_L / q_l), for blocks l = 1 … L of a `pre_ln_stream`.

    Appendix F makes it "independent of l" since each block's Jacobian is close to 1. It is 1 + O(1/l), and the sum of
    1/l diverges: block l's feed-forward multiplies the squared gradient by 1 + c/q_{l-1} = q_l / q_{l-1}, a product
    that telescopes to q_L / q_l. So the bottom block's gradient is as large as in Post-LN and only the top's falls as
    1/√L, where section 3.3 has "all parameters normalised by √L". With attention, a mean over n positions also depends
    on how alike their hidden states and their gradients are, which is left out: measured ends differ by up to 11 %.
    """
    top, _ = stream[-1]
    return [math.sqrt(top / q) for q, _ in stream[1:]]
