"""Documents of text files, in both layouts."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from normscope.data.documents.text import documents_in
from normscope.errors import UserError

WORDS = st.lists(st.sampled_from(["red", "house", "runs", "to", "town"]), min_size=1, max_size=5)
DOCUMENTS = st.lists(st.lists(WORDS.map(" ".join), min_size=1, max_size=4), max_size=5)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "text"


def test_paragraphs_are_split_into_sentences_and_blank_lines_part_documents(file: Path) -> None:
    file.write_text("\n One. Two!\nThree?\r\n\n  \n\nFour.\n\n\n", encoding="utf-8")
    assert documents_in([file], "paragraphs", "en") == [
        (True, 3, ["One.", "Two!", "Three?"]),
        (True, 1, ["Four."]),
    ]


@given(DOCUMENTS, st.integers(1, 3), st.booleans())
def test_any_documents_come_back(documents: list[list[str]], blanks: int, ends: bool) -> None:
    text = ("\n" * (blanks + 1)).join("\n".join(paragraphs) for paragraphs in documents)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "text"
        file.write_text(text + "\n" * ends or "\n", encoding="utf-8")
        read = documents_in([file, file], "paragraphs", "en")
    assert [
        list(document.sentences) for document in read
    ] == documents * 2  # a document ends with its file
    assert [d.words for d in read] == [
        sum(len(p.split()) for p in paragraphs) for paragraphs in documents
    ] * 2


def test_wikitext_s_documents_begin_with_a_title_between_blank_lines(file: Path) -> None:
    lines = [
        " ",
        " = First = ",
        " ",
        " Text . More of it ; <unk> . ",
        " = Played , W = ",  # a line of a table
        " Won ",
        " ",
        " = = A section = = ",
        " ",
        " Text = more . ",
        " ",
        " = 2 = ",
        " ",
        " = = = Deeper = = = ",
        " ",
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    first, second = documents_in([file], "wikitext", "en")
    assert first.sentences == [
        "= First =",
        "Text . More of it ; <unk> .",
        "= Played , W =",
        "Won",
        "= = A section = =",
        "Text = more .",
    ]
    assert second.sentences == ["= 2 =", "= = = Deeper = = ="]
    assert (first.words, second.words) == (len(" ".join(first.sentences).split()), 3 + 7)


def test_wikitext_2_has_its_published_articles_and_words(shared: Path) -> None:
    """Merity et al. 2017, table 1: 600, 60 and 60 articles; their words count an end for each line,
    too.
    """
    for split, articles, words in (("valid", 60, 217_646), ("test", 60, 245_569)):
        file = shared / "data/wikitext2" / f"{split}.txt.gz"
        if not file.is_file():
            pytest.skip(f"needs WikiText-2: no file {file}")
        documents = documents_in([file], "wikitext", "en")
        lines = gzip.decompress(file.read_bytes()).count(b"\n")
        assert len(documents) == articles
        assert sum(document.words for document in documents) + lines == words


def test_mistakes_name_the_file_and_the_line(file: Path) -> None:
    file.write_bytes(b"One.\n\nTwo \xff.\n")
    with pytest.raises(UserError, match=r"text:3: byte 5 of the line \(0xff\) is not UTF-8"):
        documents_in([file], "paragraphs", "en")
    with pytest.raises(UserError, match="absent: no such file"):
        list(documents_in([file.with_name("absent")], "paragraphs", "en"))
