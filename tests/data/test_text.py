import unicodedata

import pytest
import sacremoses
from hypothesis import given, settings, strategies as st

from normscope.data.parallel.codec import TextForm

RAW = {
    "en": (
        "Mr. Smith's dog isn't here -- it costs $3,000.50 (really?), e.g. \"that\" & <b>more</b>..."
    ),
    "de": 'Dr. Müller sagt: "Das kostet 3.000,50 € (wirklich?)", z.B. die Straße & mehr...',
    "fr": "L'homme n'a pas d'amis : « vraiment ? »",
}


@pytest.mark.parametrize("language", RAW)
def test_prepare_is_moses_without_escapes(language):
    expected = sacremoses.MosesTokenizer(lang=language).tokenize(RAW[language], escape=False)
    assert TextForm(language).prepare(RAW[language]).split(" ") == expected
    assert "&quot;" not in TextForm(language).prepare(RAW[language])
    assert TextForm(language, lowercase=True).prepare(RAW[language]) == " ".join(expected).lower()


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "z.B.",
                "Dr.",
                "U.S.",
                "3.",
                "1.5",
                "und.",
                "Ende.",
                "No.",
                "5",
                "so",
                "α.β.",
                "...",
                "Σ",
            ]
        )
    )
)
def test_abbreviations_are_those_of_the_library(words):
    for language in ("de", "en"):
        expected = sacremoses.MosesTokenizer(lang=language).tokenize(" ".join(words), escape=False)
        assert TextForm(language).prepare(" ".join(words)).split() == expected


@pytest.mark.parametrize(
    ("raw", "language"),
    [
        ("The dog doesn't bark, it runs (fast)!", "en"),
        ("Der Hund läuft: schnell, über 3,5 Straßen.", "de"),
    ],
)
def test_restore_undoes_prepare(raw, language):
    form = TextForm(language)
    assert form.prepare(raw) != raw
    assert form.restore(form.prepare(raw)) == raw


def test_escapes_in_the_text_stay_as_they_are():
    form = TextForm("en", tokenise=False)
    assert form.restore(form.prepare("a &apos; b")) == "a &apos; b"
    moses = TextForm("en")
    assert "&apos;" in moses.restore("say &apos; now")


def test_without_tokenise_only_spaces_are_put_in_order():
    form = TextForm("de", tokenise=False)
    assert form.prepare("  schon  tokenisiert , nicht?\t ja \n") == "schon tokenisiert , nicht? ja"
    assert TextForm("de", tokenise=False, lowercase=True).prepare("Ja , ÄÖ") == "ja , äö"


def test_composed_and_decomposed_letters_become_one():
    assert (
        TextForm("de").prepare("u\u0308ber") == TextForm("de").prepare("\u00fcber") == "\u00fcber"
    )


@pytest.mark.parametrize(
    "separator", ["\x00", "\x1c", "\x85", "\u2028", "\u2029", "\u00a0", "\ufeff", "\t", "\x7f"]
)
@pytest.mark.parametrize("tokenise", [True, False])
def test_what_is_no_text_separates_words(separator, tokenise):
    assert TextForm("en", tokenise=tokenise).prepare(f"one{separator}two") == "one two"


@pytest.mark.parametrize("raw", ["", " ", "\n", "\u2028\x00"])
def test_lines_without_text_are_empty(raw):
    assert TextForm("de").prepare(raw) == ""
    assert TextForm("de").restore("") == ""


@settings(deadline=None)
@given(
    raw=st.text(st.characters(exclude_categories=())),
    language=st.sampled_from(["en", "de", "fr", "zh", "xx"]),
    tokenise=st.booleans(),
    lowercase=st.booleans(),
)
def test_any_unicode_survives(raw, language, tokenise, lowercase):
    form = TextForm(language, tokenise=tokenise, lowercase=lowercase)
    prepared = form.prepare(raw)
    assert prepared == " ".join(prepared.split())
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in prepared)
    assert isinstance(form.restore(prepared), str)
    prepared.encode("utf-8")


def test_unseen_scripts_keep_their_letters():
    for raw in ["Γειά σου Κόσμε", "こんにちは世界", "नमस्ते दुनिया", "👩‍👩‍👧 ok"]:
        prepared = TextForm("en").prepare(raw)
        assert prepared.replace(" ", "") == unicodedata.normalize("NFC", raw).replace(" ", "")
