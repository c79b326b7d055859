"""Text to token ids and back for one pair of languages: all that a trained model needs to translate raw text."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ...limits.sealed import SealedJson
from ..text import TextForm
from .vocabulary import EOS, Vocabulary

_AGAIN = "copy it again or prepare the corpus again"
_FILE = "codec.json"
_KIND = SealedJson(
    format_name="normscope-codec", version=2, keys=frozenset({"joint", "source", "target", "sha256"}), again=_AGAIN
)


@dataclass(frozen=True, slots=True)
class CodecSide:
    """One language of a pair: how its text is written and which tokens it is made of."""

    form: TextForm
    vocabulary: Vocabulary

    @property
    def language(self) -> str:
        return self.form.language

    def encode(self, raw_lines: Sequence[str]) -> list[NDArray[np.int64]]:
        """Token ids of raw lines, one int64 array a line that ends with EOS; an empty line is EOS alone."""
        encoded = self.vocabulary.encode_many([self.form.prepare(line) for line in raw_lines])
        return [np.array([*ids, EOS], dtype=np.int64) for ids in encoded]


@dataclass(frozen=True, slots=True)
class Codec:
    """Both sides; `joint` where they share one vocabulary."""

    source: CodecSide
    target: CodecSide
    joint: bool = False

    def __post_init__(self) -> None:
        if self.joint and self.source.vocabulary is not self.target.vocabulary:
            raise ValueError("joint, yet the two sides hold different vocabularies; give both the same one")

    def encode_source(self, raw_lines: Sequence[str]) -> list[NDArray[np.int64]]:
        """Token ids of raw source lines, each ending with EOS."""
        return self.source.encode(raw_lines)

    def decode_target_tokenised(self, ids: Iterable[int]) -> str:
        """The target sentence as tokenised words, the form that tokenised BLEU is counted on."""
        return self.target.vocabulary.decode(ids)

    def decode_target(self, ids: Iterable[int]) -> str:
        """The target sentence as people write it."""
        return self.target.form.restore(self.decode_target_tokenised(ids))

    def vocabularies(self) -> dict[str, Vocabulary]:
        """File name -> vocabulary, one file where the sides share it."""
        if self.joint:
            return {"tokenizer.json": self.source.vocabulary}
        return {"source.tokenizer.json": self.source.vocabulary, "target.tokenizer.json": self.target.vocabulary}

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
            "source": _form_state(self.source.form),
            "target": _form_state(self.target.form),
            "sha256": self.vocabulary_digests(),
        }
        (folder / _FILE).write_text(_KIND.text(state), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote. Raises UserError where something is missing, damaged or of another version."""
        path = folder / _FILE
        state = _KIND.read(path)
        try:
            joint = bool(state["joint"])
            names = ["tokenizer.json"] * 2 if joint else ["source.tokenizer.json", "target.tokenizer.json"]
            source_form, target_form = TextForm(**state["source"]), TextForm(**state["target"])
            digests = dict(state["sha256"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: damaged ({error!r}); {_AGAIN}") from error
        vocabularies = {name: Vocabulary.load(folder / name) for name in dict.fromkeys(names)}
        codec = cls(
            source=CodecSide(source_form, vocabularies[names[0]]),
            target=CodecSide(target_form, vocabularies[names[1]]),
            joint=joint,
        )
        for name, digest in codec.vocabulary_digests().items():
            if digests.get(name) != digest:
                raise UserError(f"{folder / name}: damaged (its SHA-256 is not the one noted in {_FILE})")
        return codec


def _form_state(form: TextForm) -> dict[str, Any]:
    return {"language": form.language, "tokenise": form.tokenise, "lowercase": form.lowercase}
