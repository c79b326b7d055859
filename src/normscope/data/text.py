"""Raw lines to tokenised lines and back, the way Moses does it (through sacremoses)."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sacremoses import MosesDetokenizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

# Control characters, line and paragraph separators, the byte order mark and lone surrogates: none of them is text, and
# some would end a line or upset a tokeniser further on.
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class TextForm:
    """How the text of one language is written inside a corpus."""

    language: str
    """Two-letter code; languages that Moses has no rules for are split by its English ones."""
    tokenise: bool = True
    """False: the text is tokenised already and only its spaces are put in order."""
    lowercase: bool = False

    def prepare(self, raw: str) -> str:
        """The tokenised line, words separated by one space; empty where the raw line has no text.

        Characters stay as they are: Moses' escapes (`&apos;`) are neither made nor resolved.
        """
        text = " ".join(unicodedata.normalize("NFC", _NOT_TEXT.sub(" ", raw)).split())
        if self.tokenise:
            text = " ".join(_tokeniser(self.language).tokenize(text, escape=False))
        return text.lower() if self.lowercase else text

    def restore(self, tokenised: str) -> str:
        """The line as people write it. Letter case is not brought back; without `tokenise` nothing changes."""
        if not self.tokenise:
            return tokenised
        return str(_detokeniser(self.language).detokenize(tokenised.split(), unescape=False))


def check_language(language: str) -> None:
    """Raise ValueError for what is no code of a language; a name that is known is told its code."""
    if not re.fullmatch(r"[a-z]{2,3}([_-][A-Za-z0-9]{2,8})*", language):
        codes = NonbreakingPrefixes().available_langs
        meant = codes.get(language.lower())
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise ValueError(
            f"a language is given by its code of two or three small letters, such as de, got {language!r}{hint}"
        )


def has_rules(language: str) -> bool:
    """Whether Moses splits words of this language by rules of its own and not by the English ones."""
    return language in {*NonbreakingPrefixes().available_langs.values(), "ja", "ko"}


def prepare_pairs(source: TextForm, target: TextForm, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """`prepare` of both sides of each pair; a function of the module, so that another process can be sent it."""
    return [(source.prepare(raw_source), target.prepare(raw_target)) for raw_source, raw_target in pairs]


# One of each per process and language: building them compiles some forty expressions.
@cache
def _tokeniser(language: str) -> MosesTokenizer:
    tokeniser = MosesTokenizer(lang=language)
    # The library's own two make a set of some 100,000 letters at each call, 0.5 ms for each word like "z.B.".
    letters, small_letters = frozenset(tokeniser.IsAlpha), frozenset(tokeniser.IsLower)
    tokeniser.isanyalpha = lambda text: not letters.isdisjoint(text)
    tokeniser.islower = lambda text: small_letters.issuperset(text)
    return tokeniser


@cache
def _detokeniser(language: str) -> MosesDetokenizer:
    return MosesDetokenizer(lang=language)
