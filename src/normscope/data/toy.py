"""A toy language pair to train on without any download: German-like sentences with their English
translation.

The sentences are drawn from a small grammar whose rules make a translator reorder words and look
far ahead:

- the finite verb stands second:             heute sieht der mann den hund .    today the man sees
  the dog .
- a separable prefix stands last:            er ruft den mann morgen an .       he calls the man
  tomorrow .
- so do participles and infinitives:         sie hat das buch gelesen .         she read the book .
- subordinate clauses end in their verb:     wir warten , weil er schläft .     we wait because he
  sleeps .
- case, not order, marks a fronted object:   den hund sucht die frau .          the woman looks for
  the dog .
- questions start with the verb:             kommt das kind ?                   does the child come
  ?

An object is fronted only if its form cannot be a subject's, so equal sources always have equal
translations.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from ..errors import UserError
from . import lexicon as lex
from .batches import StableDraw

SPLITS: Final = ("train", "valid", "test")

MIN_TOKENS, MAX_TOKENS = 5, 16
"""Bounds on the length of either side, the final punctuation included."""


class _Phrase(NamedTuple):
    """A phrase in both languages; one that is absent is empty. `form` is the verb form it asks for.

    Definite objects precede the time and "nicht": er kauft das buch heute, but er kauft heute ein
    buch. `may_lead` says whether the phrase may open a main clause before the verb.
    """

    de: str = ""
    en: str = ""
    form: int = lex.SINGULAR
    gender: str = ""
    kind: str = "person"
    definite: bool = True
    may_lead: bool = False


ABSENT: Final = _Phrase()


class _Clause(NamedTuple):
    """The pieces of one clause, not yet in order.

    `final` closes a main clause: participle, infinitive or predicate. `en_plain` is the verb of a
    positive statement (sees), `en_support` what negation and questions need (does, see).
    `is_state`: predicate adjectives.
    """

    subject: _Phrase
    finite: str
    prefix: str
    final: str
    en_plain: str
    en_support: tuple[str, str]
    object: _Phrase = ABSENT
    time: _Phrase = ABSENT
    place: _Phrase = ABSENT
    negated: bool = False
    is_state: bool = False


def _join(*parts: str) -> str:
    return " ".join(filter(None, parts))


_STEMS: Final = (*["der"] * 5, "dies", *["ein"] * 4, "mein", "unser", "sein")


@cache
def _nouns(kind: str) -> tuple[lex.Noun, ...]:
    return tuple(noun for noun in lex.NOUNS if noun.kind == kind)


def _noun_phrase(
    draw: StableDraw, kinds: Sequence[str], case: int, *, adjectives: float, negative: bool = False
) -> _Phrase:
    """Determiner, adjective and noun agree in case, gender and number: mit einem alten hund -> with
    an old dog.
    """
    noun = draw.one_of(_nouns(draw.one_of(kinds)))
    plural = draw.chance(0.3)
    gender = "p" if plural else noun.gender
    stem = draw.one_of((*_STEMS, "kein") if negative else _STEMS)
    de, en = lex.determiner(stem, case, gender), lex.DETERMINERS[stem][plural]
    noun_en = noun.en_plural if plural else noun.en
    adjective = ""
    if draw.chance(adjectives):
        of_it = draw.one_of(lex.FITTING_ADJECTIVES[noun.kind])
        adjective = lex.adjective(of_it, stem, case, gender)
        noun_en = f"{lex.ADJECTIVES[of_it]} {noun_en}"
    if en == "a" and noun_en[0] in "aeiou":
        en = "an"
    unlike_subject = case == lex.DATIVE or gender == "m"
    return _Phrase(
        _join(de, adjective, noun.form(case, plural)),
        _join(en, noun_en),
        lex.PLURAL if plural else lex.SINGULAR,
        gender,
        noun.kind,
        definite=stem not in ("ein", "kein"),
        may_lead=unlike_subject and not (stem == "ein" and plural),
    )


def _subject(
    draw: StableDraw, kinds: Sequence[str], *, adjectives: float, pronouns: float
) -> _Phrase:
    if draw.chance(pronouns):
        de, en, form = draw.one_of(lex.SUBJECT_PRONOUNS)
        return _Phrase(de, en, form)
    return _noun_phrase(draw, kinds, lex.NOMINATIVE, adjectives=adjectives)


def _object(draw: StableDraw, verb: lex.Verb, subject: _Phrase, *, adjectives: float) -> _Phrase:
    """Accusative or dative as the verb demands: er sieht den mann, er hilft dem mann. "ich" never
    meets "mich".
    """
    if "person" in verb.objects and draw.chance(0.15):
        pronouns = lex.OBJECT_PRONOUNS[verb.case]
        de, en = draw.one_of(pronouns[:1] if subject.en in ("i", "we") else pronouns)
        return _Phrase(de, en, may_lead=True)
    return _noun_phrase(draw, verb.objects, verb.case, adjectives=adjectives, negative=True)


def _place(draw: StableDraw, verb: lex.Verb) -> _Phrase:
    """Place or company: im garten -> in the garden (in + dem = im), mit der frau -> with the
    woman.
    """
    if not verb.objects and (not verb.place or draw.chance(0.4)):
        company = _noun_phrase(draw, ("person", "animal"), lex.DATIVE, adjectives=0.15)
        return _Phrase(f"mit {company.de}", f"with {company.en}")
    if not verb.place:
        return ABSENT
    de, en = draw.one_of(lex.PAIRS["places"])
    kinds = ("place",) if de == "in" else ("place", "thing", "opening", "text")
    where = _noun_phrase(draw, kinds, lex.DATIVE, adjectives=0.15)
    german = f"{de} {where.de}"
    if german.startswith("in dem "):
        german = f"im {german.removeprefix('in dem ')}"
    return _Phrase(german, f"{en} {where.en}", may_lead=True)


def _state(draw: StableDraw, subject: _Phrase, tense: str) -> _Clause:
    """Predicate adjectives, uninflected: die männer sind sehr alt -> the men are very old."""
    finite, en = lex.COPULA[tense]
    stem = draw.one_of(lex.FITTING_ADJECTIVES[subject.kind])
    degree, en_degree = draw.one_of(lex.PAIRS["degrees"]) if draw.chance(0.5) else ("", "")
    state = _join(degree, lex.predicate(stem))
    en_state = _join(en_degree, lex.ADJECTIVES[stem])
    be = en[subject.form]
    clause = _Clause(
        subject, finite[subject.form], "", state, f"{be} {en_state}", (be, en_state), is_state=True
    )
    return clause._replace(negated=not degree and draw.chance(0.2))


def _action(subject: _Phrase, verb: lex.Verb, tense: str, modal: lex.Modal) -> _Clause:
    """Tense of a full verb: er sieht -> he sees, er hat gesehen -> he saw, er will sehen -> he
    wants to see.
    """
    third = subject.form == lex.SINGULAR
    do = "does" if third else "do"
    if tense == "past":
        finite = lex.PERFECT[verb.perfect][subject.form]
        return _Clause(subject, finite, "", verb.participle, verb.en_past, ("did", verb.en))
    if tense == "present":
        plain = lex.english_s(verb.en) if third else verb.en
        return _Clause(subject, verb.finite[subject.form], verb.prefix, "", plain, (do, verb.en))
    finite, en = modal.finite[subject.form], f"{modal.en} {verb.en}"
    if modal.auxiliary:
        return _Clause(subject, finite, "", verb.infinitive, en, (modal.en, verb.en))
    plain = ("has to " + verb.en if modal.en == "have to" else lex.english_s(en)) if third else en
    return _Clause(subject, finite, "", verb.infinitive, plain, (do, en))


def _clause(
    draw: StableDraw,
    *,
    subject: _Phrase = ABSENT,
    rich: bool = False,
    past: bool = True,
    gap: bool = False,
) -> _Clause:
    """Returns one clause. `rich` adds time, place and adjectives; `gap` leaves out the object, for
    whom the clause tells of.
    """
    adjectives, pronouns = (0.35, 0.25) if rich else (0.2, 0.45)
    if not gap and draw.chance(0.12):
        everything = ("person", "animal", "thing", "thing", "thing", "opening", "text", "place")
        who = subject if subject.de else _subject(draw, everything, adjectives=0.5, pronouns=0.2)
        return _state(draw, who, "past" if past and draw.chance(0.4) else "present")
    of_persons = [
        verb for verb in lex.VERBS if "person" in verb.objects and verb.case == lex.ACCUSATIVE
    ]
    verb = draw.one_of(of_persons if gap else lex.VERBS)
    kinds = ("person",) if verb.objects else ("person", "person", "person", "animal")
    who = subject if subject.de else _subject(draw, kinds, adjectives=adjectives, pronouns=pronouns)
    tense = draw.one_of(
        ("present", "present", "past", "past", "modal", "modal", "future")[: None if past else 2]
    )
    clause = _action(who, verb, tense, lex.FUTURE if tense == "future" else draw.one_of(lex.MODALS))
    obj = _object(draw, verb, who, adjectives=adjectives) if verb.objects and not gap else ABSENT
    time = place = ABSENT
    if draw.chance(0.5 if rich else 0.15):
        de, en = draw.one_of(lex.TIMES["present" if tense == "modal" else tense])
        time = _Phrase(de, en, may_lead=True)
    if rich and draw.chance(0.35):
        place = _place(draw, verb)
    negated = obj.definite and draw.chance(0.2)
    return clause._replace(object=obj, time=time, place=place, negated=negated)


def _middle(clause: _Clause) -> str:
    """Everything between the verbs but the subject: den hund heute nicht im garten; heute einen
    hund im garten.
    """
    early, late = (clause.object.de, "") if clause.object.definite else ("", clause.object.de)
    return _join(early, clause.time.de, "nicht" if clause.negated else "", late, clause.place.de)


def _verb_first(clause: _Clause) -> str:
    """Questions, and what follows a fronted phrase: sieht der mann den hund; ruft er morgen an."""
    return _join(clause.finite, clause.subject.de, _middle(clause), clause.final, clause.prefix)


def _verb_second(clause: _Clause, lead: str = "subject") -> str:
    """Main clause opened by the piece named `lead`: subject, object, time or place."""
    rest: Any = {lead: ABSENT}
    return _join(getattr(clause, lead).de, _verb_first(clause._replace(**rest)))


def _verb_final(clause: _Clause) -> str:
    """Subordinate clause; the prefix returns to its verb: er den mann morgen anruft, er den mann
    angerufen hat.
    """
    return _join(clause.subject.de, _middle(clause), clause.final, clause.prefix + clause.finite)


def _english(clause: _Clause, *, lead: str = "subject", question: bool = False) -> str:
    """Subject, verb, object, place, time. A fronted time or place stays in front; a fronted object
    does not.
    """
    place = clause.place.en
    time = clause.time.en
    who = clause.subject.en
    auxiliary, verb = clause.en_support if question or clause.negated else ("", clause.en_plain)
    start = (auxiliary, who) if question else (who, auxiliary)
    core = _join(*start, "not" if clause.negated else "", verb, clause.object.en)
    return _join(
        *{"time": (time, core, place), "place": (place, core, time)}.get(lead, (core, place, time))
    )


def _statement(draw: StableDraw) -> tuple[str, str]:
    clause = _clause(draw, rich=True)
    leads = [lead for lead in ("object", "time", "place") if getattr(clause, lead).may_lead]
    lead = draw.one_of(leads) if leads and draw.chance(0.5) else "subject"
    return f"{_verb_second(clause, lead)} .", f"{_english(clause, lead=lead)} ."


def _question(draw: StableDraw) -> tuple[str, str]:
    """wann ruft die frau ihn an ? -> when does the woman call him ?"""
    clause = _clause(draw, rich=True)
    de, en = draw.one_of(lex.PAIRS["question_words"]) if draw.chance(0.5) else ("", "")
    if de and clause.is_state:
        de, en = "warum", "why"
    if de:
        clause = clause._replace(time=ABSENT, place=ABSENT)
    return _join(de, _verb_first(clause), "?"), _join(en, _english(clause, question=True), "?")


def _subordinate(draw: StableDraw) -> tuple[str, str]:
    """wenn er schläft , arbeiten wir . -> if he sleeps , we work .   wir warten , weil ... -> we
    wait because ...
    """
    de, en = draw.one_of(lex.PAIRS["subordinators"])
    main, side = (_clause(draw, past=de != "wenn") for _ in range(2))
    german = f"{de} {_verb_final(side)}"
    if draw.chance(0.35):
        return f"{german} , {_verb_first(main)} .", f"{en} {_english(side)} , {_english(main)} ."
    return f"{_verb_second(main)} , {german} .", f"{_english(main)} {en} {_english(side)} ."


def _report(draw: StableDraw) -> tuple[str, str]:
    """sie fragt , ob das kind schläft . -> she asks whether the child sleeps ."""
    finite, en, link, en_link = draw.one_of(lex.REPORTS)
    who, told = _subject(draw, ("person",), adjectives=0.25, pronouns=0.5), _clause(draw)
    verb = lex.english_s(en) if who.form == lex.SINGULAR else en
    return (
        f"{who.de} {finite[who.form]} , {link} {_verb_final(told)} .",
        f"{who.en} {verb} {en_link} {_english(told)} .",
    )


def _coordination(draw: StableDraw) -> tuple[str, str]:
    """er schläft , aber wir arbeiten . -> he sleeps , but we work ."""
    de, en = draw.one_of(lex.PAIRS["coordinators"])
    one, two = _clause(draw), _clause(draw)
    return (
        f"{_verb_second(one)} {de} {_verb_second(two)} .",
        f"{_english(one)} {en} {_english(two)} .",
    )


def _relative(draw: StableDraw) -> tuple[str, str]:
    """der mann , der uns sieht , wartet . -> the man who sees us waits .   der mann , den wir sehen
    -> whom we see
    """
    who = _noun_phrase(draw, ("person",), lex.NOMINATIVE, adjectives=0.2)
    if who.gender == "m" and draw.chance(0.5):
        told = _clause(draw, gap=True)
        de, en = f"den {_verb_final(told)}", f"whom {_english(told)}"
    else:
        told = _clause(
            draw,
            subject=who._replace(de=lex.determiner("der", lex.NOMINATIVE, who.gender), en="who"),
        )
        de, en = _verb_final(told), _english(told)
    main = _clause(draw, subject=who._replace(de=f"{who.de} , {de} ,", en=f"{who.en} {en}"))
    return f"{_verb_second(main)} .", f"{_english(main)} ."


_KINDS: Final = (
    *[_statement] * 9,
    *[_question] * 3,
    *[_subordinate] * 4,
    *[_report] * 2,
    _coordination,
    _relative,
)


def split_of(source: str) -> str:
    """Returns the one split of a source sentence, from the SHA-256 of its text: a tenth each is
    "valid" and "test".
    """
    tenth = int.from_bytes(hashlib.sha256(source.encode()).digest()[:8], "big") % 10
    return {0: "valid", 1: "test"}.get(tenth, "train")


def _pair(seed: int, split: str, index: int) -> tuple[str, str]:
    draw = StableDraw(f"{seed}/{split}/{index}")
    while True:
        de, en = draw.one_of(_KINDS)(draw)
        fits = all(MIN_TOKENS <= side.count(" ") + 1 <= MAX_TOKENS for side in (de, en))
        if fits and split_of(de) == split:
            return de, en


def toy_pairs(count: int, *, seed: int, split: str) -> list[tuple[str, str]]:
    """Returns the first `count` (German-like, English-like) pairs of a split: lower-case tokens
    between single spaces.

    Pair i depends on (seed, split, i) alone, so a shorter list is the start of a longer one. Splits
    share no source sentence, whatever their seeds; within a split a sentence may, rarely, come
    twice.
    """
    if count < 0:
        raise UserError(f"count={count} must not be negative")
    if split not in SPLITS:
        raise UserError(
            f"unknown split {split!r} of the toy language; choose one of {', '.join(SPLITS)}"
        )
    return [_pair(seed, split, index) for index in range(count)]
