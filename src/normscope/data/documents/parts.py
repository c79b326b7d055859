"""Parts of a text of documents: read as sentences, then counted as words, and encoded as token ids."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..folder import token_dtype
from ..preparation import ReadPart, TextPart
from ..sources.lines import Position
from ..sources.opening import source_bytes
from ..words import word_counts
from .corpus import EncodedSentences
from .text import TextLayout, paragraphs_in, sentences_in
from .tokeniser import TextTokeniser, TokeniserKind, steps


class Fragment(NamedTuple):
    """What one part holds of a document: all of it, or a stretch of a long one."""

    begins: bool
    """Whether its first sentence is the document's; otherwise the part before has that."""
    words: int
    """As blanks part them."""
    sentences: list[str]


@dataclass(frozen=True, slots=True)
class DocumentPart(TextPart):
    """A part, and which of its documents are held out. Documents are numbered over all parts of a split."""

    first: int
    """The number of the first that begins in the part; what is before that in it belongs to the one before."""
    held_out: frozenset[int]

    def sentences(self) -> tuple[list[str], list[int], dict[int, int]]:
        """All sentences, the number of the document of each, and number -> words of the part of that document."""
        sentences: list[str] = []
        numbers: list[int] = []
        words: dict[int, int] = {}
        number = self.first - 1
        for fragment in fragments_in(self.path):
            number += fragment.begins
            sentences += fragment.sentences
            numbers += [number] * len(fragment.sentences)
            words[number] = words.get(number, 0) + fragment.words
        return sentences, numbers, words


def paragraphs_of(files: Sequence[Path], layout: TextLayout, field: str, done: Position) -> Iterator[tuple[bool, str]]:
    """`paragraphs_in` each file, one after the other. done: is kept at how far all have been read."""
    for file in files:
        position, before = Position(), done.file_bytes
        for paragraph in paragraphs_in(file, layout, field, position):
            done.file_bytes = before + position.file_bytes
            yield paragraph
        done.file_bytes = before + source_bytes([file])


def split_paragraphs(
    layout: TextLayout, language: str, split: str, paragraphs: Sequence[tuple[bool, str]]
) -> tuple[dict[str, int], list[str]]:
    """How many documents begin in a part and its words, and its lines: `fragments_in` reads them."""
    fragments: list[Fragment] = []
    for begins, paragraph in paragraphs:
        if begins or not fragments:
            fragments.append(Fragment(begins, 0, []))
        begun = fragments[-1]
        begun.sentences.extend(sentences_in(paragraph, layout, language))
        fragments[-1] = begun._replace(words=begun.words + len(paragraph.split()))
    lines: list[str] = []
    for one in fragments:
        lines += [f"{one.begins:d} {one.words} {len(one.sentences)}", *one.sentences]
    known = {"documents": sum(one.begins for one in fragments), "words": sum(one.words for one in fragments)}
    return known, lines


def fragments_in(path: Path) -> Iterator[Fragment]:
    """What a part holds, in order."""
    lines = iter(path.read_bytes().decode().split("\n"))
    next(lines)
    for line in lines:
        if line:
            begins, words, sentences = map(int, line.split())
            yield Fragment(bool(begins), words, [next(lines) for _ in range(sentences)])


def document_parts(parts: Sequence[ReadPart], held_out: Mapping[str, NDArray[np.int64]]) -> list[DocumentPart]:
    """The parts split by split. held_out: split -> numbers of its documents that are, in ascending order."""
    made = []
    for split in dict.fromkeys(split for _, split, _ in parts):
        own = [(path, known["documents"]) for path, name, known in parts if name == split]
        numbers = held_out.get(split, np.empty(0, dtype=np.int64))
        for (path, documents), end in zip(own, accumulate(documents for _, documents in own), strict=True):
            first = end - documents
            within = numbers[np.searchsorted(numbers, first - 1) : np.searchsorted(numbers, end)]
            made.append(DocumentPart(path, split, first, frozenset(within.tolist())))
    return made


def count_part(kind: TokeniserKind, lowercase: bool, part: DocumentPart) -> tuple[Counter[str]]:
    """How often each word occurs in the documents of a part that are not held out."""
    sentences, numbers, _ = part.sentences()
    kept = (one for one, number in zip(sentences, numbers, strict=True) if number not in part.held_out)
    return (word_counts(kept, *steps(kind, lowercase)),)


def encode_part(tokeniser_file: Path, part: DocumentPart) -> dict[str, NDArray[Any]]:
    """The arrays of what a part keeps, and of what is held out of it."""
    tokeniser = _tokeniser(tokeniser_file)
    sentences, numbers, words = part.sentences()
    tokens, lengths = tokeniser.encode_joined(sentences)
    numbers_S = np.array(numbers, dtype=np.int64)
    held_out_S = np.isin(numbers_S, list(part.held_out))
    tokens = tokens.astype(token_dtype(len(tokeniser)))
    arrays: dict[str, NDArray[Any]] = {}
    for which, mask_S in (("kept", ~held_out_S), ("held_out", held_out_S)):
        count = sum(n for number, n in words.items() if (number in part.held_out) == (which == "held_out"))
        found = EncodedSentences.of(tokens[np.repeat(mask_S, lengths)], lengths[mask_S], numbers_S[mask_S], count)
        arrays |= {f"{which}.{name}": array for name, array in found._asdict().items()}
    return arrays


def encoded_in(part: DocumentPart, arrays: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, EncodedSentences]]:
    """Split -> what a part's arrays hold of it; what is held out is validation text."""
    for which, split in (("kept", part.split), *([("held_out", "valid")] if part.held_out else [])):
        yield split, EncodedSentences(*(arrays[f"{which}.{name}"] for name in EncodedSentences._fields))


@lru_cache(maxsize=1)
def _tokeniser(path: Path) -> TextTokeniser:
    return TextTokeniser.load(path)
