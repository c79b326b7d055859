"""The scores of queries and keys in attention: their positions, masks, and the mean of values."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

# B = sentences, H = heads, T / S = longest query / key sentence, K = width per head


_FUSED_FROM = 64
"""Keys from which torch's fused CPU kernel is faster than its plain one in float32, by a tenth to a
half.
"""


def attend(
    query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """(B, H, T, K) queries over (B, H, S, K) keys -> (B, H, T, K).

    keep: True where a query may look, or what is added to its scores; None where nothing is hidden
    or added. On a CPU torch's plain kernel is chosen where its fused one is slower: for few keys,
    and with bfloat16 up to a thousand keys. The plain one works in the dtype it is given: bfloat16
    scores and weights, the softmax between them in float32.
    """

    def attended() -> Tensor:
        return nn.functional.scaled_dot_product_attention(
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
    """`attend` written out, with a cap: scores become c · tanh(scores / c) before anything is
    hidden or added.

    It is also faster for a few queries over many keys on a CPU, where torch's kernel would scale
    and copy all the keys.
    """
    query = query * query.shape[-1] ** -0.5
    # MKL reads the keys nearly twice as fast where they are the rows of the product.
    by_key = query.dtype == torch.float32 and query.shape[2] < key.shape[2]
    scores = (key @ query.mT).mT if by_key else query @ key.mT
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if keep is not None:
        scores = (
            scores.masked_fill(~keep, -torch.inf) if keep.dtype == torch.bool else scores + keep
        )
    weights = scores.softmax(-1)
    mixed: Tensor = (nn.functional.dropout(weights, dropout) if dropout else weights) @ value
    return mixed


@contextmanager
def _as_given(dtype: torch.dtype) -> Iterator[None]:
    """Keep the plain kernel from turning bfloat16 into float32 and back, which makes it take twice
    as long.
    """
    if dtype != torch.bfloat16:
        yield
        return
    before: bool = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()  # type: ignore[no-untyped-call]
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        yield
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


# P = positions, T = longest sentence, K = width per head, R = rotated features of a head


def rotated_features(head_width: int, share: float) -> int:
    """Returns how many of a head's features are rotated. Raises ValueError where they do not come
    in pairs.
    """
    rotated = int(head_width * share)
    if rotated % 2 or not rotated:
        raise ValueError(
            f"rotary positions turn pairs of features, and {share:g} of a head's {head_width} are "
            f"{rotated}; give the heads another width, or attention.rotary_share another value"
        )
    return rotated


class Rotary(nn.Module):
    """Turns feature i of the first R together with feature i + R/2 by position · base^(-2i/R).

    The halves are paired as in Llama and GPT-NeoX; Su et al. 2021, eq. 34, pair neighbours, which
    is another order of the same features. Raises ValueError for an odd number of rotated features.
    """

    def __init__(self, head_width: int, base: float, share: float) -> None:
        super().__init__()
        self.rotated, self.base = rotated_features(head_width, share), base
        cosines, sines = self._tables(64)
        self.register_buffer("cosines_PR", cosines, persistent=False)
        self.register_buffer("sines_PR", sines, persistent=False)

    def forward(self, x: Tensor, first: int, length: int) -> Tensor:
        """(B, H, T, K) at positions first to first + length - 1; with a length of 1, all T at the
        one.
        """
        needed = first + length
        if needed > len(self.cosines_PR):
            # Grown by doubling, so that a long sentence costs once.
            tables = self._tables(1 << needed.bit_length())
            self.cosines_PR, self.sines_PR = (table.to(self.cosines_PR) for table in tables)
        places = slice(first, needed)
        turning, kept = x[..., : self.rotated], x[..., self.rotated :]
        low, high = turning.chunk(2, -1)
        cosines, sines = self.cosines_PR[places].to(x.dtype), self.sines_PR[places].to(x.dtype)
        turned = turning * cosines + torch.cat([-high, low], -1) * sines
        return torch.cat([turned, kept], -1) if kept.shape[-1] else turned

    def _tables(self, positions: int) -> tuple[Tensor, Tensor]:
        # In float32 whatever the model's dtype, as transformers has them: the two agree to the last
        # bit.
        pairs = torch.arange(0, self.rotated, 2, dtype=torch.int64).to(torch.float32)
        frequency = 1.0 / self.base ** (pairs / self.rotated)
        angle = torch.arange(positions, dtype=torch.float32)[:, None] * frequency
        both = torch.cat([angle, angle], -1)
        dtype = torch.get_default_dtype()
        return both.cos().to(dtype), both.sin().to(dtype)

    cosines_PR: Tensor
    sines_PR: Tensor


# B = sentences, H = heads, T / S = longest query / key sentence, R = rows (beams) a sentence


def slopes(heads: int) -> Tensor:
    """(H,): how much a head's scores fall with every token of distance (Press et al. 2021, section
    3, and their code).

    A geometric series from 2^(-8/H), for a power of two; other numbers of heads take those of the
    next lower power, then every second one of twice as many.
    """
    power = 1 << (heads.bit_length() - 1)
    first = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return torch.tensor((first + between)[:heads])


def changed_scores(
    query_at: Tensor,
    key_at: Tensor,
    keep: Tensor | None,
    *,
    window: int | None,
    slopes_H: Tensor | None,
) -> Tensor | None:
    """Returns the mask of keys, True where a query may look, or the numbers added to scores where
    there are slopes.

    query_at: positions (..., T); key_at: (..., S); keep: what is hidden already, as (B or 1, 1, T
    or 1, S). The result can be broadcast to (B, H, T, S).
    """
    distance = (query_at[..., :, None] - key_at[..., None, :])[..., None, :, :]
    if window is not None:
        near = distance.abs() < window
        keep = near if keep is None else keep & near
    if slopes_H is None:
        return keep
    added = -slopes_H[:, None, None] * distance.abs()
    return added if keep is None else added.masked_fill(~keep, -torch.inf)
