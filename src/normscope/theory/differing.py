"""How the tokens of a sequence differ: in how many directions, and by how much from draw to draw.

What a softmax passes on to its logits is a sum over pairs of tokens of ⟨x̃, x̃'⟩², x̃ a token less their mean. It is as
small as of random tokens only where they differ in as many directions as there are features, and grows with the
variance of ‖x̃‖² over draws.
"""

import math
from typing import NamedTuple

import numpy as np

from .mixing import Array, Entry, between, make, vanishes

_WIDEST = 1e30
"""Beyond thousands of blocks of a narrow model, whose tokens do not differ in float64 any more."""


class Differing(NamedTuple):
    """Of all places together, beyond E‖x̃‖² / d, which is q − p."""

    narrow: float = 1.0
    """d · E⟨x̃, x̃'⟩² / (E‖x̃‖²)² of two tokens: d over the number of directions. 1 of random tokens."""
    wider: float = 1.0
    """The root mean square over draws of ‖x̃‖² over its mean."""
    past: float = 0.0
    """Of the root of `narrow`, what comes of the directions of what it was made of."""

    def attended(self) -> "Differing":
        """What attention makes of it, by two random matrices; other tokens are mixed for each token."""
        return make(Differing, (self.narrow + 2, self.wider, 0.0))

    def activated(self, share: float, hidden: float) -> "Differing":
        """What a feed-forward makes of it.

        share: of the square of what comes out, what slopes make of what goes in. hidden: units for each feature, of
        which half are still.
        """
        past = min(1.0, share) * math.sqrt(self.narrow)
        return make(Differing, (past * past + 1 + 2 / hidden, self.wider, past))

    def normed(self, scatter: float, common: float) -> "Differing":
        """Divided by a size whose square has that relative variance; tokens have that share of their square in common.

        E 1/s⁴ is 1 + 3 Var s², as far as tokens have one size.
        """
        wider = self.wider * (1 + 1.5 * scatter * common * common)
        return make(Differing, (self.narrow, min(wider, _WIDEST), self.past))


RANDOM = Differing()


def summed(left: tuple[float, Differing], right: tuple[float, Differing]) -> Differing:
    """Of a sum without a part in common: what both have of the past adds up as it is, all else in squares."""
    (gap, one), (other_gap, other) = left, right
    if not gap or not other_gap:
        return one if gap else other
    (narrow, wider, past), (more, more_wider, more_past) = one, other
    share = gap / (gap + other_gap)
    rest = 1 - share
    narrow = share * share * narrow + rest * rest * more + 2 * share * rest * (1 + past * more_past)
    return make(Differing, (narrow, share * wider + rest * more_wider, math.sqrt(narrow)))


def of_both(left: tuple[float, Differing], right: tuple[float, Differing]) -> Differing:
    """Of streams that are made of the same parts: the mean."""
    (gap, one), (other_gap, other) = left, right
    share = gap / (gap + other_gap) if gap + other_gap else 0.5
    return Differing(*(share * part + (1 - share) * more for part, more in zip(one, other, strict=True)))


def of_tokens(x: Array) -> Differing:
    """Of (tokens, features) as they are.

    Of random tokens Σ⟨x̃, x̃'⟩² over all pairs is 1 + n/d times what it is of as many that are orthogonal.
    """
    n, width = x.shape
    x = x - x.mean(0)
    size = float((x * x).sum())
    ratio = float(((x @ x.T) ** 2).sum()) * (n - 1) / (size * size) if size else 1.0
    return Differing(max(0.0, ratio - 1) * width / n)


def repeated(same: float, width: int) -> Differing:
    """Of random rows, of which two tokens may have the same."""
    return Differing(1 + width * same / (1 - same) if same < 1 else 1.0)


def of_parts(squares: Array, parts: list[tuple[float, Differing]]) -> Differing:
    """Of a sum of parts that have nothing in common, each times the root of one of these."""
    gaps = squares * np.array([gap for gap, _ in parts])
    more = float(gaps**2 @ np.array([part.narrow - 1 for _, part in parts]))
    narrow = 1 + more / float(gaps.sum()) ** 2 if gaps.any() else 1.0
    return Differing(narrow, 1.0, math.sqrt(narrow))


def spread_in_common(left: tuple[Entry, Entry], right: tuple[Entry, Entry], q: Entry) -> Entry:
    """d · Var ‖x‖² / d² of a sum of that q, of two values' q and spread.

    Between that of independent values and that of one value taken twice, by their squared correlation.
    """
    (one, spread), (other, more) = left, right
    if vanishes(one) or vanishes(other):
        return spread + more
    together = (q - one - other) / 2
    common = between(0.0, together * together / (one * other), 1.0)
    still = 2 * one * one - spread + 2 * other * other - more
    apart = 1 - still / (2 * (one + other) ** 2)
    same = (spread / (one * one) + more / (other * other)) / 4
    return between(0.0, 2 * q * q * ((1 - common) * apart + common * same), math.inf)
