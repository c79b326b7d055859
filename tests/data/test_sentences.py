"""Sentences of paragraphs: abbreviations stay inside, and no character is lost."""

import pytest
from hypothesis import given, strategies as st

from normscope.data.documents.text import sentences_of


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Smith came at 5 p.m. yesterday.", "He left!", "Did he say why?"]),
        ("en", ["It weighs 3.5 kg.", "The U.S. market fell."]),
        ("de", ["Das ist z.B. Herr Dr. Schmidt.", "Er kam am 3. Mai."]),
        ("xx", ["No rules for this language.", "Those of another are taken."]),
    ],
)
def test_sentences_come_back_as_they_were_joined(language: str, sentences: list[str]) -> None:
    assert sentences_of("  " + " ".join(sentences) + "\t", language) == sentences


def test_blanks_within_a_sentence_become_one_and_a_paragraph_of_blanks_has_none() -> None:
    assert sentences_of("One \u00a0  two\tthree.  Four.", "en") == ["One two three.", "Four."]
    assert sentences_of(" \t ", "en") == sentences_of("", "en") == []


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=80))
def test_no_character_is_lost_added_or_moved(paragraph: str) -> None:
    pieces = sentences_of(paragraph, "en")
    assert "".join("".join(pieces).split()) == "".join(paragraph.split())
    assert all(piece == piece.strip() != "" for piece in pieces)
