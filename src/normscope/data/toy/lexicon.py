"""Words and inflection of the toy language: a small, regular part of German with its English counterpart.

All text is lower-case. Cases are counted nominative 0, accusative 1, dative 2; genders are "m", "f", "n" and
"p" for the plural, which has no gender of its own. A verb form is counted 0 for "ich", 1 for the third person
singular and 2 for the plural.
"""

from typing import Final, NamedTuple

NOMINATIVE, ACCUSATIVE, DATIVE = 0, 1, 2
ICH, SINGULAR, PLURAL = 0, 1, 2


def english_s(phrase: str) -> str:
    """Add the -s of plural nouns and third-person verbs to the first word: carry -> carries, look for -> looks for."""
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
        """Dative plurals end in -n unless they end in -n or -s: den kindern, den frauen, den autos."""
        if not plural:
            return self.singular
        return self.plural + "n" if case == DATIVE and not self.plural.endswith(("n", "s")) else self.plural


class Verb(NamedTuple):
    """One verb. `finite` holds the forms for ich, er and wir without the separable prefix; the last is the infinitive.

    `objects` names the kinds of noun it takes, in `case`; an empty tuple makes it intransitive. `place` says whether
    a place may be added, `perfect` names the auxiliary: er hat gesehen, er ist gekommen.
    """

    finite: tuple[str, str, str]
    participle: str
    prefix: str
    en: str
    en_past: str
    objects: tuple[str, ...] = ()
    case: int = ACCUSATIVE
    perfect: str = "haben"
    place: bool = True

    @property
    def infinitive(self) -> str:
        return self.prefix + self.finite[PLURAL]


class Modal(NamedTuple):
    """A verb that sends an infinitive to the end. `auxiliary` tells "can see" (True) from "wants to see" (False)."""

    finite: tuple[str, str, str]
    en: str
    auxiliary: bool


def _nouns() -> tuple[Noun, ...]:
    """Simple nouns, then every modifier before every head of a compound; gender and plural are those of the head."""
    table = {
        "person": """m mann männer man men | f frau frauen woman women | n kind kinder child children
            m lehrer lehrer teacher | m freund freunde friend | m bruder brüder brother | f schwester schwestern sister
            m vater väter father | f mutter mütter mother | n mädchen mädchen girl | m onkel onkel uncle
            f tante tanten aunt | f ärztin ärztinnen doctor | m koch köche cook""",
        "animal": "m hund hunde dog | f katze katzen cat | n pferd pferde horse | m vogel vögel bird",
        "thing": """m tisch tische table | m stuhl stühle chair | m apfel äpfel apple | n fahrrad fahrräder bicycle
            f tasche taschen bag | n bild bilder picture | f blume blumen flower | m kuchen kuchen cake
            m schlüssel schlüssel key | f lampe lampen lamp | f uhr uhren clock | n schild schilder sign""",
        "opening": "f tür türen door | n fenster fenster window",
        "text": "n buch bücher book | m brief briefe letter | f zeitung zeitungen newspaper",
        "place": """m garten gärten garden | n haus häuser house | f küche küchen kitchen | f schule schulen school
            f stadt städte city | m markt märkte market | m wald wälder forest | n hotel hotels hotel""",
    }
    simple = []
    for kind, rows in table.items():
        for row in rows.replace("\n", "|").split("|"):
            gender, singular, plural, en, *en_plural = row.split()
            simple.append(Noun(kind, gender, singular, plural, en, en_plural[0] if en_plural else english_s(en)))
    modifiers = {"haus": "house", "auto": "car", "garten": "garden", "küchen": "kitchen", "schul": "school"}
    heads = [noun for noun in simple if noun.singular in {"schlüssel", "lampe", "uhr", "schild", "tür", "fenster"}]
    compounds = [
        Noun(head.kind, head.gender, de + head.singular, de + head.plural, f"{en} {head.en}", f"{en} {head.en_plural}")
        for head in heads
        for de, en in modifiers.items()
    ]
    return (*simple, *compounds)


