"""Masked language modelling: which tokens are masked, and by what, as a pure function of (seed, epoch, index)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..order import raw_bits

_MASKS = 3
"""Keeps these random numbers apart from those of other uses of the same seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingConfig:
    """How many tokens are masked, and how (Devlin et al. 2018, section 3.1, task 1)."""

    masked_share: float = 0.15
    """Of a sequence's tokens, special ones counted but never chosen; at least one."""
    mask_share: float = 0.8
    """Of those: become [MASK]."""
    random_share: float = 0.1
    """Of those: become a random token. The rest stay as they are."""
    whole_words: bool = False
    """Hide whole words, not single tokens."""

    def __post_init__(self) -> None:
        if not 0 < self.masked_share < 1:
            raise ValueError(f"masked_share must lie between 0 and 1, got {self.masked_share}")
        if min(self.mask_share, self.random_share) < 0 or self.mask_share + self.random_share > 1:
            raise ValueError(
                f"mask_share and random_share must be 0 or more and at most 1 together, got {self.mask_share} and "
                f"{self.random_share}"
            )


class Masked(NamedTuple):
    """A sequence of T tokens of which M are to be predicted."""

    tokens_T: NDArray[np.int64]
    positions_M: NDArray[np.int64]
    """In ascending order."""
    targets_M: NDArray[np.int64]
    """What stood there."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Masker:
    """Hides tokens of sequences over one vocabulary."""

    config: MaskingConfig
    mask_id: int
    special_ids: frozenset[int]
    """Never masked."""
    regular_ids: NDArray[np.int64]
    """What random tokens are drawn from."""
    begins_word_V: NDArray[np.bool_]

    def mask(self, tokens_T: NDArray[np.int64], *, seed: int, epoch: int, index: int) -> Masked:
        """The sequence with tokens masked; the same arguments mask the same ones in every process.

        index: the sequence's number in its packing.
        """
        length = len(tokens_T)
        bits = raw_bits(3 * length, seed, epoch, index, _MASKS)
        order, how, which = bits[:length], bits[length : 2 * length], bits[2 * length :]
        maskable = np.flatnonzero(~np.isin(tokens_T, list(self.special_ids)))
        wanted = min(max(1, round(length * self.config.masked_share)), len(maskable))
        shuffled = maskable[np.argsort(order[maskable], kind="stable")]
        chosen = self._words(tokens_T, maskable, shuffled, wanted) if self.config.whole_words else shuffled[:wanted]
        positions = np.sort(chosen)
        targets, masked = tokens_T[positions], tokens_T.copy()
        share = _uniform(how[positions])
        random = self.regular_ids[(_uniform(which[positions]) * len(self.regular_ids)).astype(np.int64)]
        becomes_mask = share < self.config.mask_share
        becomes_random = ~becomes_mask & (share < self.config.mask_share + self.config.random_share)
        masked[positions] = np.where(becomes_mask, self.mask_id, np.where(becomes_random, random, targets))
        return Masked(masked, positions, targets)

    def _words(
        self,
        tokens_T: NDArray[np.int64],
        maskable: NDArray[np.int64],
        shuffled: NDArray[np.int64],
        wanted: int,
    ) -> NDArray[np.int64]:
        """Whole words in random order, passing over one that would make it more than `wanted` tokens.

        Where every word is longer than that, the first token drawn alone: a sequence always has something to tell.
        """
        # A word begins at its mark, and anew behind a special token: a sentence cut short may begin inside one.
        begins = self.begins_word_V[tokens_T[maskable]] | (np.diff(maskable, prepend=-2) > 1)
        word_of = dict(zip(maskable.tolist(), np.cumsum(begins).tolist(), strict=True))
        words: dict[int, list[int]] = {}
        for position, word in word_of.items():
            words.setdefault(word, []).append(position)
        chosen: list[int] = []
        for word in dict.fromkeys(word_of[position] for position in shuffled.tolist()):
            if len(chosen) + len(words[word]) <= wanted:
                chosen += words[word]
        return np.array(chosen or shuffled[:1].tolist(), dtype=np.int64)


def _uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """In [0, 1): the upper 53 bits, as `random.random` makes its numbers."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
