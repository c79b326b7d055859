"""The first part of the work: texts of any length become parts of sentences on the disk."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...errors import UserError
from ..parts import cut, note_parts, noted_parts, write_part
from ..pool import in_order
from ..sources.opening import source_bytes
from ..unpacking import Position
from .preparation import DocumentsConfig
from .text import Layout, paragraphs_in, sentences_in


class Fragment(NamedTuple):
    """What one part holds of a document: all of it, or a stretch of a long one."""

    begins: bool
    """Whether its first sentence is the document's; otherwise the part before has that."""
    words: int
    """As blanks part them."""
    sentences: list[str]


@dataclass(frozen=True, slots=True)
class Part:
    """A file of sentences, and what is known of it when all parts are made."""

    name: str
    split: str
    documents: int
    """That begin in it."""
    words: int


@dataclass(frozen=True, slots=True)
class _Split:
    """Paragraphs to be split into sentences, and where they go; none where the part is there already."""

    path: Path
    split: str
    layout: Layout
    language: str
    paragraphs: Sequence[tuple[bool, str]] | None


def read_parts(config: DocumentsConfig, folder: Path, told: Callable[[int, int], None]) -> list[Part]:
    """Make the parts of all splits that are not there yet. told: is called with bytes read, and bytes in all.

    Raises UserError for what cannot be read, a split without text, and fewer than two documents to train on.
    """
    noted = noted_parts(folder)
    if noted is not None:
        return [Part(*part) for part in noted]
    files = [file for several in config.splits.values() for file in several]
    total = max(source_bytes(files), 1)
    done = Position()
    parts = []
    for part, content in in_order(_split_part, _parts_to_split(config, folder, done), processes=config.processes):
        if content:
            write_part(folder / part.name, content)
        parts.append(part)
        told(min(done.file_bytes, total - 1), total)
    told(total, total)
    _check(config, parts)
    note_parts(folder, [[part.name, part.split, part.documents, part.words] for part in parts])
    return parts


def fragments_of(path: Path) -> Iterator[Fragment]:
    """What a part holds, in order."""
    lines = iter(path.read_bytes().decode().split("\n"))
    next(lines)
    for line in lines:
        if line:
            begins, words, sentences = map(int, line.split())
            yield Fragment(bool(begins), words, [next(lines) for _ in range(sentences)])


def _parts_to_split(config: DocumentsConfig, folder: Path, done: Position) -> Iterator[_Split]:
    """done: how far all files have been read, one after the other."""
    for split, files in config.splits.items():
        paragraphs = _paragraphs(files, config, done)
        for number, part in enumerate(cut(paragraphs, lambda paragraph: len(paragraph[1]))):
            path = folder / f"{split}-{number:07d}.text"
            yield _Split(path, split, config.layout, config.language, None if path.exists() else part)


def _paragraphs(files: Sequence[Path], config: DocumentsConfig, done: Position) -> Iterator[tuple[bool, str]]:
    for file in files:
        position, before = Position(), done.file_bytes
        for paragraph in paragraphs_in(file, config.layout, config.field, position):
            done.file_bytes = before + position.file_bytes
            yield paragraph
        done.file_bytes = before + source_bytes([file])


def _split_part(asked: _Split) -> tuple[Part, bytes]:
    """A part and what its file is to hold, nothing where it is there already.

    The first line says what it holds in all, so that a part that is there need not be read.
    """
    if asked.paragraphs is None:
        with asked.path.open(encoding="utf-8") as file:
            documents, words = json.loads(file.readline())
        return Part(asked.path.name, asked.split, documents, words), b""
    fragments: list[Fragment] = []
    for begins, paragraph in asked.paragraphs:
        if begins or not fragments:
            fragments.append(Fragment(begins, 0, []))
        begun = fragments[-1]
        begun.sentences.extend(sentences_in(paragraph, asked.layout, asked.language))
        fragments[-1] = begun._replace(words=begun.words + len(paragraph.split()))
    documents, words = sum(one.begins for one in fragments), sum(one.words for one in fragments)
    lines = [json.dumps([documents, words])]
    for one in fragments:
        lines += [f"{one.begins:d} {one.words} {len(one.sentences)}", *one.sentences]
    content = "".join(line + "\n" for line in lines).encode()
    return Part(asked.path.name, asked.split, documents, words), content


def _check(config: DocumentsConfig, parts: Sequence[Part]) -> None:
    for split, files in config.splits.items():
        if not any(part.split == split for part in parts):
            raise UserError(f"{files[0]}: no text in it; give a paragraph a line, and a blank line between documents")
    if documents_in_all(parts)["train"] < 2:
        raise UserError(
            f"{config.splits['train'][0]}: only one document; at least 2 are needed, since a random next sentence "
            "comes from another document. Put a blank line between documents, or for WikiText take --layout wikitext"
        )


def documents_in_all(parts: Sequence[Part]) -> Mapping[str, int]:
    """How many documents each split's files hold."""
    counts: dict[str, int] = {}
    for part in parts:
        counts[part.split] = counts.get(part.split, 0) + part.documents
    return counts