NOUNS: Final = _nouns()

_BEING: Final = ("person", "animal")
_THING: Final = ("thing", "text", "opening")

VERBS: Final = (
    Verb(("sehe", "sieht", "sehen"), "gesehen", "", "see", "saw", (*_BEING, *_THING)),
    Verb(("suche", "sucht", "suchen"), "gesucht", "", "look for", "looked for", (*_BEING, *_THING)),
    Verb(("finde", "findet", "finden"), "gefunden", "", "find", "found", (*_BEING, *_THING)),
    Verb(("kaufe", "kauft", "kaufen"), "gekauft", "", "buy", "bought", _THING),
    Verb(("verkaufe", "verkauft", "verkaufen"), "verkauft", "", "sell", "sold", _THING),
    Verb(("hole", "holt", "holen"), "geholt", "", "fetch", "fetched", (*_BEING, *_THING)),
    Verb(("lese", "liest", "lesen"), "gelesen", "", "read", "read", ("text",)),
    Verb(("schreibe", "schreibt", "schreiben"), "geschrieben", "", "write", "wrote", ("text",)),
    Verb(("besuche", "besucht", "besuchen"), "besucht", "", "visit", "visited", ("person",)),
    Verb(("höre", "hört", "hören"), "gehört", "", "hear", "heard", _BEING),
    Verb(("rufe", "ruft", "rufen"), "angerufen", "an", "call", "called", ("person",)),
    Verb(("lade", "lädt", "laden"), "eingeladen", "ein", "invite", "invited", ("person",)),
    Verb(("hole", "holt", "holen"), "abgeholt", "ab", "collect", "collected", ("person", "thing", "text")),
    Verb(("mache", "macht", "machen"), "aufgemacht", "auf", "open", "opened", ("opening",), place=False),
    Verb(("mache", "macht", "machen"), "zugemacht", "zu", "close", "closed", ("opening",), place=False),
    Verb(("bringe", "bringt", "bringen"), "mitgebracht", "mit", "bring", "brought", (*_BEING, "thing", "text")),
    Verb(("helfe", "hilft", "helfen"), "geholfen", "", "help", "helped", _BEING, DATIVE),
    Verb(("danke", "dankt", "danken"), "gedankt", "", "thank", "thanked", ("person",), DATIVE),
    Verb(("folge", "folgt", "folgen"), "gefolgt", "", "follow", "followed", _BEING, DATIVE, "sein"),
    Verb(("schlafe", "schläft", "schlafen"), "geschlafen", "", "sleep", "slept"),
    Verb(("arbeite", "arbeitet", "arbeiten"), "gearbeitet", "", "work", "worked"),
    Verb(("spiele", "spielt", "spielen"), "gespielt", "", "play", "played"),
    Verb(("warte", "wartet", "warten"), "gewartet", "", "wait", "waited"),
    Verb(("tanze", "tanzt", "tanzen"), "getanzt", "", "dance", "danced"),
    Verb(("komme", "kommt", "kommen"), "gekommen", "", "come", "came", perfect="sein", place=False),
    Verb(("komme", "kommt", "kommen"), "angekommen", "an", "arrive", "arrived", perfect="sein"),
    Verb(("komme", "kommt", "kommen"), "zurückgekommen", "zurück", "return", "returned", perfect="sein", place=False),
    Verb(("fahre", "fährt", "fahren"), "abgefahren", "ab", "leave", "left", perfect="sein", place=False),
)

PERFECT: Final = {"haben": ("habe", "hat", "haben"), "sein": ("bin", "ist", "sind")}
COPULA: Final = {
    "present": (("bin", "ist", "sind"), ("am", "is", "are")),
    "past": (("war", "war", "waren"), ("was", "was", "were")),
}

