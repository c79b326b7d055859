"""Raw lines to tokenised lines and back, as Moses does it (through sacremoses), and to token ids
and back.

A codec is all that a trained model of one pair of languages needs to translate raw text.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sacremoses import MosesDetokenizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

from ...errors import UserError, user_errors
from ...limits.ours import SealedJson
from .vocabulary import EOS, Vocabulary

# Control characters, line and paragraph separators, the byte order mark and lone surrogates: none
# of them is text, and some would end a line or upset a tokeniser further on.
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class TextForm:
    """The form in which the text of one language is written inside a corpus."""

    language: str
    """The two-letter code; languages that Moses has no rules for are split by its English ones."""
    tokenise: bool = True
    """False: the text is tokenised already and only its spaces are put in order."""
    lowercase: bool = False

    def prepare(self, raw: str) -> str:
        """Returns the tokenised line, words separated by one space; empty where the raw line has no
        text.

        Characters stay as they are: Moses' escapes (`&apos;`) are neither made nor resolved.
        """
        text = " ".join(unicodedata.normalize("NFC", _NOT_TEXT.sub(" ", raw)).split())
        if self.tokenise:
            text = " ".join(_tokeniser(self.language).tokenize(text, escape=False))
        return text.lower() if self.lowercase else text

    def restore(self, tokenised: str) -> str:
        """Returns the line as people write it. Letter case is not brought back; without `tokenise`
        nothing changes.
        """
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
            "a language is given by its code of two or three small letters, such as de, got "
            f"{language!r}{hint}"
        )


def has_rules(language: str) -> bool:
    """Tells whether Moses splits words of this language by its own rules and not by the English
    ones.
    """
    return language in {*NonbreakingPrefixes().available_langs.values(), "ja", "ko"}


# One of each per process and language: building them compiles some forty expressions.
@cache
def _tokeniser(language: str) -> MosesTokenizer:
    tokeniser = MosesTokenizer(lang=language)
    # The library's own two make a set of some 100,000 letters at each call, 0.5 ms for each word
    # like "z.B.".
    letters, small_letters = frozenset(tokeniser.IsAlpha), frozenset(tokeniser.IsLower)
    tokeniser.isanyalpha = lambda text: not letters.isdisjoint(text)
    tokeniser.islower = lambda text: small_letters.issuperset(text)
    return tokeniser


@cache
def _detokeniser(language: str) -> MosesDetokenizer:
    return MosesDetokenizer(lang=language)


_AGAIN = "copy it again or prepare the corpus again"
_FILE = "codec.json"
_KIND = SealedJson(
    format_name="normscope-codec",
    version=2,
    keys=frozenset({"joint", "source", "target", "sha256"}),
    again=_AGAIN,
)


@dataclass(frozen=True, slots=True)
class CodecSide:
    """One language of a pair: how its text is written and which tokens it is made of."""

    form: TextForm
    vocabulary: Vocabulary

    def encode(self, raw_lines: Sequence[str]) -> list[NDArray[np.int64]]:
        """Returns the token ids of raw lines, one int64 array a line that ends with EOS; an empty
        line is EOS alone.
        """
        encoded = self.vocabulary.encode_many([self.form.prepare(line) for line in raw_lines])
        return [np.array([*ids, EOS], dtype=np.int64) for ids in encoded]


@dataclass(frozen=True, slots=True)
class Codec:
    """The codec of both sides; `joint` where they share one vocabulary."""

    source: CodecSide
    target: CodecSide
    joint: bool = False

    def decode_target_tokenised(self, ids: Iterable[int]) -> str:
        """Returns the target sentence as tokenised words, the form that tokenised BLEU is counted
        on.
        """
        return self.target.vocabulary.decode(ids)

    def decode_target(self, ids: Iterable[int]) -> str:
        """Returns the target sentence as people write it."""
        return self.target.form.restore(self.decode_target_tokenised(ids))

    def vocabularies(self) -> dict[str, Vocabulary]:
        """File name -> vocabulary, one file where the sides share it."""
        if self.joint:
            return {"tokenizer.json": self.source.vocabulary}
        return {
            "source.tokenizer.json": self.source.vocabulary,
            "target.tokenizer.json": self.target.vocabulary,
        }

    def vocabulary_digests(self) -> dict[str, str]:
        """File name -> SHA-256 of what the file holds."""
        return {
            name: hashlib.sha256(vocabulary.to_json().encode()).hexdigest()
            for name, vocabulary in self.vocabularies().items()
        }

    def save(self, folder: Path) -> None:
        """Write `codec.json` and the vocabularies into an existing folder."""
        for name, vocabulary in self.vocabularies().items():
            vocabulary.save(folder / name)
        state = {
            "joint": self.joint,
            "source": asdict(self.source.form),
            "target": asdict(self.target.form),
            "sha256": self.vocabulary_digests(),
        }
        (folder / _FILE).write_text(_KIND.text(state), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote. Raises UserError where something is missing, damaged or of
        another version.
        """
        path = folder / _FILE
        state = _KIND.read(path)
        with user_errors(
            KeyError,
            TypeError,
            ValueError,
            said=lambda error: f"{path}: damaged ({error!r}); {_AGAIN}",
        ):
            joint = bool(state["joint"])
            names = (
                ["tokenizer.json"] * 2
                if joint
                else ["source.tokenizer.json", "target.tokenizer.json"]
            )
            source_form, target_form = TextForm(**state["source"]), TextForm(**state["target"])
            digests = dict(state["sha256"])
        vocabularies = {name: Vocabulary.load(folder / name) for name in dict.fromkeys(names)}
        codec = cls(
            source=CodecSide(source_form, vocabularies[names[0]]),
            target=CodecSide(target_form, vocabularies[names[1]]),
            joint=joint,
        )
        for name, digest in codec.vocabulary_digests().items():
            if digests.get(name) != digest:
                raise UserError(
                    f"{folder / name}: damaged (its SHA-256 is not the one noted in {_FILE})"
                )
        return codec
