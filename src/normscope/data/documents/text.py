"""Texts of documents: paragraphs, sentences by the rules of Wikimedia's `sentencex`, and the parts
that are worked on.

A part is read as sentences, then counted as words, and encoded as token ids.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..folder import token_dtype
from ..preparation import TextPart
from ..sources import FIELD, TextLayout, has_records, source_bytes, texts_in
from ..words import word_counts
from .corpus import encoded_sentences
from .tokeniser import TextTokeniser, TokeniserKind, steps


def sentences_of(paragraph: str, language: str) -> list[str]:
    """Returns the sentences of a paragraph, without blanks at either end; none for a paragraph of
    blanks.

    language: two-letter code; languages that the library has no rules for are split by those of a
    related one.
    """
    import sentencex  # of the extra "train", which the options of `data` do without

    # A list from some versions of the library, a generator from others; every sentence keeps the
    # blanks behind it.
    pieces = (" ".join(piece.split()) for piece in sentencex.segment(language, paragraph))
    return [piece for piece in pieces if piece]


_TITLE = re.compile(r"= [^=](.*[^=])? =")
"""A section's has more signs: `= = Title = =`."""


def paragraphs_in(
    file: Path,
    layout: TextLayout,
    field: str = FIELD,
    told: Callable[[int], None] = lambda file_bytes: None,
) -> Iterator[tuple[bool, str]]:
    """Yield (whether a document begins with it, paragraph) of a file, without blanks at either end;
    none is empty.

    paragraphs: in text a paragraph a line, and a blank line between documents; in records, JSON
    lines or Parquet for instance, a document is the `field` of one. wikitext: a document begins
    with a line such as `= Title =` between blank ones, in text and over all records alike. Raises
    UserError for a file that cannot be read, with its line.
    """
    texts = (text for _, text in texts_in(file, field, told))
    if has_records(file) and layout == "paragraphs":
        for text in texts:
            begins = True
            for line in filter(None, map(str.strip, text.split("\n"))):
                yield begins, line
                begins = False
        return
    begins, before = True, ""
    lines = (line.strip() for text in texts for line in text.removesuffix("\n").split("\n"))
    for line, after in pairwise(chain(lines, [""])):
        # WikiText's tables have lines like titles, such as `= Played , W =`, but not between blank
        # lines.
        title = _TITLE.fullmatch(line) is not None and not before and not after
        if title if layout == "wikitext" else not line:
            begins = True
        if line:
            yield begins, line
            begins = False
        before = line


class _Fragment(NamedTuple):
    """The piece of a document that one part holds: all of it, or a stretch of a long one."""

    begins: bool
    """True where its first sentence is the document's; otherwise the part before has that
    sentence.
    """
    words: int
    """The number of words, as blanks separate them."""
    sentences: list[str]


def paragraphs_of(
    files: Sequence[Path], layout: TextLayout, field: str, told: Callable[[int], None], before: int
) -> Iterator[tuple[bool, str]]:
    """`paragraphs_in` each file, one after the other. told: called with how far all have been read,
    after `before`.
    """
    for file in files:
        yield from paragraphs_in(file, layout, field, lambda file_bytes: told(before + file_bytes))  # noqa: B023 (at once)
        before += source_bytes([file])
        told(before)


def split_paragraphs(
    layout: TextLayout, language: str, split: str, paragraphs: Sequence[tuple[bool, str]]
) -> tuple[dict[str, int], list[str]]:
    """Splits paragraphs into sentences; returns how many documents begin in a part and its words,
    and its lines: `_sentences` reads them.
    """
    fragments = _fragments(layout, language, paragraphs)
    lines: list[str] = []
    for one in fragments:
        lines += [f"{one.begins:d} {one.words} {len(one.sentences)}", *one.sentences]
    known = {
        "documents": sum(one.begins for one in fragments),
        "words": sum(one.words for one in fragments),
    }
    return known, lines


def documents_in(files: Iterable[Path], layout: TextLayout, language: str) -> list[_Fragment]:
    """Returns the documents of files, one after the other, as `paragraphs_in` finds them; a
    document ends with its file.

    Raises UserError for a file that cannot be read, with its line.
    """
    return [
        found
        for file in files
        for found in _fragments(layout, language, paragraphs_in(file, layout))
    ]


def _fragments(
    layout: TextLayout, language: str, paragraphs: Iterable[tuple[bool, str]]
) -> list[_Fragment]:
    """Splits the paragraphs of a part into sentences, document by document."""
    fragments: list[_Fragment] = []
    for begins, paragraph in paragraphs:
        if begins or not fragments:
            fragments.append(_Fragment(begins, 0, []))
        begun = fragments[-1]
        # WikiText's lines stay whole.
        begun.sentences.extend(
            [paragraph] if layout == "wikitext" else sentences_of(paragraph, language)
        )
        fragments[-1] = begun._replace(words=begun.words + len(paragraph.split()))
    return fragments


def _sentences(part: TextPart) -> tuple[list[str], list[int], Counter[int]]:
    """Returns all sentences of a part, the number of the document of each, and number -> words of
    the part of that document.
    """
    sentences = list[str]()
    numbers = list[int]()
    words = Counter[int]()
    lines = iter(part.path.read_bytes().decode().split("\n")[1:-1])
    number = part.first - 1
    for line in lines:
        begins, counted, size = map(int, line.split())
        number += begins
        sentences += islice(lines, size)
        numbers += [number] * size
        words[number] += counted
    return sentences, numbers, words


def count_part(kind: TokeniserKind, lowercase: bool, part: TextPart) -> tuple[Counter[str]]:
    """Counts each word in the documents of a part that are not held out."""
    sentences, numbers, _ = _sentences(part)
    kept = (
        one for one, number in zip(sentences, numbers, strict=True) if number not in part.held_out
    )
    return (word_counts(kept, *steps(kind, lowercase)),)


def encode_part(tokeniser_file: Path, part: TextPart) -> dict[str, NDArray[Any]]:
    """Returns the arrays of what a part keeps, and of what is held out of it, which is validation
    text.
    """
    tokeniser = _tokeniser(tokeniser_file)
    sentences, numbers, words = _sentences(part)
    tokens, lengths = tokeniser.encode_joined(sentences)
    numbers_S = np.array(numbers, dtype=np.int64)
    held_out_S = np.isin(numbers_S, list(part.held_out))
    tokens = tokens.astype(token_dtype(len(tokeniser)))
    arrays: dict[str, NDArray[Any]] = {}
    for held_out, split in ((False, part.split), *([(True, "valid")] if part.held_out else [])):
        mask_S = held_out_S == held_out
        count = sum(n for number, n in words.items() if (number in part.held_out) == held_out)
        found = encoded_sentences(
            tokens[np.repeat(mask_S, lengths)], lengths[mask_S], numbers_S[mask_S], count
        )
        arrays |= {f"{split}.{name}": array for name, array in found.items()}
    return arrays


_tokeniser = lru_cache(maxsize=1)(TextTokeniser.load)
