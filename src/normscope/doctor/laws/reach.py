"""The fourth law: the loss can be what the data need, however the output matrix is trained.

Logits that a curve holds within ± c give the right class a probability of at most
1 / (1 + (V - 1) e^(-2c)): the loss has a floor that no training goes below.
"""

# V = classes

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..trace.forward import main_tensor
from .trial import Trial, Untried


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitReach:
    """The largest distance between the logits of one token."""

    spread: float
    """The largest less the smallest, once the output matrix is so large that nothing changes any
    more; inf where they grow with it without end, and where they do not depend on its size."""
    classes: int

    @property
    def floor_nats(self) -> float:
        """The least loss a token: one logit at the upper end, all others at the lower."""
        return math.log1p((self.classes - 1) * math.exp(-self.spread))


_LARGE = (1e3, 1e5)
"""Times the output matrix: where both give the same, a curve is at its ends."""
_SAME = 1.01


@torch.no_grad()
def logit_reach(trial: Trial, outputs: Sequence[str], classes: int) -> LogitReach:
    """outputs: names of the matrices that make the model's outputs. The copy's weights are put
    back. Raises Untried where none of them makes the logits.
    """
    weights = dict(trial.model.named_parameters(remove_duplicate=False))
    known = [name for name in outputs if name in weights and classes in weights[name].shape]
    if not known:
        raise Untried("no matrix is known to make the logits")
    weight = weights[known[0]]
    kept = weight.detach().clone()
    spreads = []
    for times in (1.0, *_LARGE):
        weight.copy_(kept).mul_(times)
        spreads.append(_spread(trial.scores()))
    weight.copy_(kept)
    own, large, larger = spreads
    if large > own * _SAME and large / _SAME < larger < large * _SAME:
        return LogitReach(spread=larger, classes=classes)
    same = all(abs(one - own) <= (_SAME - 1) * own for one in (large, larger))
    # A matrix of zeros is the same matrix times anything.
    is_direction = same and bool(kept.any())
    if is_direction and classes > 2:
        return LogitReach(spread=_spread_of_directions(trial, weight, classes), classes=classes)
    return LogitReach(spread=math.inf, classes=classes)


def _spread_of_directions(trial: Trial, weight: nn.Parameter, classes: int) -> float:
    """Returns the largest difference where rows of the output matrix count by their direction
    alone: one row is turned to a token, and another away from it; inf where a trained number makes
    it more.
    """
    kept = weight.detach().clone()
    with torch.enable_grad():
        scores = main_tensor(trial.run())
        if scores is None or not scores.requires_grad:
            return math.inf
        first = scores.reshape(-1, classes)[0]
        (gradient,) = torch.autograd.grad(first[0], [weight], allow_unused=True)
    if gradient is None or weight.shape[0] != classes or not bool(gradient[0].any()):
        return math.inf
    size = kept.norm(dim=-1).mean() / gradient[0].norm()
    weight[0], weight[1] = gradient[0] * size, -gradient[0] * size
    spread = _spread(trial.scores())
    numbers = [one for one in trial.model.parameters() if one.requires_grad and one.numel() == 1]
    grows = any(_grows_with(trial, one, spread) for one in numbers)
    weight.copy_(kept)
    return math.inf if grows else spread


def _grows_with(trial: Trial, number: nn.Parameter, spread: float) -> bool:
    """Tells whether a trained number, such as a temperature, changes the distance between
    logits.
    """
    kept = number.detach().clone()
    number.add_(1.0)
    found = _spread(trial.scores())
    number.copy_(kept)
    return abs(found - spread) > (_SAME - 1) * spread


def _spread(scores: Tensor | None) -> float:
    """Returns the largest difference between two logits of one token."""
    if scores is None or not bool(scores.isfinite().all()):
        return math.inf
    return float((scores.amax(-1) - scores.amin(-1)).max())
