"""Corpora of documents in memory and on the disk: what is put in is read back, and damage is
told.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from normscope.data.documents.corpus import DocumentCorpus, DocumentSplit
from normscope.data.documents.prepare import DocumentsConfig, prepare_documents
from normscope.data.documents.tokeniser import TextTokeniser
from normscope.errors import UserError
from normscope.tasks.masked_lm import MASKED_LM
from tiny import resealed

SENTENCES = [
    "the red house stands here",
    "a red horse runs there",
    "no house runs",
    "the horse stands there now",
]
TEXT = "\n\n".join("\n".join(f"{s} {i}." for s in SENTENCES[: 2 + i % 3]) for i in range(9)) + "\n"
IDS = st.lists(st.lists(st.lists(st.integers(0, 70_000), max_size=4), max_size=4), max_size=6)


def read_back(split: DocumentSplit) -> list[list[list[int]]]:
    """The ids of each sentence of each document."""
    sentences = [split.tokens[a:b].tolist() for a, b in pairwise(split.sentences)]
    return [sentences[a:b] for a, b in pairwise(split.documents)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").write_text(TEXT, encoding="utf-8")
    splits = {"train": (tmp_path / "text",)}
    config = DocumentsConfig(
        out=tmp_path / "corpus", splits=splits, tokeniser="bpe", vocabulary_size=270
    )
    prepare_documents(config)
    return tmp_path / "corpus"


@given(IDS)
def test_documents_come_back_without_what_is_empty(documents: list[list[list[int]]]) -> None:
    split = DocumentSplit.of(documents, words=0, vocabulary_size=70_001)
    full = [[sentence for sentence in document if sentence] for document in documents]
    assert read_back(split) == [document for document in full if document]
    assert len(split) == len(read_back(split))
    assert split.tokens.dtype == np.int32
    assert DocumentSplit.of([], words=0, vocabulary_size=9).tokens.dtype == np.uint16


def test_a_folder_is_the_corpus_in_memory(folder: Path) -> None:
    opened = DocumentCorpus.open(folder)
    in_memory = DocumentCorpus.in_memory(opened.tokeniser, opened.splits)
    assert in_memory.fingerprint == opened.fingerprint
    assert isinstance(opened.splits["train"].tokens, np.memmap)
    decoded = [
        [opened.tokeniser.decode(ids).strip() for ids in document]
        for document in read_back(opened.splits["train"])
    ]
    paragraphs = [document.split("\n") for document in TEXT.rstrip("\n").split("\n\n")]
    assert [
        document for document in paragraphs if document in decoded
    ] == decoded  # seven of nine, in their order
    assert len(decoded) == 7
    assert opened.splits["train"].words == sum(
        len(s.split()) for document in decoded for s in document
    )


def test_other_text_has_another_fingerprint_and_raw_words_have_no_part_in_it() -> None:
    tokeniser = TextTokeniser.learn(SENTENCES * 9, 270, kind="bpe", lowercase=False)
    one, other = (
        DocumentCorpus.of_texts(tokeniser, {"train": [[first], SENTENCES]})
        for first in SENTENCES[:2]
    )
    again = DocumentCorpus.of_texts(tokeniser, {"train": [[SENTENCES[0]], SENTENCES]})
    assert one.fingerprint == again.fingerprint != other.fingerprint
    moved = DocumentCorpus.of_texts(tokeniser, {"train": [SENTENCES[:1] + SENTENCES]})
    assert moved.fingerprint != one.fingerprint  # the same tokens in another number of documents


def test_the_vocabulary_is_saved_for_a_run(folder: Path, tmp_path: Path) -> None:
    corpus = DocumentCorpus.open(folder)
    MASKED_LM.save_vocabularies(corpus, tmp_path)
    assert TextTokeniser.load(tmp_path / "tokenizer.json").to_json() == corpus.tokeniser.to_json()


def _manifest(**changes: object) -> Callable[[Path], object]:
    return lambda folder: resealed(folder / "corpus.json", **changes)


def _flip(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            _flip("train.tokens"),
            r"train.tokens: damaged \(its SHA-256 has changed\); prepare the corpus again",
        ),
        (_flip("valid.documents.offsets"), r"valid.documents.offsets: damaged"),
        (_flip("tokenizer.json"), r"tokenizer.json: damaged"),
        (
            lambda folder: (folder / "train.sentences.offsets").unlink(),
            "train.sentences.offsets: no such file",
        ),
        (
            lambda folder: (folder / "corpus.json").write_text("{"),
            r"corpus.json is damaged \(no JSON: .*; prepare the",
        ),
        (lambda folder: (folder / "corpus.json").unlink(), "not a corpus"),
        (
            _manifest(version=99),
            "has version 99, and this NormScope reads 2; prepare the corpus again",
        ),
        (
            _manifest(files=None),
            "corpus.json was written by another version: it lacks 'files'; prepare",
        ),
        (_manifest(fingerprint="0"), "the fingerprint does not fit"),
        (_manifest(preparation={}), r"damaged \(KeyError"),
        (
            _manifest(format="normscope-corpus"),
            "is of format .normscope-corpus., not a normscope-documents file; `normscope data "
            "documents` makes one",
        ),
    ],
)
def test_a_damaged_folder_is_refused_with_what_is_wrong(
    folder: Path, damage: Callable[[Path], object], message: str
) -> None:
    assert DocumentCorpus.open(folder)
    damage(folder)
    with pytest.raises(UserError, match=message):
        DocumentCorpus.open(folder)
