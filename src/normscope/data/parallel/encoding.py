"""The second part of the work: parts of tokenised pairs become counts of words, and then token ids."""

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..counting import WordCounts
from ..manifest import token_dtype
from ..parts import replace_part
from ..pool import in_order
from .codec import Codec
from .corpus import SIDES
from .tokenising import Part, RawPair, pairs_of
from .vocabulary import EOS, Vocabulary


@dataclass(frozen=True, slots=True)
class Asked:
    """A part, and which of its pairs go to another split: those of numbers that `held_out_every` divides."""

    text: Path
    split: str
    before: int
    """Pairs in the parts before it."""
    held_out_every: int | None

    @property
    def ids(self) -> Path:
        """Where the part's token ids go."""
        return self.text.with_suffix(".ids")

    def pairs(self) -> Iterator[tuple[str, RawPair, RawPair]]:
        """Split, raw and tokenised pair."""
        every = self.held_out_every
        for number, (raw, pair) in enumerate(pairs_of(self.text), self.before + 1):
            yield "valid" if every and number % every == 0 else self.split, raw, pair


class Encoded(NamedTuple):
    """What a part holds of a split."""

    tokens: Mapping[str, NDArray[np.integer]]
    """Side -> the ids of all sentences, each with its EOS."""
    lengths: Mapping[str, NDArray[np.int64]]
    raw: Mapping[str, bytes]
    """Side -> lines as they were given, of what is no training text."""


def asked_of(parts: Sequence[Part], folder: Path, held_out_every: int | None) -> list[Asked]:
    """What is to be done for every part. held_out_every: of the training pairs."""
    asked = []
    for split in dict.fromkeys(part.split for part in parts):
        own = [part for part in parts if part.split == split]
        for part, end in zip(own, accumulate(part.kept for part in own), strict=True):
            every = held_out_every if split == "train" else None
            asked.append(Asked(folder / part.name, split, end - part.kept, every))
    return asked


def counted(asked: Sequence[Asked], processes: int, told: Callable[[int], None]) -> dict[str, Counter[str]]:
    """Side -> how often each word of the training pairs occurs. told: is called with the parts that are done."""
    counts = {side: WordCounts() for side in SIDES}
    for done, found in enumerate(in_order(_count, asked, processes=processes), 1):
        for side, words in zip(SIDES, found, strict=True):
            counts[side].add(words)
        told(done)
    return {side: words.most() for side, words in counts.items()}


def encode_parts(asked: Sequence[Asked], codec_folder: Path, processes: int, told: Callable[[int], None]) -> None:
    """Write the token ids of all parts that are not there yet. told: as of `counted`."""
    missing = [_Encode(one, codec_folder) for one in asked if not one.ids.exists()]
    encoded = zip(missing, in_order(_encode, missing, processes=processes), strict=True)
    for done, (task, content) in enumerate(encoded, 1 + len(asked) - len(missing)):
        replace_part(task.asked.text, task.asked.ids, content)
        told(done)


def encoded_of(asked: Asked) -> dict[str, Encoded]:
    """Split -> what `encode_parts` wrote of it."""
    found = {}
    with np.load(asked.ids, allow_pickle=False) as arrays:
        for split in dict.fromkeys(name.partition(".")[0] for name in arrays.files):
            tokens, lengths, raw = ({side: arrays[f"{split}.{side}.{kind}"] for side in SIDES} for kind in _KINDS)
            found[split] = Encoded(tokens, lengths, {side: lines.tobytes() for side, lines in raw.items()})
    return found


_KINDS = ("tokens", "lengths", "raw")


def _count(asked: Asked) -> tuple[Counter[str], Counter[str]]:
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for split, _, pair in asked.pairs():
        if split == "train":
            for side, line in zip(counts, pair, strict=True):
                side.update(line.split())
    return counts


class _Encode(NamedTuple):
    asked: Asked
    codec_folder: Path


def _encode(task: _Encode) -> bytes:
    asked, codec = task.asked, _codec(task.codec_folder)
    pairs: dict[str, list[tuple[RawPair, RawPair]]] = {}
    for split, raw, pair in asked.pairs():
        pairs.setdefault(split, []).append((raw, pair))
    arrays: dict[str, Any] = {}
    for split, several in pairs.items():
        for at, (side, form) in enumerate(zip(SIDES, (codec.source, codec.target), strict=True)):
            lines = "".join(raw[at] + "\n" for raw, _ in several) if split != "train" else ""
            found = (
                *_with_ends(form.vocabulary, [pair[at] for _, pair in several]),
                np.frombuffer(lines.encode(), "u1"),
            )
            arrays |= {f"{split}.{side}.{kind}": array for kind, array in zip(_KINDS, found, strict=True)}
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def _with_ends(vocabulary: Vocabulary, lines: Sequence[str]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """Ids of all lines with EOS behind each, and how many are of each."""
    tokens, lengths = vocabulary.encode_joined(lines)
    return np.insert(tokens, np.cumsum(lengths), EOS).astype(token_dtype(len(vocabulary))), lengths + 1


@lru_cache(maxsize=1)
def _codec(folder: Path) -> Codec:
    return Codec.load(folder)
