"""How tightly the squared norms of hidden states concentrate: Definition 1 of Xiong et al. 2020, on samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

_Sides = Literal["upper", "both"]
"""upper: Definition 1, Pr[Z - EZ ≤ ε EZ] ≥ 1 - δ; both: Pr[|Z - EZ| ≤ ε EZ] ≥ 1 - δ, which Theorem 1's proof needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least δ with which Z is (ε, δ)-bounded, estimated from counts."""

    epsilon: float
    sides: _Sides
    count: int
    outside: int
    """Values that leave the bound."""

    @property
    def delta(self) -> float:
        """Share of values outside."""
        return self.outside / self.count

    @property
    def standard_error(self) -> float:
        """Of `delta`, for independent values and a mean that is known, √(δ(1-δ) / n).

        With (k+1) / (n+2) for δ, as a plain share would claim certainty where no value, or every one, lies outside.
        Tokens of one sequence are not independent of one another: the true error is larger.
        """
        share = (self.outside + 1) / (self.count + 2)
        return math.sqrt(share * (1 - share) / self.count)


def squared_norms(x: Tensor) -> Tensor:
    """‖x‖² of each token, float64 where the device has it; (..., D) to (...). What a `recording` may reduce to."""
    dtype = torch.float32 if x.device.type == "mps" else torch.float64
    norms: Tensor = torch.linalg.vector_norm(x.detach(), dim=-1, dtype=dtype)
    return norms.square()


def smallest_delta(samples: Tensor, epsilon: float, *, sides: _Sides, mean: float | None = None) -> Bound:
    """From samples of Z ≥ 0, such as squared norms, of any shape; `mean` is EZ where it is known, else theirs.

    Raises ValueError for no samples, values that are negative or not finite, or epsilon ≤ 0.
    """
    counter = BoundCounter(_checked(samples).mean().item() if mean is None else mean, [epsilon])
    counter.add(samples)
    return counter.bounds(sides)[0]


def is_bounded(samples: Tensor, *, epsilon: float, delta: float, sides: _Sides, mean: float | None = None) -> bool:
    """Whether the sample itself is (ε, δ)-bounded; raises as `smallest_delta`."""
    return smallest_delta(samples, epsilon, sides=sides, mean=mean).delta <= delta


class BoundCounter:
    """Counts for several ε in one pass over values that come batch by batch; holds no value.

    It needs EZ beforehand: theory's, or that of a first pass. `sample_mean` shows how well it was met.
    """

    def __init__(self, mean: float, epsilons: Sequence[float]) -> None:
        """Raises ValueError for a mean that is not positive and finite, or an epsilon ≤ 0."""
        if not (mean > 0 and math.isfinite(mean)):
            raise ValueError(f"the mean must be positive and finite, got {mean}")
        if wrong := [epsilon for epsilon in epsilons if not epsilon > 0]:
            raise ValueError(f"epsilon must be positive, got {', '.join(map(str, wrong))}")
        self.mean, self.epsilons = mean, tuple(epsilons)
        self.count, self._sum = 0, 0.0
        self._above, self._below = [0] * len(self.epsilons), [0] * len(self.epsilons)

    def add(self, samples: Tensor) -> None:
        """Any shape. Raises ValueError for no samples, or values that are negative or not finite."""
        samples = _checked(samples)
        self.count += samples.numel()
        self._sum += samples.sum().item()
        apart = samples - self.mean
        for i, epsilon in enumerate(self.epsilons):
            self._above[i] += int((apart > epsilon * self.mean).sum())
            self._below[i] += int((apart < -epsilon * self.mean).sum())

    @property
    def sample_mean(self) -> float:
        """NaN before any value."""
        return self._sum / self.count if self.count else math.nan

    def bounds(self, sides: _Sides) -> list[Bound]:
        """One for each ε. Raises ValueError before any value."""
        if not self.count:
            raise ValueError("no values were counted")
        outside = self._above if sides == "upper" else [a + b for a, b in zip(self._above, self._below, strict=True)]
        return [
            Bound(epsilon=epsilon, sides=sides, count=self.count, outside=out)
            for epsilon, out in zip(self.epsilons, outside, strict=True)
        ]


def _checked(samples: Tensor) -> Tensor:
    samples = samples.detach().cpu().double()
    if not samples.numel():
        raise ValueError("no samples")
    if not bool((samples.isfinite() & (samples >= 0)).all()):
        raise ValueError("squared norms are finite and not negative; these samples have others")
    return samples
