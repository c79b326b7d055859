"""From text to a corpus of documents: what is counted, what is held out, and what is left alone."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.prepare import DocumentsConfig, prepare_documents, summary
from normscope.errors import UserError

WORDS = ["red", "house", "stands", "runs", "horse", "there", "here", "today"]


def document(number: int) -> str:
    """One to three paragraphs of two sentences; no two documents are alike."""
    paragraphs = []
    for place in range(1 + number % 3):
        first, second = WORDS[(number + place) % 8], WORDS[(3 * number + place) % 8]
        paragraphs.append(f"The {first} is number {number}. A {second} {place} follows it!")
    return "\n".join(paragraphs)


def texts(corpus: DocumentCorpus, name: str) -> list[str]:
    split = corpus.splits[name]
    bounds = split.sentences[split.documents]
    return [corpus.tokeniser.decode(split.tokens[a:b]).strip() for a, b in pairwise(bounds)]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., DocumentsConfig]:
    """The preparation of so many documents into `corpus`, with any field changed."""

    def config(documents: int = 30, **changes: object) -> DocumentsConfig:
        file = tmp_path / f"text-{documents}"
        file.write_text("\n\n".join(map(document, range(documents))) + "\n", encoding="utf-8")
        fields = {
            "out": tmp_path / "corpus",
            "splits": {"train": (file,)},
            "tokeniser": "bpe",
            "vocabulary_size": 300,
        }
        return DocumentsConfig(**{**fields, **changes})

    return config


@pytest.mark.parametrize(
    ("documents", "held_out"), [(2, 1), (3, 1), (4, 2), (399, 2), (400, 2), (800, 4)]
)
def test_every_200th_document_is_held_out_and_no_document_is_in_both(
    make: Callable[..., DocumentsConfig], documents: int, held_out: int
) -> None:
    size = 268 if documents < 30 else 300
    report = prepare_documents(make(documents, vocabulary_size=size))
    corpus = DocumentCorpus.open(report.out)
    train, valid = texts(corpus, "train"), texts(corpus, "valid")
    assert len(valid) == held_out
    wanted = [" ".join(document(i).split()) for i in range(documents)]
    assert sorted(train + valid) == sorted(wanted)
    assert [text for text in wanted if text in set(train)] == train  # in the order of the file
    assert report.counts["held_out"]
    assert any("one document of 200" in line for line in summary(report))


def test_the_report_counts_what_a_plain_count_counts(
    make: Callable[..., DocumentsConfig], tmp_path: Path
) -> None:
    valid = tmp_path / "valid"
    valid.write_text("One two three. Four five.\n\nSix.\n", encoding="utf-8")
    config = make()
    report = prepare_documents(
        replace(config, splits={**config.splits, "valid": (valid,), "test": (valid,)})
    )
    corpus = DocumentCorpus.open(report.out)
    paragraphs = [p for i in range(30) for p in document(i).split("\n")]
    assert report.counts["documents"] == {"train": 30, "valid": 2, "test": 2}
    assert report.counts["sentences"] == {"train": 2 * len(paragraphs), "valid": 3, "test": 3}
    assert report.counts["words"] == {
        "train": len(" ".join(paragraphs).split()),
        "valid": 6,
        "test": 6,
    }
    assert report.counts["tokens"] == {
        name: len(split.tokens) for name, split in corpus.splits.items()
    }
    assert report.fingerprint == corpus.fingerprint
    assert (report.counts["held_out"], report.counts["vocabulary_size"], report.unchanged) == (
        False,
        300,
        False,
    )
    assert summary(report)[0] == f"{report.out}: prepared"
    assert "train: 30 documents, " in summary(report)[1]


def test_preparing_again_does_nothing_and_any_change_does_it_anew(
    make: Callable[..., DocumentsConfig], tmp_path: Path
) -> None:
    config = make()
    first = prepare_documents(config)
    before = {path: path.stat().st_mtime_ns for path in first.out.iterdir()}
    again = prepare_documents(config)
    assert again == replace(first, unchanged=True)
    assert summary(again)[0] == f"{again.out}: unchanged, nothing done"
    assert {path: path.stat().st_mtime_ns for path in first.out.iterdir()} == before
    fingerprints = {first.fingerprint}
    wiki = {"layout": "wikitext", "splits": wikitext(tmp_path), "vocabulary_size": 270}
    for change in ({"lowercase": True}, {"vocabulary_size": 290}, wiki):
        changed = prepare_documents(replace(config, **change))
        assert not changed.unchanged
        fingerprints.add(changed.fingerprint)
    assert len(fingerprints) == 4
    (first.out / "train.tokens").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"train\.tokens is not as NormScope wrote it"):
        prepare_documents(config)
    (first.out / "train.tokens").unlink()
    assert prepare_documents(config).fingerprint == first.fingerprint  # and damage is made good
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "corpus",
        "text-30",
        "wiki",
    ]  # nothing left behind


def wikitext(folder: Path) -> dict[str, tuple[Path, ...]]:
    text = "".join(
        f" \n = {WORDS[i % 8]} {i} = \n \n {' '.join(WORDS[: 1 + i % 8])} . \n" for i in range(60)
    )
    (folder / "wiki").write_text(text, encoding="utf-8")
    return {"train": (folder / "wiki",)}


def test_a_tokeniser_of_a_file_is_taken_as_it_is(
    make: Callable[..., DocumentsConfig], tmp_path: Path
) -> None:
    learned = prepare_documents(make(vocabulary_size=290, lowercase=True))
    file = learned.out / "tokenizer.json"
    other = prepare_documents(
        make(40, out=tmp_path / "other", tokeniser=file, vocabulary_size=None)
    )
    assert (other.out / "tokenizer.json").read_bytes() == file.read_bytes()
    assert other.counts["vocabulary_size"] == 290
    with pytest.raises(
        UserError, match="lowercase and a vocabulary size are for a tokeniser that is learned"
    ):
        make(tokeniser=file)
    with pytest.raises(UserError, match=r"absent.json: no such file"):
        prepare_documents(make(tokeniser=tmp_path / "absent.json", vocabulary_size=None))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "One document. Of two sentences.\n",
            r"text: only one document; at least 2 are needed.*--layout wikitext",
        ),
        (
            " \n\n",
            "text: no text in it; give a paragraph a line, and a blank line between documents",
        ),
        ("", "text: empty file"),
        ("a\0b\n", "text:1: NUL byte"),
    ],
)
def test_text_that_makes_no_corpus_is_refused_and_leaves_nothing(
    make: Callable[..., DocumentsConfig], tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "text"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        prepare_documents(DocumentsConfig(out=tmp_path / "corpus", splits={"train": (file,)}))
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_something_else_stays(
    make: Callable[..., DocumentsConfig], tmp_path: Path
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/notes").write_text("mine")
    with pytest.raises(UserError, match=r"corpus/notes was not written by NormScope, and stays"):
        prepare_documents(make())
    with pytest.raises(UserError, match="train is missing"):
        make(splits={"valid": (tmp_path / "text",)})
    assert (tmp_path / "corpus/notes").read_text() == "mine"


def test_progress_is_told_by_stages(make: Callable[..., DocumentsConfig]) -> None:
    told: list[tuple[str, int, int]] = []
    prepare_documents(make(), lambda *event: told.append(event))
    assert list(dict.fromkeys(stage for stage, _, _ in told)) == ["read", "learn", "encode"]
    for stage in ("read", "learn", "encode"):
        done = [event[1:] for event in told if event[0] == stage]
        assert done[-1][0] == done[-1][1]
        assert done == sorted(done)
