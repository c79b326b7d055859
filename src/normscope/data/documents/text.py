"""Text files to documents of sentences."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal

from ..lines import read_lines
from .sentences import sentences_of

Layout = Literal["paragraphs", "wikitext"]

_TITLE = re.compile(r"= [^=](.*[^=])? =")
"""A section's has more signs: `= = Title = =`."""


@dataclass(frozen=True, slots=True)
class TextDocument:
    """One document of a file."""

    sentences: tuple[str, ...]
    words: int
    """As blanks part them."""


def documents_in(files: Iterable[Path], layout: Layout, language: str) -> Iterator[TextDocument]:
    """The documents of text files, one after the other; those without text are left out.

    paragraphs: a paragraph a line, which is split into sentences, and a blank line between documents. wikitext: a
    document begins with a line such as `= Title =` between blank ones, and its lines, tokenised already, stay whole. A
    document ends with its file. Raises UserError for a file that cannot be read, with its line.
    """
    for file in files:
        begun: list[str] = []
        before = ""
        for line, after in pairwise(chain((line.strip() for _, line in read_lines(file)), [""])):
            # WikiText's tables have lines like titles, such as `= Played , W =`, but not between blank lines.
            title = _TITLE.fullmatch(line) is not None and not before and not after
            if begun and (title if layout == "wikitext" else not line):
                yield _document(begun, layout, language)
                begun = []
            if line:
                begun.append(line)
            before = line
        if begun:
            yield _document(begun, layout, language)


def _document(paragraphs: Sequence[str], layout: Layout, language: str) -> TextDocument:
    if layout == "wikitext":
        sentences = list(paragraphs)
    else:
        sentences = [sentence for paragraph in paragraphs for sentence in sentences_of(paragraph, language)]
    return TextDocument(tuple(sentences), sum(len(paragraph.split()) for paragraph in paragraphs))
