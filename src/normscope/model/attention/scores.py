"""Who sees whom, and how near: the window and the slopes that scores are changed by."""

# B = sentences, H = heads, T / S = longest query / key sentence, R = rows (beams) a sentence
import torch
from torch import Tensor


def slopes(heads: int) -> Tensor:
    """(H,): how much a head's scores fall with every token of distance (Press et al. 2021, section 3, and their code).

    A geometric series from 2^(-8/H), for a power of two; other numbers of heads take those of the next lower power,
    then every second one of twice as many.
    """
    power = 1 << (heads.bit_length() - 1)
    first = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return torch.tensor((first + between)[:heads])


def changed_scores(
    query_at: Tensor, key_at: Tensor, keep: Tensor | None, *, window: int | None, slopes_H: Tensor | None
) -> Tensor | None:
    """What hides keys from queries, True where one may look, or what is added to scores where there are slopes.

    query_at: positions (..., T); key_at: (..., S); keep: what is hidden already, as (B or 1, 1, T or 1, S). The result
    can be broadcast to (B, H, T, S).
    """
    distance = (query_at[..., :, None] - key_at[..., None, :])[..., None, :, :]
    if window is not None:
        near = distance.abs() < window
        keep = near if keep is None else keep & near
    if slopes_H is None:
        return keep
    added = -slopes_H[:, None, None] * distance.abs()
    return added if keep is None else added.masked_fill(~keep, -torch.inf)
