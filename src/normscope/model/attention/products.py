"""Scaled dot products of queries and keys, and the mean of values that they weigh."""

# B = sentences, H = heads, T / S = longest query / key sentence, K = width per head
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

_FUSED_FROM = 64
"""Keys from which torch's fused CPU kernel is faster than its plain one in float32, by a tenth to a half."""


def attend(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """(B, H, T, K) queries over (B, H, S, K) keys -> (B, H, T, K).

    keep: True where a query may look, or what is added to its scores; None where nothing is hidden or added. On a CPU
    torch's plain kernel is chosen where its fused one is slower: for few keys, and with bfloat16 up to a thousand keys.
    The plain one works in the dtype it is given: bfloat16 scores and weights, the softmax between them in float32.
    """

    def attended() -> Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=keep, dropout_p=dropout, is_causal=causal
        )

    narrow = query.dtype == torch.bfloat16
    if query.device.type != "cpu" or (key.shape[2] >= _FUSED_FROM and not narrow):
        return attended()
    with sdpa_kernel(SDPBackend.MATH), _as_given(query.dtype):
        return attended()


def attend_few(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keep: Tensor | None,
    *,
    soft_cap: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend` written out, with a cap: scores become c · tanh(scores / c) before anything is hidden or added.

    It is also faster for a few queries over many keys on a CPU, where torch's kernel would scale and copy all the keys.
    """
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf) if keep.dtype == torch.bool else scores + keep
    weights = scores.softmax(-1)
    mixed: Tensor = (functional.dropout(weights, dropout) if dropout else weights) @ value
    return mixed


@contextmanager
def _as_given(dtype: torch.dtype) -> Iterator[None]:
    """Keep the plain kernel from turning bfloat16 into float32 and back, which makes it take twice as long."""
    if dtype != torch.bfloat16:
        yield
        return
    before: bool = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()  # type: ignore[no-untyped-call]
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        yield
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)
