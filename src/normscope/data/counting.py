"""Counts of the words of any amount of text, in bounded memory."""

from collections import Counter
from collections.abc import Mapping

MOST_WORDS = 500_000
"""Different words that a vocabulary is learned from, the most frequent of them. The trainer of the tokenizers library
takes about 0.9 kB for each; text of people has its millionth word where it has some thousand million in all."""
MOST_LEARNED_FROM = 2**27
"""Words of text, repeated ones too, that a vocabulary is learned from; of more text, every n-th part is counted."""


class WordCounts:
    """Counts that are exact up to twice `MOST_WORDS` different words; beyond, the rarest are forgotten."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, counts: Mapping[str, int]) -> None:
        """Equal counts added in the same order give equal results."""
        self._counts.update(counts)
        if len(self._counts) > 2 * MOST_WORDS:
            self._counts = self.most()

    def most(self) -> Counter[str]:
        """The `MOST_WORDS` most frequent words, the first in code points' order among equal ones."""
        if len(self._counts) <= MOST_WORDS:
            return self._counts
        kept = sorted(self._counts, key=lambda word: (-self._counts[word], word))[:MOST_WORDS]
        return Counter({word: self._counts[word] for word in kept})


def counted_every(words: int) -> int:
    """n, where every n-th part of a text of so many words is counted; 1 for all."""
    return max(1, -(-words // MOST_LEARNED_FROM))
