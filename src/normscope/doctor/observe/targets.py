"""A loss's targets, read from its gradient at the logits.

A cross-entropy's gradient at a token's logits is w (p - y): p their softmax, y 1 at the class that
is wanted, w the token's weight in the loss. Its only negative entry names that class, and w is
-g_y / (1 - p_y).
"""

# B = sequences, T = tokens, N = B T, V = classes

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..loss_targets import LossTargets

_ROWS_CHECKED = 64
_PLAIN = 0.02
"""The share of a gradient's size by which it may differ from that of a plain cross-entropy."""
_RUN = 3
"""Places in a row that are padding, and no token that happens to have its index."""
_LEAST_CLASSES = 32
"""The fewest classes: of fewer, one is the same three times in a row by chance."""


@torch.no_grad()
def loss_targets(model: nn.Module, scores: Tensor, gradient: Tensor) -> LossTargets | None:
    """Returns what the loss asks for; None where it depends on no logits, or pulls none up.

    scores, gradient: (B, T, V) or (B, V).
    """
    classes = scores.shape[-1]
    gradient_NV = gradient.detach().reshape(-1, classes)
    least_N, wanted_N = gradient_NV.min(-1)
    counted_N = least_N < 0
    counted = int(counted_N.sum())
    if not counted:
        return None
    times_V = torch.bincount(wanted_N[counted_N], minlength=classes)
    return LossTargets(
        places=len(counted_N),
        counted=counted,
        weight=_weight(scores.detach().reshape(-1, classes), gradient_NV, least_N, wanted_N),
        commonest=int(times_V.argmax()),
        commonest_times=int(times_V.max()),
        padding=_padding(model, wanted_N, counted_N, scores),
        right_share=right_share(scores.detach().reshape(-1, classes), gradient_NV),
    )


_NOTHING = 1e-3
"""The sum of a gradient's entries, as a share of their sizes, that rounding leaves where it is
0.
"""
_SOMETHING = 0.05


def is_of_another_softmax(gradient_BTV: Tensor) -> bool:
    """Tells whether a loss's gradient sums to 0 over the scores of a sequence but not over each
    token's, as where the softmax is taken of the scores in another shape, or along the tokens.
    """
    if gradient_BTV.ndim != 3:
        return False
    given = gradient_BTV.detach().double()
    sizes_BT = given.abs().sum(-1)
    if not bool((sizes_BT > 0).any(1).all()):
        return False
    whole_B = given.sum((1, 2)).abs() / sizes_BT.sum(1)
    counted_BT = sizes_BT > 0
    by_token = (given.sum(-1).abs() / sizes_BT.clamp(min=1e-300))[counted_BT]
    return bool((whole_B < _NOTHING).all()) and float(by_token.mean()) > _SOMETHING


def right_share(scores_NV: Tensor, gradient_NV: Tensor) -> float:
    """Returns the share of a target that is its right class's, of a cross-entropy with targets that
    give all other classes the same; NaN of any other.

    A gradient is w (S p - q), with S the sum of q: over the classes that are not right it is a line
    in p, of slope w S and intercept -w e, where e is what each of these classes gets.
    """
    classes = scores_NV.shape[-1]
    least_N, right_N = gradient_NV.min(-1)
    some = (least_N < 0).nonzero()[:_ROWS_CHECKED, 0]
    if not len(some) or classes < _LEAST_CLASSES:
        return math.nan
    p_NV = scores_NV[some].double().softmax(-1)
    g_NV = gradient_NV[some].double()
    others_NV = torch.ones_like(p_NV, dtype=torch.bool).scatter(1, right_N[some, None], False)
    p, g = (one[others_NV].reshape(len(some), -1) for one in (p_NV, g_NV))
    about_p, about_g = p - p.mean(1, keepdim=True), g - g.mean(1, keepdim=True)
    slope_N = (about_p * about_g).sum(1) / about_p.square().sum(1).clamp(min=1e-300)
    rest = (about_g - slope_N[:, None] * about_p).norm() / about_g.norm().clamp(min=1e-300)
    if float(rest) > _PLAIN or bool((slope_N <= 0).any()):
        return math.nan
    each_N = p.mean(1) - g.mean(1) / slope_N
    return float((1 - (classes - 1) * each_N).mean())