FUTURE: Final = Modal(("werde", "wird", "werden"), "will", True)
MODALS: Final = (
    Modal(("kann", "kann", "können"), "can", True),
    Modal(("soll", "soll", "sollen"), "should", True),
    Modal(("will", "will", "wollen"), "want to", False),
    Modal(("muss", "muss", "müssen"), "have to", False),
)

REPORTS: Final = (
    (("weiß", "weiß", "wissen"), "know", "dass", "that"),
    (("glaube", "glaubt", "glauben"), "believe", "dass", "that"),
    (("sage", "sagt", "sagen"), "say", "dass", "that"),
    (("frage", "fragt", "fragen"), "ask", "ob", "whether"),
)
"""Verbs of saying and thinking, with the conjunction that opens their clause."""

SUBORDINATORS: Final = (("weil", "because"), ("obwohl", "although"), ("wenn", "if"))
COORDINATORS: Final = (("und", "and"), (", aber", ", but"))
QUESTION_WORDS: Final = (("wann", "when"), ("wo", "where"), ("warum", "why"))

ADJECTIVES: Final = {
    "alt": "old", "neu": "new", "klein": "small", "groß": "big", "schön": "beautiful", "ruhig": "quiet",
    "jung": "young", "müd": "tired", "klug": "clever", "stolz": "proud",
    "rot": "red", "blau": "blue", "grün": "green", "billig": "cheap", "schwer": "heavy",
}  # fmt: skip
"""Stems: an ending always follows, but for the predicate, which is the stem itself (müde apart)."""

_PERSONAL: Final = ("alt", "klein", "groß", "jung", "müd", "klug", "stolz", "ruhig")
_OUTER: Final = ("alt", "neu", "klein", "groß", "schön", "rot", "blau", "grün", "billig", "schwer")
FITTING_ADJECTIVES: Final = {
    "person": _PERSONAL,
    "animal": ("alt", "klein", "groß", "jung", "müd", "klug", "schön"),
    "thing": _OUTER,
    "opening": _OUTER,
    "text": ("alt", "neu", "schön", "billig", "schwer"),
    "place": ("alt", "neu", "klein", "groß", "schön", "ruhig"),
}

TIMES: Final = {
    "present": (
        ("heute", "today"), ("morgen", "tomorrow"), ("jetzt", "now"), ("oft", "often"), ("manchmal", "sometimes"),
    ),
    "future": (("heute", "today"), ("morgen", "tomorrow"), ("bald", "soon"), ("später", "later")),
    "past": (("gestern", "yesterday"), ("heute", "today"), ("neulich", "recently"), ("oft", "often")),
}  # fmt: skip

PLACES: Final = (("in", "in"), ("vor", "in front of"), ("hinter", "behind"), ("neben", "beside"))
DEGREES: Final = (("sehr", "very"), ("zu", "too"))

SUBJECT_PRONOUNS: Final = (
    ("ich", "i", ICH), ("er", "he", SINGULAR), ("sie", "she", SINGULAR), ("wir", "we", PLURAL), ("sie", "they", PLURAL),
)  # fmt: skip
"""The verb alone tells the two "sie" apart: sie sieht -> she sees, sie sehen -> they see."""

OBJECT_PRONOUNS: Final = {
    ACCUSATIVE: (("ihn", "him"), ("mich", "me"), ("uns", "us")),
    DATIVE: (("ihm", "him"), ("mir", "me"), ("uns", "us")),
}

DETERMINERS: Final = {
    "der": ("the", "the"), "dies": ("this", "these"), "ein": ("a", ""),
    "mein": ("my", "my"), "unser": ("our", "our"), "sein": ("his", "his"), "kein": ("no", "no"),
}  # fmt: skip
"""Stem -> English singular and plural. "ein" has no plural: the noun then stands alone (ein hund, hunde)."""

