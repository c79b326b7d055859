"""Text and tokenisers."""

import gzip
import lzma
import random
from pathlib import Path
from typing import Any

from normscope.data.documents.text import documents_in
from normscope.data.documents.tokeniser import TextTokeniser
from normscope.data.lines import read_lines
from normscope.data.opening import toy_documents

_WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sleeps",
    "runs",
    "and",
    "or",
    "in",
    "on",
    "under",
    "house",
    "tree",
    ".",
    ",",
    "!",
    "?",
]


def lines(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(_WORDS, k=draw.randint(3, 9))) + f" {i}" for i in range(count)]


def tokeniser() -> TextTokeniser:
    return toy_documents().tokeniser


def make_text(folder: Path) -> None:
    content = "".join(line + "\n" for line in lines(60, 1)).encode()
    (folder / "plain.txt").write_bytes(content)
    (folder / "packed.gz").write_bytes(gzip.compress(content))
    (folder / "packed.xz").write_bytes(lzma.compress(content))


def read_text(folder: Path, changed: Path) -> Any:
    words = sum(len(line) for _, line in read_lines(changed))
    for layout in ("paragraphs", "wikitext"):
        words += sum(document.words for document in documents_in([changed], layout, "en"))
    return words


def make_tokenizer(folder: Path) -> None:
    tokeniser().save(folder / "wordpiece.json")
    TextTokeniser.learn(lines(300, 3), 300, kind="bpe", lowercase=False).save(folder / "bpe.json")


def read_tokenizer(folder: Path, changed: Path) -> Any:
    text = [*lines(5, 4), "a" * 3000, "é" * 300, " " * 2000, "[MASK] x", ""]
    tokeniser = TextTokeniser.load(changed)
    ids = tokeniser.encode_many(text)
    tokeniser.decode(ids[0])
    return len(ids), len(tokeniser.begins_word_V), len(tokeniser.regular_ids)
