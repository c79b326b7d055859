"""The base of both kinds of vocabulary: counts of words, and a file of the tokenizers library."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import BpeTrainer

from ..errors import UserError
from ..limits.reading import read_text

_TEXTS_AT_ONCE = 1000


def words_of(text: str) -> list[str]:
    """Returns the words of a text, each with the blank before it, which joined give the text.

    Both kinds of tokenisers split a text before any single blank, whatever stands around it. Of
    several in a row they do not split each, so that a text with other white space is one word.
    """
    if " ".join(text.split()) != text:
        return [text]
    return text.replace(" ", "\n ").split("\n")


def word_counts(texts: Iterable[str], normalizer: Any, splitter: Any) -> Counter[str]:
    """Counts each word of the tokenizers library's own splitting: its trainers count the same."""
    spelt = Counter(word for text in texts for word in words_of(text))
    counts: Counter[str] = Counter()
    for word, count in spelt.items():
        for piece, _ in splitter.pre_tokenize_str(normalizer.normalize_str(word)):
            counts[piece] += count
    return counts


MOST_WORDS = 500_000
"""Different words that a vocabulary is learned from, the most frequent of them. The trainer of the
tokenizers library takes about 0.9 kB for each; text of people has its millionth word where it has
some thousand million in all."""
MOST_LEARNED_FROM = 2**27
"""Words of text, repeated ones too, that a vocabulary is learned from; of more text, every n-th
part is counted.
"""


def added(counts: Counter[str], more: Counter[str]) -> Counter[str]:
    """Returns the counts, which are added to; exact up to twice `MOST_WORDS` different words, and
    the rarest forgotten beyond.

    Equal counts added in the same order give equal results.
    """
    counts.update(more)
    return most_frequent(counts) if len(counts) > 2 * MOST_WORDS else counts


def most_frequent(counts: Counter[str]) -> Counter[str]:
    """Returns the `MOST_WORDS` most frequent words, the first in code points' order among equal
    ones.
    """
    if len(counts) <= MOST_WORDS:
        return counts
    kept = sorted(counts, key=lambda word: (-counts[word], word))[:MOST_WORDS]
    return Counter({word: counts[word] for word in kept})


def counted_every(words: int) -> int:
    """n, where every n-th part of a text of so many words is counted; 1 for all."""
    return max(1, -(-words // MOST_LEARNED_FROM))


# As subword-nmt's learn_bpe, which the paper's recipe uses: a merge seen once is a memorised word.
_MIN_PAIR_COUNT = 2


def trained(
    model: BPE, texts: Iterator[str], size: int, special: list[str], **settings: Any
) -> Tokenizer:
    """Returns a tokenizer of words between blanks, with merges learned from texts: of `size`
    entries, or as many as they give.

    special: the first entries, which are not merged. settings: others of `BpeTrainer`.
    """
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = WhitespaceSplit()
    trainer = BpeTrainer(
        vocab_size=size,
        min_frequency=_MIN_PAIR_COUNT,
        special_tokens=special,
        show_progress=False,
        **settings,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def refuse_fewer(tokenizer: Tokenizer, size: int) -> None:
    """Raise UserError where the text has not given `size` entries."""
    largest = tokenizer.get_vocab_size()
    if largest < size:
        raise UserError(
            f"vocabulary size {size} is more than this text allows: at most {largest} entries can "
            f"be learned from it; ask for {largest} or fewer, or give more text"
        )


class TokenizerFile(ABC):
    """A tokenizer of the tokenizers library, which one `tokenizer.json` holds."""

    noun: ClassVar[str]
    unusable: ClassVar[str]
    """The words about a file that holds none, before and behind the reason."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Wraps a tokenizer of the tokenizers library. Raises ValueError for one of another
        kind.
        """
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote. Raises UserError for a file that is missing, damaged, or of
        another kind.
        """
        try:
            return cls(Tokenizer.from_str(read_text(path)))
        except OSError as error:
            raise UserError(f"{path}: cannot read the {cls.noun} ({error.strerror})") from error
        except Exception as error:  # tokenizers raises bare Exception for malformed JSON
            raise UserError(f"{path}: {cls.unusable.format(error)}") from error

    @abstractmethod
    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text."""

    def encode_joined(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the ids of all texts as of `encode_many`, end to end, and how many are of
        each.
        """
        rows = [
            np.array(ids, dtype=np.int64)
            for begin in range(0, len(texts), _TEXTS_AT_ONCE)
            for ids in self.encode_many(texts[begin : begin + _TEXTS_AT_ONCE])
        ]
        joined = np.concatenate([np.empty(0, dtype=np.int64), *rows])
        return joined, np.array([len(row) for row in rows], dtype=np.int64)

    def save(self, path: Path) -> None:
        """Write the `tokenizer.json`; equal tokenizers give equal bytes."""
        path.write_text(self.to_json(), encoding="utf-8", newline="\n")

    def to_json(self) -> str:
        """Returns the text that `save` writes."""
        return str(self._tokenizer.to_str(pretty=False))


_WORDS_A_STRING = 1000


def repeated(counts: Mapping[str, int], longest: int | None = None) -> Iterator[str]:
    """Text in which each word stands as often as counted: trainers take text, not counts.

    longest: words stand there in pieces of so many characters, since a trainer's time grows with
    the square of a word's length.
    """
    for word, count in counts.items():
        size = longest or len(word)
        pieces = " ".join(word[at : at + size] for at in range(0, len(word), size)) + " "
        whole, rest = divmod(count, _WORDS_A_STRING)
        for repeats in [*([_WORDS_A_STRING] * whole), rest]:
            yield pieces * repeats
