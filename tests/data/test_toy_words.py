"""What the toy language says of its words, checked against German grammar restated by hand."""

from collections import Counter
from itertools import pairwise

import pytest

from normscope.data.toy.language import toy_pairs, toy_sentences
from normscope.data.toy.lexicon import ToyWords, Word

DETERMINERS = {
    "den": {("masculine", "accusative"), ("plural", "dative")},
    "dem": {("masculine", "dative"), ("neuter", "dative")},
    "das": {("neuter", "nominative"), ("neuter", "accusative")},
    "der": {("masculine", "nominative"), ("feminine", "dative")},
    "die": {(kind, case) for kind in ("feminine", "plural") for case in ("nominative", "accusative")},
}
NOUNS = {"mann": "m", "frau": "f", "kind": "n", "tisch": "m", "lampe": "f", "fenster": "n", "buch": "n"}
LONG = {"m": "masculine", "f": "feminine", "n": "neuter", "": "plural"}


@pytest.fixture(scope="module")
def sentences() -> list[ToyWords]:
    return toy_sentences(4000, seed=3, split="train")


def test_the_words_are_those_of_the_pairs(sentences: list[ToyWords]) -> None:
    texts = [" ".join(word.text for word in words) for words in sentences]
    assert texts == [german for german, _ in toy_pairs(4000, seed=3, split="train")]


def test_articles_have_the_cases_that_they_can_have_and_all_of_them_occur(sentences: list[ToyWords]) -> None:
    found: dict[str, set[tuple[str, str]]] = {text: set() for text in DETERMINERS}
    for word in (word for words in sentences for word in words):
        if word.text in DETERMINERS and word.part == "determiner":
            found[word.text].add((LONG[word.gender], word.case))
    assert found == DETERMINERS


def test_nouns_have_their_gender_and_agree_with_what_stands_before_them(sentences: list[ToyWords]) -> None:
    seen = Counter[str]()
    for words in sentences:
        for before, word in pairwise(words):
            if word.part != "noun":
                continue
            if before.part in ("determiner", "adjective"):
                assert (before.number, before.gender, before.case) == (word.number, word.gender, word.case)
            if word.number == "singular" and word.text in NOUNS:
                assert word.gender == NOUNS[word.text]
                seen[word.text] += 1
    assert min(seen[noun] for noun in NOUNS) > 3


def test_prepositions_take_the_dative(sentences: list[ToyWords]) -> None:
    after = [word.case for words in sentences for before, word in pairwise(words) if before.part == "preposition"]
    assert set(after) == {"dative"}
    assert len(after) > 500


def subjects(words: ToyWords) -> list[tuple[int, Word]]:
    return [(place, word) for place, word in enumerate(words) if word.verb]


def test_a_subject_s_verb_stands_in_its_sentence_and_agrees_with_it(sentences: list[ToyWords]) -> None:
    endings = {"ich": ("e", "bin", "war", "kann", "soll", "will", "muss", "weiß"), "wir": ("n", "sind")}
    checked = Counter[str]()
    for words in sentences:
        for _, subject in subjects(words):
            assert subject.case == "nominative"
            # Where a clause ends in it, a separable prefix has come back to the verb.
            assert any(word.part == "verb" and word.text.endswith(subject.verb) for word in words)
            if subject.text in endings:
                ending, *irregular = endings[subject.text]
                assert subject.verb.endswith(ending) or subject.verb in irregular
                checked[subject.text] += 1
        assert all(word.verb for word in words if word.case == "nominative")
    assert min(checked.values()) > 100


def test_a_relative_clause_has_a_subject_of_its_own(sentences: list[ToyWords]) -> None:
    """der mann , der uns sieht , wartet: the man waits, the pronoun sees."""
    found = 0
    for words in sentences:
        for place, word in enumerate(words):
            if word.part == "relative pronoun" and word.case == "nominative":
                noun = words[place - 2]
                assert (noun.part, noun.gender, noun.number) == ("noun", word.gender, word.number)
                ends = next(i for i in range(place, len(words)) if words[i].text == ",")
                assert words[ends - 1].part == "verb"
                assert words[ends - 1].text.endswith(word.verb)
                assert words[ends + 1].part == "verb"
                assert words[ends + 1].text == noun.verb
                found += 1
    assert found > 50


def test_parts_of_speech_are_few_and_closed_ones_have_the_words_of_the_language(sentences: list[ToyWords]) -> None:
    by_part: dict[str, set[str]] = {}
    for word in (word for words in sentences for word in words):
        by_part.setdefault(word.part, set()).add(word.text)
    assert by_part["mark"] == {".", ",", "?"}
    assert by_part["negation"] == {"nicht"}
    assert by_part["prefix"] == {"an", "ein", "ab", "auf", "zu", "mit", "zurück"}
    assert by_part["conjunction"] == {"weil", "obwohl", "wenn", "dass", "ob", "und", "aber"}
    assert by_part["question word"] == {"wann", "wo", "warum"}
    assert by_part["preposition"] == {"in", "im", "vor", "hinter", "neben", "mit"}
    assert by_part["infinitive"] >= {"sehen", "ankommen"}
    assert by_part["participle"] >= {"gesehen", "angekommen"}
    assert len(by_part) == 16
