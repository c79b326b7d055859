"""Words of a German-like sentence, each with what the grammar that drew it knows of it."""

from functools import cache, lru_cache
from typing import Final, NamedTuple

CASES: Final = ("nominative", "accusative", "dative")
"""By the number that the lexicon counts them with."""


class Word(NamedTuple):
    """One word or mark. What does not apply is empty: verbs have no case, and plurals no gender."""

    text: str
    part: str
    """Part of speech: noun, determiner, adjective, pronoun, relative pronoun, verb (a finite one), infinitive,
    participle, prefix (of a separable verb), predicate, preposition, conjunction, adverb, negation, question word or
    mark. "im", a preposition and an article, is a preposition with the article's number, gender and case."""
    number: str = ""
    """singular or plural, of the words of a noun phrase."""
    gender: str = ""
    """m, f or n."""
    case: str = ""
    """One of `CASES`."""
    verb: str = ""
    """Of the words of a subject: the finite verb that agrees with it, as it is written where it stands second."""


ToyWords = tuple[Word, ...]

_GENDER_OF_PRONOUN: Final = {"he": "m", "she": "f", "him": "m"}
_PLURAL_PRONOUNS: Final = {"we", "they", "us"}


# Sentences are drawn by the ten thousand from a few hundred words: each is made once.
@cache
def word(text: str, part: str) -> ToyWords:
    """A word without inflection; nothing for an empty text."""
    return (Word(text, part),) if text else ()


@cache
def inflected(text: str, part: str, case: int, gender: str) -> ToyWords:
    """A word of a noun phrase, gender p for the plural; nothing for an empty text."""
    plural = gender == "p"
    made = Word(text, part, "plural" if plural else "singular", "" if plural else gender, CASES[case])
    return (made,) if text else ()


@cache
def pronoun(text: str, english: str, case: int) -> ToyWords:
    """A personal pronoun; its English tells the two "sie" apart."""
    number = "plural" if english in _PLURAL_PRONOUNS else "singular"
    return (Word(text, "pronoun", number, _GENDER_OF_PRONOUN.get(english, ""), CASES[case]),)


@lru_cache(maxsize=4096)
def agreeing(subject: ToyWords, finite: str) -> ToyWords:
    """A subject whose words know the verb that agrees with them; those of a clause within it know their own."""
    return tuple(one._replace(verb=finite) if one.case == CASES[0] and not one.verb else one for one in subject)
