"""Parts of parallel text: tokenised pairs, some of them dropped, then counted as words, and encoded as token ids."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..folder import token_dtype
from ..preparation import ReadPart, TextPart
from ..sources.opening import texts_in
from ..text import prepare_pairs
from .codec import Codec
from .corpus import SIDES, EncodedPairs
from .preparation import PrepareConfig, drop_reason
from .vocabulary import EOS, Vocabulary

_RawPair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PairPart(TextPart):
    """A part, and which of its pairs go to the validation split: those of numbers that `held_out_every` divides."""

    before: int
    """Pairs in the parts before it."""
    held_out_every: int | None

    def pairs(self) -> Iterator[tuple[str, _RawPair, _RawPair]]:
        """Split, raw and tokenised pair."""
        every = self.held_out_every
        for number, (raw, pair) in enumerate(pairs_of(self.path), self.before + 1):
            yield "valid" if every and number % every == 0 else self.split, raw, pair


def pairs_in(source: Path, target: Path, config: PrepareConfig) -> Iterator[_RawPair]:
    """The raw pairs of two files."""
    # A line break inside a record's text is a blank: text to score against has a sentence a line.
    sides = (texts_in(file, field) for file, field in zip((source, target), config.named, strict=True))
    for (_, source_text), (_, target_text) in zip(*sides, strict=True):
        yield source_text.replace("\n", " "), target_text.replace("\n", " ")


def tokenise_pairs(config: PrepareConfig, split: str, pairs: Sequence[_RawPair]) -> tuple[dict[str, Any], list[str]]:
    """How many pairs a part was read from, keeps and drops for which reason, and its lines: `pairs_of` reads them."""
    dropped: Counter[str] = Counter()
    lines: list[str] = []
    for raw, pair in zip(pairs, prepare_pairs(*config.forms(), pairs), strict=True):
        reason = drop_reason(*pair, config) if split == "train" else None
        if reason:
            dropped[reason] += 1
        else:
            lines += [*raw, *pair]
    return {"read": len(pairs), "kept": len(lines) // 4, "dropped": dict(dropped)}, lines


def pairs_of(path: Path) -> Iterator[tuple[_RawPair, _RawPair]]:
    """Raw and tokenised pairs of a part."""
    lines = path.read_bytes().decode().split("\n")[1:-1]
    for at in range(0, len(lines), 4):
        yield (lines[at], lines[at + 1]), (lines[at + 2], lines[at + 3])


def pair_parts(parts: Sequence[ReadPart], held_out_every: int | None) -> list[PairPart]:
    """The parts split by split. held_out_every: of the training pairs."""
    made = []
    for split in dict.fromkeys(split for _, split, _ in parts):
        own = [(path, known["kept"]) for path, name, known in parts if name == split]
        every = held_out_every if split == "train" else None
        for (path, kept), end in zip(own, accumulate(kept for _, kept in own), strict=True):
            made.append(PairPart(path, split, end - kept, every))
    return made


def count_part(part: PairPart) -> tuple[Counter[str], Counter[str]]:
    """How often each word of source and target occurs in the training pairs of a part."""
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for split, _, pair in part.pairs():
        if split == "train":
            for side, line in zip(counts, pair, strict=True):
                side.update(line.split())
    return counts


_KINDS = ("tokens", "lengths", "raw")


def encode_part(codec_folder: Path, part: PairPart) -> dict[str, NDArray[Any]]:
    """The arrays of each split that a part holds pairs of, by the codec in that folder."""
    codec = _codec(codec_folder)
    pairs: dict[str, list[tuple[_RawPair, _RawPair]]] = {}
    for split, raw, pair in part.pairs():
        pairs.setdefault(split, []).append((raw, pair))
    arrays: dict[str, NDArray[Any]] = {}
    for split, several in pairs.items():
        for at, (side, form) in enumerate(zip(SIDES, (codec.source, codec.target), strict=True)):
            lines = "".join(raw[at] + "\n" for raw, _ in several) if split != "train" else ""
            tokens, lengths = _with_ends(form.vocabulary, [pair[at] for _, pair in several])
            found = tokens, lengths, np.frombuffer(lines.encode(), "u1")
            arrays |= {f"{split}.{side}.{kind}": array for kind, array in zip(_KINDS, found, strict=True)}
    return arrays


def encoded_in(part: PairPart, arrays: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, EncodedPairs]]:
    """Split -> what a part's arrays hold of it."""
    for split in dict.fromkeys(name.partition(".")[0] for name in arrays):
        tokens, lengths, raw = ({side: arrays[f"{split}.{side}.{kind}"] for side in SIDES} for kind in _KINDS)
        yield split, EncodedPairs(tokens, lengths, {side: lines.tobytes() for side, lines in raw.items()})


def _with_ends(vocabulary: Vocabulary, lines: Sequence[str]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """Ids of all lines with EOS behind each, and how many are of each."""
    tokens, lengths = vocabulary.encode_joined(lines)
    return np.insert(tokens, np.cumsum(lengths), EOS).astype(token_dtype(len(vocabulary))), lengths + 1


@lru_cache(maxsize=1)
def _codec(folder: Path) -> Codec:
    return Codec.load(folder)
