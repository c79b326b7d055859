"""Parts of the third law: what the output knows of places is what the model is meant to know.

Tokens that are all alike are shifted by one onto themselves: where attention knows by how far
tokens are apart and nothing else, the output of one place is that of the next. And a token that
is changed shows as far as attention looks, and no farther.
"""

# B = sequences, T = tokens

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .meant import PlacesMeant
from .slicing import MOST_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUses:
    """The observed use of places. No field is filled where the law was not tried."""

    meant: PlacesMeant = field(default_factory=PlacesMeant)
    """The places that the model is meant to know."""
    shifted: float | None = None
    """The difference of outputs between the middle and the end of a sequence that repeats one
    token, as a share of their size; 0 where that is rounding.
    """
    context_unread: bool = False
    """True where a token changes no output but its own, though attention looks at it."""
    farther: int = 0
    """Places between a changed token and the farthest output that changes with it, where that is
    farther than attention carries it; else 0."""


_ROUNDED = 1e-4
"""The share of an output's size that exceeds what another order of sums leaves."""
_ROUNDED_IN_DOUBLE = 1e-12
_SAME = 3e-6
_LEAST = 8
"""Tokens, of which the second half is compared: what a convolution sees of the beginning is
over."""


def context_uses(
    ids_BT: Tensor,
    scores: Tensor,
    meant: PlacesMeant,
    after: Callable[[Tensor], Tensor | None],
    in_double: Callable[[Tensor], Tensor | None],
    *,
    moved: bool,
) -> ContextUses:
    """scores: (B, T, …) of the tokens. after: gives them for other tokens, and in_double in double
    precision; None where these are refused. moved: whether updates have opened what starts at 0.
    """
    tokens = ids_BT.shape[1]
    if scores.shape[:2] != ids_BT.shape or scores.ndim != 3 or tokens < _LEAST:
        return ContextUses()
    if scores.dtype != torch.float32:
        return ContextUses()
    is_whole = min(meant.keys, MOST_TOKENS) == min(tokens, MOST_TOKENS)
    unread, farther = False, 0
    if is_whole and moved:
        unread, farther = _changed_token(ids_BT, scores, meant, after, in_double)
    return ContextUses(
        meant=meant,
        shifted=_shifted(ids_BT, after)
        if meant.absolute or (meant.relative and is_whole)
        else None,
        context_unread=unread,
        farther=farther,
    )


def _shifted(ids_BT: Tensor, after: Callable[[Tensor], Tensor | None]) -> float | None:
    at = ids_BT.shape[1] // 2
    alike = after(ids_BT[:, at : at + 1].expand_as(ids_BT).contiguous())
    if alike is None or not bool(alike.isfinite().all()):
        return None
    last_BV = alike[:, -1]
    size = float(last_BV.norm())
    share = float((alike[:, at] - last_BV).norm()) / size if size > 0 else 0.0
    return share if share > _SAME else 0.0


def _changed_token(
    ids_BT: Tensor,
    scores: Tensor,
    meant: PlacesMeant,
    after: Callable[[Tensor], Tensor | None],
    in_double: Callable[[Tensor], Tensor | None],
) -> tuple[bool, int]:
    """Tells whether other outputs know nothing of a token, and how much further away than attention
    looks some of them know of it.
    """
    at, other = ids_BT.shape[1] // 4, ids_BT.shape[1] // 2
    changed_BT = ids_BT.clone()
    changed_BT[:, at] = ids_BT[:, other]
    if not meant.looks or torch.equal(changed_BT, ids_BT):
        return False, 0
    shares_T = _shares(scores, after(changed_BT))
    if shares_T is None:
        return False, 0
    places_T = (torch.arange(len(shares_T), device=shares_T.device) - at).abs()
    if float(shares_T[places_T > 0].max()) < _ROUNDED:
        # A branch that starts at a millionth is no more than rounding in single precision.
        before = in_double(ids_BT)
        exact_T = None if before is None else _shares(before, in_double(changed_BT))
        return exact_T is not None and float(exact_T[places_T > 0].max()) < _ROUNDED_IN_DOUBLE, 0
    farther = int((places_T * (shares_T > _ROUNDED)).max())
    return False, farther if farther > meant.farthest else 0


def _shares(before: Tensor, after: Tensor | None) -> Tensor | None:
    """Returns, by place, the largest change in any sequence as a share of the output's size
    there.
    """
    if after is None or not bool(after.isfinite().all()):
        return None
    sizes_BT = before.norm(dim=-1).clamp(min=torch.finfo(before.dtype).tiny)
    shares_BT: Tensor = (after - before).norm(dim=-1) / sizes_BT
    return shares_BT.amax(0)
