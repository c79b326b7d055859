"""A prepared corpus: token ids of parallel splits, the codec that made them, and raw text to score
against.

A corpus folder holds `corpus.json` (SHA-256 of every file, how it was made), the files of the
codec, and for each split `<split>.<side>.tokens` (all sentences end to end, each with its EOS) and
`<split>.<side>.offsets` (where each begins, and the end); every split but train has its raw lines
in `<split>.<side>.txt`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import user_errors
from ..folder import OFFSET_DTYPE, array_digest, fingerprint, mapped, open_manifest, token_dtype
from .codec import Codec, CodecSide

FORMAT, VERSION = "normscope-corpus", 2
SIDES = ("source", "target")


@dataclass(frozen=True, eq=False)
class TokenArray:
    """Sentences end to end: sentence i is tokens[offsets[i] : offsets[i + 1]] and ends with EOS."""

    tokens: NDArray[Any]
    offsets: NDArray[Any]
    """One more than there are sentences; the first is 0."""

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int]], *, vocabulary_size: int) -> Self:
        """Makes an array in memory, from ids that end with EOS."""
        rows = [np.asarray(sentence, dtype=token_dtype(vocabulary_size)) for sentence in sentences]
        tokens = np.concatenate(rows) if rows else np.empty(0, dtype=token_dtype(vocabulary_size))
        return cls(tokens, np.cumsum([0, *map(len, rows)], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> NDArray[Any]:
        """Ids of sentence i, a view. Raises IndexError outside 0 to len - 1."""
        if not 0 <= i < len(self):
            raise IndexError(f"sentence {i} of {len(self)}")
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sentence, EOS included."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class Split:
    """Sentence i of `source` belongs to sentence i of `target`."""

    source: TokenArray
    target: TokenArray
    raw_source: Path | Sequence[str] | None = None
    """Lines as they were given, or the file that holds them; None for the training split."""
    raw_target: Path | Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def reversed(self) -> "Split":
        """Returns the same pairs with source and target in each other's place."""
        return Split(self.target, self.source, self.raw_target, self.raw_source)

    @cached_property
    def source_text(self) -> list[str]:
        """Raw source lines, read when first asked for. Raises ValueError where none were kept
        (train).
        """
        return _raw_lines(self.raw_source)

    @cached_property
    def target_text(self) -> list[str]:
        """Raw target lines, the references for BLEU; as `source_text`."""
        return _raw_lines(self.raw_target)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Made by `open` or `in_memory`."""

    codec: Codec
    fingerprint: str
    """SHA-256 over token ids, offsets and vocabularies: equal for equal training data, wherever it
    lies.
    """
    splits: Mapping[str, Split]
    preparation: Mapping[str, Any]
    """The record of how the corpus was made, as its maker noted it; empty in memory."""

    @property
    def source(self) -> CodecSide:
        return self.codec.source

    @property
    def target(self) -> CodecSide:
        return self.codec.target

    @classmethod
    def in_memory(cls, codec: Codec, splits: Mapping[str, Split]) -> Self:
        """Returns a corpus without a folder; its fingerprint is that of the same corpus on the
        disk.
        """
        digests = codec.vocabulary_digests()
        for name, split in splits.items():
            for side in SIDES:
                coded, dtype = (
                    getattr(split, side),
                    token_dtype(len(getattr(codec, side).vocabulary)),
                )
                digests[f"{name}.{side}.tokens"] = array_digest(coded.tokens, dtype)
                digests[f"{name}.{side}.offsets"] = array_digest(coded.offsets, OFFSET_DTYPE)
        return cls(codec, fingerprint(digests), dict(splits), {})

    @classmethod
    def of_lines(
        cls, codec: Codec, lines: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    ) -> Self:
        """Makes a corpus in memory, from raw lines: split name -> (source lines, target lines); no
        line is left out.
        """
        splits = {}
        for name, raw in lines.items():
            sides = []
            for side, text in zip((codec.source, codec.target), raw, strict=True):
                encoded = (ids.tolist() for ids in side.encode(text))
                sides.append(TokenArray.of(encoded, vocabulary_size=len(side.vocabulary)))
            source, target = sides
            splits[name] = Split(source, target, *(raw if name != "train" else ()))
        return cls.in_memory(codec, splits)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a prepared corpus; token ids stay on the disk and are mapped into memory.

        Every file is read once and its SHA-256 compared. Raises UserError for a folder that is no
        corpus, or one that is incomplete, damaged or of another version.
        """
        names, noted, preparation = open_manifest(
            folder, format_name=FORMAT, version=VERSION, made_by="`normscope data prepare`"
        )
        codec = Codec.load(folder)
        splits = {name: _open_split(folder, name, codec) for name in names}
        return cls(codec, noted, splits, preparation)

    def reversed(self) -> Self:
        """Returns the same pairs in the other direction: what was source is target.

        Its fingerprint is that of a corpus prepared in that direction with these vocabularies.
        """
        codec = Codec(source=self.target, target=self.source, joint=self.codec.joint)
        splits = {name: split.reversed() for name, split in self.splits.items()}
        found = type(self).in_memory(codec, splits)
        return replace(found, preparation=self.preparation)


def _open_split(folder: Path, name: str, codec: Codec) -> Split:
    source, target = (
        TokenArray(
            tokens=mapped(folder / f"{name}.{side}.tokens", token_dtype(len(form.vocabulary))),
            offsets=mapped(folder / f"{name}.{side}.offsets", OFFSET_DTYPE),
        )
        for side, form in zip(SIDES, (codec.source, codec.target), strict=True)
    )
    raw = (folder / f"{name}.{side}.txt" for side in SIDES)
    return Split(source, target, *(file if file.exists() else None for file in raw))


def _raw_lines(raw: Path | Sequence[str] | None) -> list[str]:
    if raw is None:
        raise ValueError("this split keeps no raw text; validation and test splits do")
    if not isinstance(raw, Path):
        return list(raw)
    with user_errors(
        OSError,
        said=lambda error: f"{raw}: cannot be read ({error.strerror}); prepare the corpus again",
    ):
        # Not `splitlines`: a line may hold U+2028 and other characters that it would split at.
        return raw.read_bytes().decode("utf-8").split("\n")[:-1]