_GENDERS: Final = "mfnp"
_ENDINGS: Final = {
    "der": (("der", "die", "das", "die"), ("den", "die", "das", "die"), ("dem", "der", "dem", "den")),
    "dies": (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en")),
    "ein": (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en")),
}
_ADJECTIVE_ENDINGS: Final = {
    "weak": (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en", "en", "en", "en")),
    "mixed": (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en", "en", "en", "en")),
}


def determiner(stem: str, case: int, gender: str) -> str:
    """Article or its like: (der, ACCUSATIVE, m) -> den; (mein, DATIVE, f) -> meiner; (ein, any, p) -> nothing."""
    column = _GENDERS.index(gender)
    if stem == "der":
        return _ENDINGS["der"][case][column]
    if stem == "ein" and gender == "p":
        return ""
    return stem + _ENDINGS["dies" if stem == "dies" else "ein"][case][column]


def adjective(stem: str, after: str, case: int, gender: str) -> str:
    """Inflected adjective after a determiner: der alte mann, ein alter mann, den alten mann, (ein, p) alte männer."""
    if after == "ein" and gender == "p":
        return stem + ("en" if case == DATIVE else "e")
    pattern = "weak" if after in ("der", "dies") else "mixed"
    return stem + _ADJECTIVE_ENDINGS[pattern][case][_GENDERS.index(gender)]


def predicate(stem: str) -> str:
    """Uninflected adjective: der mann ist alt; only "müde" keeps its -e."""
    return stem + "e" if stem == "müd" else stem


def german_words() -> list[str]:
    """Every German surface word and punctuation mark, sorted."""
    slots = [(case, gender) for case in (NOMINATIVE, ACCUSATIVE, DATIVE) for gender in _GENDERS]
    words = {".", ",", "?", "nicht", "im", "mit"}
    for noun in NOUNS:
        words |= {noun.singular, noun.plural, noun.form(DATIVE, plural=True)}
    for verb in VERBS:
        words |= {*verb.finite, *(verb.prefix + form for form in verb.finite), verb.participle, verb.prefix}
    for modal in (FUTURE, *MODALS):
        words.update(modal.finite)
    for stem in DETERMINERS:
        words |= {determiner(stem, *slot) for slot in slots}
    for stem in ADJECTIVES:
        words |= {adjective(stem, after, *slot) for after in ("der", "ein") for slot in slots} | {predicate(stem)}
    for finite in (*PERFECT.values(), *(finite for finite, _ in COPULA.values()), *(row[0] for row in REPORTS)):
        words.update(finite)
    pronouns = (SUBJECT_PRONOUNS, *OBJECT_PRONOUNS.values())
    for rows in (*pronouns, *TIMES.values(), PLACES, DEGREES, SUBORDINATORS, COORDINATORS, QUESTION_WORDS):
        words |= {word for row in rows for word in str(row[0]).split()}
    words |= {row[2] for row in REPORTS}
    return sorted(words - {""})


def english_words() -> list[str]:
    """Every English surface word and punctuation mark, sorted."""
    phrases = [". , ? not with an has wants do does did who whom", *ADJECTIVES.values()]
    phrases += [phrase for noun in NOUNS for phrase in (noun.en, noun.en_plural)]
    phrases += [phrase for verb in VERBS for phrase in (verb.en, english_s(verb.en), verb.en_past)]
    phrases += [phrase for pair in DETERMINERS.values() for phrase in pair]
    phrases += [modal.en for modal in (FUTURE, *MODALS)]
    phrases += [form for _, forms in COPULA.values() for form in forms]
    phrases += [phrase for _, en, _, link in REPORTS for phrase in (en, english_s(en), link)]
    pronouns = (SUBJECT_PRONOUNS, *OBJECT_PRONOUNS.values())
    for rows in (*pronouns, *TIMES.values(), PLACES, DEGREES, SUBORDINATORS, COORDINATORS, QUESTION_WORDS):
        phrases += [str(row[1]) for row in rows]
    return sorted({word for phrase in phrases for word in phrase.split()})
