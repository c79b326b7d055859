"""The second part of the work: parts of sentences become counts of words, and then token ids."""

import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..counting import WordCounts
from ..manifest import token_dtype
from ..parts import replace_part
from ..pool import in_order
from ..words import word_counts
from .learning import Kind, steps
from .reading import Part, fragments_of
from .tokeniser import TextTokeniser


@dataclass(frozen=True, slots=True)
class Asked:
    """A part, and which of its documents are held out. Documents are numbered over all parts of a split."""

    text: Path
    first: int
    """The number of the first that begins in the part; what is before that in it belongs to the one before."""
    held_out: frozenset[int]

    @property
    def ids(self) -> Path:
        """Where the part's token ids go."""
        return self.text.with_suffix(".ids")

    def sentences(self) -> tuple[list[str], list[int], dict[int, int]]:
        """All sentences, the number of the document of each, and number -> words of the part of that document."""
        sentences: list[str] = []
        numbers: list[int] = []
        words: dict[int, int] = {}
        number = self.first - 1
        for fragment in fragments_of(self.text):
            number += fragment.begins
            sentences += fragment.sentences
            numbers += [number] * len(fragment.sentences)
            words[number] = words.get(number, 0) + fragment.words
        return sentences, numbers, words


class Encoded(NamedTuple):
    """Token ids of what a part holds for one split; without sentences and documents that have none."""

    tokens: NDArray[np.integer]
    lengths: NDArray[np.int64]
    """Tokens of each sentence."""
    numbers: NDArray[np.int64]
    """Of each document with sentences here."""
    sentences: NDArray[np.int64]
    """Of each of those."""
    words: NDArray[np.int64]
    """(1,): of all documents, those without tokens too."""

    @classmethod
    def of(
        cls, tokens: NDArray[np.integer], lengths: NDArray[np.int64], numbers: NDArray[np.int64], words: int
    ) -> Self:
        """From the number of the document of every sentence."""
        told = lengths > 0
        found, counts = np.unique(numbers[told], return_counts=True)
        return cls(tokens, lengths[told], found, counts, np.array([words]))


def asked_of(parts: Sequence[Part], split: str, folder: Path, held_out: NDArray[np.int64]) -> list[Asked]:
    """The parts of a split. held_out: the numbers of its documents that are, in ascending order."""
    own = [part for part in parts if part.split == split]
    asked = []
    for part, end in zip(own, accumulate(part.documents for part in own), strict=True):
        first = end - part.documents
        within = held_out[np.searchsorted(held_out, first - 1) : np.searchsorted(held_out, end)]
        asked.append(Asked(folder / part.name, first, frozenset(within.tolist())))
    return asked


def counted(
    asked: Sequence[Asked], kind: Kind, lowercase: bool, processes: int, told: Callable[[int], None]
) -> Counter[str]:
    """How often each word of what is kept occurs. told: is called with the number of parts that are done."""
    counts = WordCounts()
    tasks = [_Count(one, kind, lowercase) for one in asked]
    for done, found in enumerate(in_order(_count, tasks, processes=processes), 1):
        counts.add(found)
        told(done)
    return counts.most()


def encode_parts(asked: Sequence[Asked], tokeniser: Path, processes: int, told: Callable[[int], None]) -> None:
    """Write the token ids of all parts that are not there yet. told: as of `counted`."""
    missing = [_Encode(one, tokeniser) for one in asked if not one.ids.exists()]
    encoded = zip(missing, in_order(_encode, missing, processes=processes), strict=True)
    for done, (task, content) in enumerate(encoded, 1 + len(asked) - len(missing)):
        replace_part(task.asked.text, task.asked.ids, content)
        told(done)


def encoded_of(asked: Asked) -> Iterator[Encoded]:
    """What `encode_parts` wrote: of what is kept, and of what is held out."""
    with np.load(asked.ids, allow_pickle=False) as arrays:
        for which in _WHICH:
            yield Encoded(*(arrays[f"{which}.{name}"] for name in Encoded._fields))


_WHICH = ("kept", "held_out")


class _Count(NamedTuple):
    asked: Asked
    kind: Kind
    lowercase: bool


def _count(task: _Count) -> Counter[str]:
    sentences, numbers, _ = task.asked.sentences()
    kept = (one for one, number in zip(sentences, numbers, strict=True) if number not in task.asked.held_out)
    return word_counts(kept, *steps(task.kind, task.lowercase))


class _Encode(NamedTuple):
    asked: Asked
    tokeniser: Path


def _encode(task: _Encode) -> bytes:
    asked, tokeniser = task.asked, _tokeniser(task.tokeniser)
    sentences, numbers, words = asked.sentences()
    tokens, lengths = tokeniser.encode_joined(sentences)
    numbers_S = np.array(numbers, dtype=np.int64)
    held_out_S = np.isin(numbers_S, list(asked.held_out))
    tokens = tokens.astype(token_dtype(len(tokeniser)))
    arrays: dict[str, Any] = {}
    for which, mask_S in zip(_WHICH, (~held_out_S, held_out_S), strict=True):
        count = sum(n for number, n in words.items() if (number in asked.held_out) == (which == "held_out"))
        found = Encoded.of(tokens[np.repeat(mask_S, lengths)], lengths[mask_S], numbers_S[mask_S], count)
        arrays |= {f"{which}.{name}": array for name, array in found._asdict().items()}
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


@lru_cache(maxsize=1)
def _tokeniser(path: Path) -> TextTokeniser:
    return TextTokeniser.load(path)
