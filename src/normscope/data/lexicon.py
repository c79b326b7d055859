"""Inflection of the toy language, a small, regular part of German with its English counterpart,
over `lexicon.toml`.

All text is lower-case. Cases are counted nominative 0, accusative 1, dative 2; genders are "m",
"f", "n" and "p" for the plural, which has no gender of its own. A verb form is counted 0 for "ich",
1 for the third person singular and 2 for the plural.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
CASES: Final = ("nominative", "accusative", "dative")
SINGULAR, PLURAL = 1, 2


def english_s(phrase: str) -> str:
    """Add the -s of plural nouns and third-person verbs to the first word: carry -> carries, look
    for -> looks for.
    """
    word, _, rest = phrase.partition(" ")
    if word.endswith("y") and word[-2] not in "aeiou":
        word = word[:-1] + "ies"
    elif word.endswith(("s", "sh", "ch", "x")):
        word += "es"
    else:
        word += "s"
    return f"{word} {rest}" if rest else word


class Noun(NamedTuple):
    """One noun; compounds are one German word and two English ones (hausschlüssel -> house key)."""

    kind: str
    gender: str
    singular: str
    plural: str
    en: str
    en_plural: str

    def form(self, case: int, plural: bool) -> str:
        """Dative plurals end in -n unless they end in -n or -s: den kindern, den frauen, den
        autos.
        """
        if not plural:
            return self.singular
        return (
            self.plural + "n"
            if case == DATIVE and not self.plural.endswith(("n", "s"))
            else self.plural
        )


class Verb(NamedTuple):
    """One verb. `finite` holds the forms for ich, er and wir without the separable prefix; the last
    is the infinitive.

    `objects` names the kinds of noun it takes, in `case`; none makes it intransitive. `place` says
    whether a place may be added, `perfect` names the auxiliary: er hat gesehen, er ist gekommen.
    """

    finite: Sequence[str]
    participle: str
    en: str
    en_past: str
    prefix: str = ""
    objects: Sequence[str] = ()
    case: int = ACCUSATIVE
    perfect: str = "haben"
    place: bool = True

    @property
    def infinitive(self) -> str:
        return self.prefix + self.finite[PLURAL]


class Modal(NamedTuple):
    """A verb that sends an infinitive to the end. `auxiliary` tells "can see" (True) from "wants to
    see" (False).
    """

    finite: Sequence[str]
    en: str
    auxiliary: bool


_LEXICON: Final = tomllib.loads(
    Path(__file__).with_name("lexicon.toml").read_text(encoding="utf-8")
)
_Pairs = Sequence[tuple[str, str]]


def _nouns() -> tuple[Noun, ...]:
    """Returns simple nouns, then every modifier before every head of a compound; gender and plural
    are those of the head.
    """
    simple = []
    for kind, rows in _LEXICON["nouns"].items():
        for row in rows:
            gender, singular, plural, en, *en_plural = row.split()
            simple.append(
                Noun(
                    kind, gender, singular, plural, en, en_plural[0] if en_plural else english_s(en)
                )
            )
    compounds = [
        Noun(
            head.kind,
            head.gender,
            de + head.singular,
            de + head.plural,
            f"{en} {head.en}",
            f"{en} {head.en_plural}",
        )
        for head in simple
        if head.singular in _LEXICON["compounds"]["heads"]
        for de, en in _LEXICON["compounds"]["modifiers"]
    ]
    return (*simple, *compounds)


def _verb(row: Mapping[str, Any]) -> Verb:
    case = CASES.index(row.get("case", "accusative"))
    return Verb(
        **{
            **row,
            "finite": row["finite"].split(),
            "objects": row.get("objects", "").split(),
            "case": case,
        }
    )


def _modal(row: Mapping[str, Any]) -> Modal:
    return Modal(**{**row, "finite": row["finite"].split()})


NOUNS: Final = _nouns()
VERBS: Final = tuple(map(_verb, _LEXICON["verbs"]["full"]))
MODALS: Final = tuple(map(_modal, _LEXICON["verbs"]["modal"]))
FUTURE: Final = _modal(_LEXICON["verbs"]["future"])
PERFECT: Final = {verb: text.split() for verb, text in _LEXICON["verbs"]["perfect"].items()}
COPULA: Final = {
    tense: (de.split(), en.split()) for tense, (de, en) in _LEXICON["verbs"]["copula"].items()
}
REPORTS: Final = [(finite.split(), *others) for finite, *others in _LEXICON["verbs"]["reports"]]
ADJECTIVES: Final[Mapping[str, str]] = _LEXICON["adjectives"]
FITTING_ADJECTIVES: Final = {kind: text.split() for kind, text in _LEXICON["fitting"].items()}
DETERMINERS: Final[Mapping[str, tuple[str, str]]] = _LEXICON["determiners"]
TIMES: Final[Mapping[str, _Pairs]] = _LEXICON["times"]
_PRONOUNS: Final = _LEXICON["pronouns"]
SUBJECT_PRONOUNS: Final = [
    (de, en, ("ich", "er", "wir").index(form)) for de, en, form in _PRONOUNS["subject"]
]
OBJECT_PRONOUNS: Final[Mapping[int, _Pairs]] = {
    case: _PRONOUNS[CASES[case]] for case in (ACCUSATIVE, DATIVE)
}
PAIRS: Final[Mapping[str, _Pairs]] = _LEXICON["pairs"]
"""Subordinators, coordinators, question words, places and degrees."""
_ENDINGS: Final = _LEXICON["endings"]
_GENDERS: Final = "mfnp"


def determiner(stem: str, case: int, gender: str) -> str:
    """Article or its like: (der, ACCUSATIVE, m) -> den; (mein, DATIVE, f) -> meiner; (ein, any, p)
    -> nothing.
    """
    if stem == "ein" and gender == "p":
        return ""
    ending = str(_ENDINGS[stem if stem in ("der", "dies") else "ein"][case][_GENDERS.index(gender)])
    return ending if stem == "der" else stem + ending


def adjective(stem: str, after: str, case: int, gender: str) -> str:
    """Inflected adjective after a determiner: der alte mann, ein alter mann, den alten mann, (ein,
    p) alte männer.
    """
    if after == "ein" and gender == "p":
        return stem + ("en" if case == DATIVE else "e")
    pattern = "weak" if after in ("der", "dies") else "mixed"
    return stem + str(_ENDINGS[pattern][case][_GENDERS.index(gender)])


def predicate(stem: str) -> str:
    """Uninflected adjective: der mann ist alt; only "müde" keeps its -e."""
    return stem + "e" if stem == "müd" else stem


def german_words() -> list[str]:
    """Returns every German surface word and punctuation mark, sorted."""
    slots = [(case, gender) for case in range(len(CASES)) for gender in _GENDERS]
    words = {".", ",", "?", "nicht", "im", "mit"}
    for noun in NOUNS:
        words |= {noun.singular, noun.plural, noun.form(DATIVE, plural=True)}
    for verb in VERBS:
        words |= {
            *verb.finite,
            *(verb.prefix + form for form in verb.finite),
            verb.participle,
            verb.prefix,
        }
    for modal in (FUTURE, *MODALS):
        words.update(modal.finite)
    for stem in DETERMINERS:
        words |= {determiner(stem, *slot) for slot in slots}
    for stem in ADJECTIVES:
        words |= {adjective(stem, after, *slot) for after in ("der", "ein") for slot in slots} | {
            predicate(stem)
        }
    for finite in (
        *PERFECT.values(),
        *(finite for finite, _ in COPULA.values()),
        *(row[0] for row in REPORTS),
    ):
        words.update(finite)
    words |= {word for german, *_ in _translated() for word in german.split()} | {
        link for _, _, link, _ in REPORTS
    }
    return sorted(words - {""})


def english_words() -> list[str]:
    """Returns every English surface word and punctuation mark, sorted."""
    phrases = [". , ? not with an has wants do does did who whom", *ADJECTIVES.values()]
    phrases += [phrase for noun in NOUNS for phrase in (noun.en, noun.en_plural)]
    phrases += [phrase for verb in VERBS for phrase in (verb.en, english_s(verb.en), verb.en_past)]
    phrases += [phrase for pair in DETERMINERS.values() for phrase in pair]
    phrases += [modal.en for modal in (FUTURE, *MODALS)]
    phrases += [form for _, forms in COPULA.values() for form in forms]
    phrases += [phrase for _, en, _, link in REPORTS for phrase in (en, english_s(en), link)]
    phrases += [english for _, english, *_ in _translated()]
    return sorted({word for phrase in phrases for word in phrase.split()})


def _translated() -> Iterator[Any]:
    """Yields the words that are not inflected: German, English, and for pronouns their form."""
    return chain(SUBJECT_PRONOUNS, *OBJECT_PRONOUNS.values(), *TIMES.values(), *PAIRS.values())
