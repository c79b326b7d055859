"""The properties that can be asked of the words of the toy language's German side."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from normscope.data.lexicon import (
    ADJECTIVES,
    CASES,
    DATIVE,
    DETERMINERS,
    NOUNS,
    adjective,
    determiner,
)
from normscope.data.toy import toy_pairs

# N = words of all sentences, end to end, each sentence with its end behind it

Classes = NDArray[np.int64]
NONE = -1
"""The class of a word of which a property cannot be asked."""
PLACES = 10
"""Classes of the position; words further on have none."""
_CONTROL_SEED = 7


def probe_sentences(count: int) -> list[list[str]]:
    """Returns the words of the first sentences of the test split, which no training has seen."""
    return [german.split() for german, _ in toy_pairs(count, seed=1, split="test")]


def properties(sentences: Sequence[Sequence[str]], frequent: int) -> dict[str, Classes]:
    """Returns by property a class of every word, (N,), or `NONE`; the end of a sentence has none.

    word and previous word: one of the most frequent. position: its place. case: of a masculine
    noun, which the words before it tell and the noun itself does not.
    """
    counts = Counter(word for words in sentences for word in words)
    numbers = {word: number for number, (word, _) in enumerate(counts.most_common(frequent))}
    asked: Mapping[str, Callable[[Sequence[str], int], int]] = {
        "word": lambda words, i: numbers.get(words[i], NONE),
        "previous word": lambda words, i: numbers.get(words[i - 1], NONE) if i else NONE,
        "position": lambda words, i: i if i < PLACES else NONE,
        "case": case_of,
    }
    found = {}
    for name, of in asked.items():
        classes: list[int] = []
        for words in sentences:
            classes += [of(words, place) for place in range(len(words))]
            classes.append(NONE)
        found[name] = np.array(classes)
    return found


def control(classes_N: Classes, words_N: Sequence[str]) -> Classes:
    """Returns classes that the word alone decides, at random, as often as the property has them.

    The control task of Hewitt and Liang 2019, arXiv:1909.03368, section 2.1: what a probe gets
    right of it, it has learned by heart of the words. `NONE` where the property has none.
    """
    asked = classes_N != NONE
    draw = np.random.default_rng(_CONTROL_SEED)
    kinds = sorted(set(words_N))
    drawn = dict(zip(kinds, draw.choice(classes_N[asked], len(kinds)).tolist(), strict=True))
    return np.where(asked, [drawn[word] for word in words_N], NONE)


def case_of(words: Sequence[str], place: int) -> int:
    """Returns the number of a masculine noun's case, or `NONE` of any other word.

    >>> CASES[case_of("er sieht den alten mann .".split(), 4)]
    'accusative'
    """
    if words[place] not in _MASCULINE:
        return NONE
    before = list(words[:place])
    if before and before[-1] in _INFLECTED:
        before.pop()
    return _CASE_BY_DETERMINER.get(before[-1], NONE) if before else NONE


def _masculine() -> set[str]:
    """Returns the singular nouns whose form is not also a plural's, or another noun's."""
    plurals = {form for noun in NOUNS for form in (noun.plural, noun.form(DATIVE, plural=True))}
    others = {noun.singular for noun in NOUNS if noun.gender != "m"}
    return {noun.singular for noun in NOUNS if noun.gender == "m"} - plurals - others


def _inflected() -> set[str]:
    """Returns all forms of adjectives that stand between a determiner and a masculine noun."""
    return {
        adjective(stem, after, case, "m")
        for stem in ADJECTIVES
        for after in ("der", "ein")
        for case in range(len(CASES))
    }


def _case_by_determiner() -> dict[str, int]:
    found = {
        determiner(stem, case, "m"): case for stem in DETERMINERS for case in range(len(CASES))
    }
    # In the toy language "in dem" is always written so.
    return found | {"im": DATIVE}


_MASCULINE, _INFLECTED = _masculine(), _inflected()
_CASE_BY_DETERMINER = _case_by_determiner()
