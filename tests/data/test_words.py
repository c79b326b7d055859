"""Ids of texts from those of their words: as the tokenizers library makes them of whole texts."""

from collections import Counter
from functools import cache

import pytest
from hypothesis import given, strategies as st

from normscope.data.documents.tokeniser import TextTokeniser, TokeniserKind, steps
from normscope.data.toy import toy_pairs
from normscope.data.words import word_counts, words_of
from words import learned_from

TEXTS = [
    "The red house isn't here, it's there: 12,5 km!",
    "Ünïcode ﬁne – “quoted” 漢字 …",
    "a [MASK] is [SEP]no token",
    "two  blanks",
    " first and last ",
]
SOME_TEXT = st.text(
    st.sampled_from("ab, '.[]M\t\u00a0\u0301\u3000漢İß") | st.characters(codec="utf-8"), max_size=40
)


def learned(kind: TokeniserKind, lowercase: bool) -> TextTokeniser:
    texts = [*TEXTS * 4, *(english for _, english in toy_pairs(400, seed=1, split="train"))]
    return TextTokeniser.learn(texts, 400, kind=kind, lowercase=lowercase)


KINDS: list[tuple[TokeniserKind, bool]] = [
    ("bpe", False),
    ("bpe", True),
    ("wordpiece", False),
    ("wordpiece", True),
]


@cache
def tokeniser_of(which: tuple[TokeniserKind, bool]) -> TextTokeniser:
    return learned(*which)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
@given(texts=st.lists(SOME_TEXT | st.sampled_from(TEXTS), max_size=5))
def test_words_are_counted_as_the_library_splits_texts(
    kind: TokeniserKind, texts: list[str]
) -> None:
    normalizer, splitter = steps(kind, True)
    expected = Counter(
        word
        for text in texts
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    )
    assert word_counts(texts, normalizer, splitter) == expected
    assert all("".join(words_of(text)) == text for text in texts)


def test_the_vocabulary_of_pairs_gives_the_ids_of_lines() -> None:
    vocabulary = learned_from(TEXTS * 3, 90)
    ids, lengths = vocabulary.encode_joined([*TEXTS, "", "the house"])
    expected = [vocabulary.encode(line) for line in [*TEXTS, "", "the house"]]
    assert lengths.tolist() == [len(row) for row in expected]
    assert ids.tolist() == [i for row in expected for i in row]
