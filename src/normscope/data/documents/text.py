"""Texts to paragraphs, and paragraphs to documents of sentences, split by the rules of Wikimedia's `sentencex`."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal

from ..sources.lines import Position
from ..sources.opening import FIELD, has_records, texts_in


def sentences_of(paragraph: str, language: str) -> list[str]:
    """The sentences of a paragraph, without blanks at either end; none for a paragraph of blanks.

    language: two-letter code; languages that the library has no rules for are split by those of a related one.
    """
    import sentencex  # of the extra "train", which the options of `data` do without

    # A list from some versions of the library, a generator from others; every sentence keeps the blanks behind it.
    pieces = (" ".join(piece.split()) for piece in sentencex.segment(language, paragraph))
    return [piece for piece in pieces if piece]


TextLayout = Literal["paragraphs", "wikitext"]

_TITLE = re.compile(r"= [^=](.*[^=])? =")
"""A section's has more signs: `= = Title = =`."""


@dataclass(frozen=True, slots=True)
class TextDocument:
    """One document of a file."""

    sentences: tuple[str, ...]
    words: int
    """As blanks part them."""


def paragraphs_in(
    file: Path, layout: TextLayout, field: str = FIELD, position: Position | None = None
) -> Iterator[tuple[bool, str]]:
    """Yield (whether a document begins with it, paragraph) of a file, without blanks at either end; none is empty.

    paragraphs: in text a paragraph a line, and a blank line between documents; in records, JSON lines or Parquet for
    instance, a document is the `field` of one. wikitext: a document begins with a line such as `= Title =` between
    blank ones, in text and over all records alike. Raises UserError for a file that cannot be read, with its line.
    """
    texts = (text for _, text in texts_in(file, field, position))
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
        # WikiText's tables have lines like titles, such as `= Played , W =`, but not between blank lines.
        title = _TITLE.fullmatch(line) is not None and not before and not after
        if title if layout == "wikitext" else not line:
            begins = True
        if line:
            yield begins, line
            begins = False
        before = line


def documents_in(files: Iterable[Path], layout: TextLayout, language: str) -> Iterator[TextDocument]:
    """The documents of files, one after the other, as `paragraphs_in` finds them; a document ends with its file.

    Raises UserError for a file that cannot be read, with its line.
    """
    for file in files:
        begun: list[str] = []
        for begins, paragraph in paragraphs_in(file, layout):
            if begins and begun:
                yield _document(begun, layout, language)
                begun = []
            begun.append(paragraph)
        if begun:
            yield _document(begun, layout, language)


def sentences_in(paragraph: str, layout: TextLayout, language: str) -> list[str]:
    """The sentences of a paragraph; WikiText's lines stay whole."""
    return [paragraph] if layout == "wikitext" else sentences_of(paragraph, language)


def _document(paragraphs: Sequence[str], layout: TextLayout, language: str) -> TextDocument:
    sentences = [sentence for paragraph in paragraphs for sentence in sentences_in(paragraph, layout, language)]
    return TextDocument(tuple(sentences), sum(len(paragraph.split()) for paragraph in paragraphs))