def _weight(scores_NV: Tensor, gradient_NV: Tensor, least_N: Tensor, wanted_N: Tensor) -> float:
    """Returns the weights of all tokens together; NaN of a loss that is no plain cross-entropy."""
    counted_N = least_N < 0
    right_N = scores_NV.gather(1, wanted_N[:, None])[:, 0].float()
    right_N = (right_N - scores_NV.float().logsumexp(-1)).exp()
    weight_N = torch.where(counted_N, -least_N.float() / (1 - right_N), torch.zeros_like(right_N))
    some = counted_N.nonzero()[:_ROWS_CHECKED, 0]
    expected = scores_NV[some].float().softmax(-1)
    expected.scatter_add_(1, wanted_N[some, None], -torch.ones(len(some), 1).to(expected))
    given = gradient_NV[some].float()
    apart = (given - weight_N[some, None] * expected).norm() / given.norm()
    return float(weight_N.double().sum()) if float(apart) < _PLAIN else math.nan


def _padding(model: nn.Module, wanted_N: Tensor, counted_N: Tensor, scores: Tensor) -> int:
    """Counts the places in the loss whose target is padding, in runs at the ends of sequences."""
    if scores.ndim != 3 or scores.shape[-1] < _LEAST_CLASSES:
        return 0
    sequences = scores.shape[0]
    wanted_BT = wanted_N.reshape(sequences, -1)
    counted_BT = counted_N.reshape(sequences, -1)
    most = 0
    for index in _padding_indices(model, scores.shape[-1]):
        runs = 0
        for wanted_T, counted_T in zip(wanted_BT, counted_BT, strict=True):
            is_padding_T = wanted_T[counted_T] == index
            # A sequence of nothing else has no end.
            if not bool(is_padding_T.all()):
                runs += max(_run(is_padding_T.flip(0)), _run(is_padding_T))
        most = max(most, runs)
    return most


def _run(is_padding_T: Tensor) -> int:
    """Returns the length of the run of True at the beginning; 0 where it is too short to tell."""
    length = int((~is_padding_T).int().argmax())
    return length if length >= _RUN else 0


def _padding_indices(model: nn.Module, classes: int) -> set[int]:
    """Returns the indices that stand for padding in a vocabulary of so many classes."""
    found = {
        one.padding_idx
        for one in model.modules()
        if isinstance(one, nn.Embedding)
        and one.padding_idx is not None
        and one.num_embeddings == classes
    }
    told = getattr(getattr(model, "config", None), "pad_token_id", None)
    if type(told) is int and 0 <= told < classes:
        found.add(told)
    return found


_FARTHEST = 2
"""Places later than a token that are looked at."""
_KNOWN = 0.9
"""The share of targets that have to be the next token's, for it to be no chance."""


def places_of_targets(gradient_BTV: Tensor, tokens: Sequence[Tensor]) -> int | None:
    """Returns how many places after a token the input has its target, -1 to 2: the token whose
    logit the gradient pulls up.

    None where it is none of these.
    """
    if gradient_BTV.ndim != 3 or gradient_BTV.shape[1] <= _FARTHEST:
        return None
    ends = gradient_BTV.shape[1] - _FARTHEST
    least_BT, targets_BT = gradient_BTV[:, :ends].min(-1)
    asked_BT = least_BT < 0
    for given_BT in tokens:
        if given_BT.shape == gradient_BTV.shape[:-1] and int(asked_BT.sum()) > 1:
            known = [
                float((targets_BT == given_BT[:, place : place + ends])[asked_BT].double().mean())
                for place in range(_FARTHEST + 1)
            ]
            if sum(share >= _KNOWN for share in known) == 1:
                return known.index(max(known))
            earlier_BT = given_BT[:, : ends - 1]
            before = (targets_BT[:, 1:] == earlier_BT)[asked_BT[:, 1:]].double().mean()
            if max(known) < _KNOWN and float(before) >= _KNOWN:
                return -1
    return None
