"""Label-smoothed cross-entropy of a tied output projection, without ever holding the logits of a
whole batch.
"""

# M = target tokens, D = width, V = vocabulary, C = tokens of a chunk

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..model.linear import add_product, rows_product

CHUNK_TOKENS = 256
"""Large enough that a pass over the weight is cheap beside the chunk's products, small enough for
the logits: 10 MB at a vocabulary of 10,000."""
_DEVICE_LOGITS = 1 << 28
"""The size of a chunk on a device, where each is a pass over the weight's gradient too: a GB in
float32.
"""


def smoothed_cross_entropy(
    hidden_MD: Tensor,
    weight_VD: Tensor,
    target_M: Tensor,
    smoothing: float,
    *,
    bias_V: Tensor | None = None,
    soft_cap: float | None = None,
    chunk_tokens: int = CHUNK_TOKENS,
) -> tuple[Tensor, Tensor]:
    """Sums over tokens, in nats: the smoothed loss, and the negative log-likelihood, which has no
    gradient.

    With logits = hidden_MD weight_VDᵀ (+ bias_V), or with a `soft_cap` c the c · tanh(logits / c)
    of Gemma 2 (Gemma team 2024, arXiv:2408.00118, section 2), p = softmax(logits), ε = `smoothing`
    and ε' = ε / (V - 1), a token's loss is

        (1 - ε - ε') (-log p_target) + ε' Σ_V (-log p),

    so that the target weighs 1 - ε and each other entry ε' (fairseq since 791ab7c2, 2021-02-03;
    before that, ε / V). target_M: int64, every token counts, so leave padding out. Under autocast
    the products run in its dtype, and the softmax and both sums in float32; float64 stays float64.
    Gradients are computed with the loss, chunk by chunk.
    """
    # Inside a Function gradients are always off; whether they are wanted must be asked outside.
    with_gradient = torch.is_grad_enabled()
    if hidden_MD.is_cuda:
        chunk_tokens = max(chunk_tokens, _DEVICE_LOGITS // weight_VD.shape[0])
    return _sums(
        hidden_MD, weight_VD, bias_V, target_M, smoothing, soft_cap, chunk_tokens, with_gradient
    )


class _SmoothedCrossEntropy(torch.autograd.Function):
    """The sums of a smoothed cross-entropy; forward finds the gradients too, and backward
    multiplies them by the cotangent.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        soft_cap: float | None,
        chunk: int,
        with_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        autocast = torch.is_autocast_enabled(device)
        product_dtype = (
            torch.get_autocast_dtype(device) if autocast else torch.result_type(hidden, weight)
        )
        for_hidden, for_weight, for_bias = (
            with_gradient and needed for needed in ctx.needs_input_grad[:3]
        )
        # In the weight's own dtype: a sum of chunks kept in bfloat16 would lose the small ones.
        hidden_gradient = torch.empty_like(hidden) if for_hidden else None
        weight_gradient = torch.zeros_like(weight) if for_weight else None
        bias_gradient = torch.zeros_like(bias) if for_bias and bias is not None else None
        sums: list[Tensor] = []
        with torch.autocast(device, enabled=False):
            weight_now = weight.to(product_dtype)
            for start in range(0, len(target), chunk):
                rows = slice(start, start + chunk)
                hidden_now = hidden[rows].to(product_dtype)
                logits_CV = rows_product(hidden_now, weight_now.T)
                if bias is not None:
                    logits_CV += bias.to(product_dtype)
                if hidden.is_cuda and smoothing == 0 and soft_cap is None:
                    gradient_CV, sums_2 = plain_chunk(logits_CV, target[rows])
                else:
                    gradient_CV, sums_2 = _chunk(logits_CV, target[rows], smoothing, soft_cap)
                sums.append(sums_2)
                if bias_gradient is not None:
                    bias_gradient += gradient_CV.sum(0)
                gradient_CV = gradient_CV.to(product_dtype)
                if hidden_gradient is not None:
                    hidden_gradient[rows] = rows_product(gradient_CV, weight_now)
                if weight_gradient is not None and weight_gradient.dtype == gradient_CV.dtype:
                    add_product(weight_gradient, gradient_CV, hidden_now)
                elif weight_gradient is not None:
                    weight_gradient.add_(gradient_CV.T @ hidden_now)
        ctx.gradients = hidden_gradient, weight_gradient, bias_gradient
        smoothed, nll = torch.stack(sums).sum(0)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if g is None else g * cotangent.to(g.dtype) for g in ctx.gradients)
        return *scaled, None, None, None, None, None


def _chunk(
    logits_CV: Tensor, target_C: Tensor, smoothing: float, soft_cap: float | None
) -> tuple[Tensor, Tensor]:
    """Returns the gradient of the chunk's smoothed loss in its logits, (C, V), and the two sums,
    (2,).
    """
    vocabulary = logits_CV.shape[1]
    logits_CV = at_least_float32(logits_CV)
    if soft_cap is not None:
        share_CV = (logits_CV / soft_cap).tanh_()
        logits_CV = soft_cap * share_CV
    p_CV = logits_CV.softmax(-1)
    # log Σ exp(logits) = logit - log p for whichever entry; at the largest, p >= 1 / V cannot
    # underflow. `logsumexp` and `exp` are an order of magnitude slower on a CPU than `softmax`.
    normaliser_C = logits_CV.amax(-1) - p_CV.amax(-1).log()
    target_C1 = target_C[:, None]
    nll = (normaliser_C - logits_CV.gather(1, target_C1).squeeze(1)).sum()
    all_nll = (vocabulary * normaliser_C - logits_CV.sum(-1)).sum()
    each = smoothing / (vocabulary - 1)
    smoothed = (1 - smoothing - each) * nll + each * all_nll
    # The weights (1 - ε - ε') of the target and ε' of all V add up to 1, hence p itself.
    p_CV.sub_(each).scatter_add_(1, target_C1, p_CV.new_full(target_C1.shape, each + smoothing - 1))
    if soft_cap is not None:
        p_CV.mul_(1 - share_CV * share_CV)
    return p_CV, torch.stack([smoothed, nll])


def plain_chunk(logits_CV: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor]:
    """Computes what `_chunk` does, without smoothing and without a cap, with the gradient in the
    logits' dtype.

    It reads and writes the logits less often, which is what a device takes its time for; a CPU
    takes it for `log`.
    """
    target_C1 = target_C[:, None]
    log_p_C1 = logits_CV.log_softmax(
        -1, dtype=torch.promote_types(logits_CV.dtype, torch.float32)
    ).gather(1, target_C1)
    nll = -log_p_C1.sum()
    # p - 1 of the target, taken before rounding: in bfloat16 a p near 1 would leave no gradient.
    p_CV = logits_CV.softmax(-1).scatter_(1, target_C1, log_p_C1.expm1().to(logits_CV.dtype))
    return p_CV, torch.stack([nll, nll])


_sums: Callable[..., tuple[Tensor, Tensor]] = _SmoothedCrossEntropy.apply


LN2 = math.log(2)
"""Nats in a bit."""


def at_least_float32(logits: Tensor) -> Tensor:
    """A softmax is not for bfloat16; float64 stays."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def unigram_entropy_nats(tokens: NDArray[Any]) -> float:
    """Returns the entropy of tokens taken one by one: the loss of a model that knows how often each
    occurs and nothing else.
    """
    counts = np.bincount(tokens)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
