"""The preparation of parallel text: its configuration and report, and its parts: tokenised,
counted, encoded.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError, user_errors
from ..folder import token_dtype
from ..preparation import CorpusReport, TextPart
from ..sources import texts_in
from .codec import Codec, TextForm, check_language, has_rules
from .corpus import SIDES
from .vocabulary import EOS


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareConfig:
    """The settings of a corpus of parallel text. Raises UserError for values that cannot be
    meant.
    """

    out: Path
    """Folder of the corpus to make."""
    source_language: str
    target_language: str
    splits: Mapping[str, tuple[Path, Path]]
    """Name -> (source file, target file); "train" is required, "valid" is taken out of train where
    it is missing.
    """
    vocabulary_size: int
    """Number of entries of the vocabulary, special tokens included, or of each one where they are
    separate.
    """
    joint: bool = False
    tokenise: bool = True
    """False: the text is Moses-tokenised already, as IWSLT14's files are."""
    lowercase: bool = False
    """Lower-case all text."""
    min_tokens: int = 1
    """Words a side of a training pair needs, after tokenising and before BPE."""
    max_tokens: int = 175
    """Drop training pairs of which a side has more words than this."""
    max_length_ratio: float = 1.5
    """Drop training pairs whose longer side has more words than this many times the shorter."""
    # More than one needs an importable main module.
    workers: int = 1
    """Number of processes that work at once; the corpus is the same for any."""
    fields: tuple[str, str] | None = None
    """Fields of the source and the target text where the files hold records. By default the codes
    of the languages.
    """

    def __post_init__(self) -> None:
        if "train" not in self.splits:
            given = ", ".join(self.splits) or "none"
            raise UserError(
                f'splits: "train" is missing (given: {given}); name the files of the training text'
            )
        for name in self.splits:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
                raise UserError(
                    f"{name!r}: names of splits are letters, digits, - and _; rename it"
                )
        with user_errors(ValueError, said=lambda error: f"languages: {error}"):
            for language in self.languages:
                check_language(language)
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise UserError(
                f"min_tokens={self.min_tokens} must lie between 1 and max_tokens={self.max_tokens}"
            )
        if not self.max_length_ratio >= 1:
            raise UserError(
                f"max_length_ratio={self.max_length_ratio} must be 1 or more: it is longer over "
                "shorter"
            )
        if self.workers < 1:
            raise UserError(f"workers={self.workers} must be 1 or more")

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source_language, self.target_language

    @property
    def named(self) -> tuple[str, str]:
        """The fields of records that hold the texts of source and target."""
        return self.fields or self.languages

    def forms(self) -> tuple[TextForm, TextForm]:
        """Returns the forms in which source and target text is written in the corpus."""
        source = TextForm(self.source_language, tokenise=self.tokenise, lowercase=self.lowercase)
        return source, replace(source, language=self.target_language)

    def options(self) -> dict[str, Any]:
        """Returns all that decides what the corpus holds, but the bytes of the input."""
        # Corpora that were made before there were fields stay what they are.
        without_effect = ("out", "workers", *(["fields"] if self.fields is None else []))
        values = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in without_effect
        }
        return values | {"splits": sorted(self.splits)}


def summary(report: CorpusReport, config: PrepareConfig) -> list[str]:
    """Returns the report on what `config` asked for, as lines of text.

    Its counts: pairs that each split's files had, `read`, and that it has, `kept`; training pairs
    `dropped` by reason; `held_out_every`, n where every n-th clean training pair became the
    validation split; `vocabulary_sizes` of source and target, and `tokens` of both in each split,
    EOS included.
    """
    counts = report.counts
    lines = [f"{report.out}: {'unchanged, nothing done' if report.unchanged else 'prepared'}"]
    for name, pairs in counts["kept"].items():
        source, target = counts["tokens"][name]
        lines.append(f"{name}: {pairs:,} pairs, {source:,} source and {target:,} target tokens")
    if dropped := counts["dropped"]:
        lines.append(
            f"left out of train: {sum(dropped.values()):,} of {counts['read']['train']:,} pairs "
            f"({reasons(dropped)})"
        )
    if counts["held_out_every"]:
        lines.append(
            f"no validation split was given: every {counts['held_out_every']}rd pair of train "
            "became it"
        )
    source, target = counts["vocabulary_sizes"]
    lines.append(
        f"joint vocabulary: {source:,}"
        if config.joint
        else f"vocabularies: {source:,} source, {target:,} target"
    )
    for language in dict.fromkeys(config.languages):
        if config.tokenise and not has_rules(language):
            lines.append(
                f"note: Moses has no rules for {language!r}, and its English ones were used"
            )
    return lines


def reasons(dropped: Mapping[str, int]) -> str:
    """Returns how many pairs were dropped for each reason, in words."""
    return ", ".join(f"{reason} {pairs:,}" for reason, pairs in dropped.items())


def drop_reason(source: str, target: str, config: PrepareConfig) -> str | None:
    """Returns the reason why a tokenised pair has no place in the training split; None where it has
    one.
    """
    counts = len(source.split()), len(target.split())
    shorter, longer = min(counts), max(counts)
    if shorter == 0:
        return "empty"
    if shorter < config.min_tokens:
        return f"under {config.min_tokens} words"
    if longer > config.max_tokens:
        return f"over {config.max_tokens} words"
    if longer > config.max_length_ratio * shorter:
        return f"length ratio over {config.max_length_ratio}"
    return None


_RawPair = tuple[str, str]


def pairs_in(source: Path, target: Path, config: PrepareConfig) -> Iterator[_RawPair]:
    """The raw pairs of two files."""
    # A line break inside a record's text is a blank: text to score against has a sentence a line.
    sides = (
        texts_in(file, field) for file, field in zip((source, target), config.named, strict=True)
    )
    for (_, source_text), (_, target_text) in zip(*sides, strict=True):
        yield source_text.replace("\n", " "), target_text.replace("\n", " ")


def tokenise_pairs(
    config: PrepareConfig, split: str, pairs: Sequence[_RawPair]
) -> tuple[dict[str, Any], list[str]]:
    """Tokenises pairs; returns how many pairs of a part were read, kept and dropped for which
    reason, and its lines: `pairs_of` reads them.
    """
    dropped: Counter[str] = Counter()
    lines: list[str] = []
    source, target = config.forms()
    for raw in pairs:
        pair = source.prepare(raw[0]), target.prepare(raw[1])
        reason = drop_reason(*pair, config) if split == "train" else None
        if reason:
            dropped[reason] += 1
        else:
            lines += [*raw, *pair]
    return {"read": len(pairs), "kept": len(lines) // 4, "dropped": dict(dropped)}, lines


def pairs_of(part: TextPart) -> Iterator[tuple[str, _RawPair, _RawPair]]:
    """Split, raw and tokenised pair of each in a part."""
    lines = part.path.read_bytes().decode().split("\n")[1:-1]
    for number, at in enumerate(range(0, len(lines), 4), part.first):
        source, target, *pair = lines[at : at + 4]
        yield (
            "valid" if number in part.held_out else part.split,
            (source, target),
            (pair[0], pair[1]),
        )


def count_part(part: TextPart) -> tuple[Counter[str], Counter[str]]:
    """Counts each word of source and target in the training pairs of a part."""
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for split, _, pair in pairs_of(part):
        if split == "train":
            for side, line in zip(counts, pair, strict=True):
                side.update(line.split())
    return counts


def encode_part(codec_folder: Path, part: TextPart) -> dict[str, NDArray[Any]]:
    """Returns the arrays of each split that a part holds pairs of, by the codec in that folder."""
    codec = _codec(codec_folder)
    pairs: dict[str, list[tuple[_RawPair, _RawPair]]] = {}
    for split, raw, pair in pairs_of(part):
        pairs.setdefault(split, []).append((raw, pair))
    arrays: dict[str, NDArray[Any]] = {}
    for split, several in pairs.items():
        for at, (side, form) in enumerate(zip(SIDES, (codec.source, codec.target), strict=True)):
            lines = "".join(raw[at] + "\n" for raw, _ in several) if split != "train" else ""
            ids, lengths = form.vocabulary.encode_joined([pair[at] for _, pair in several])
            tokens = np.insert(ids, np.cumsum(lengths), EOS).astype(
                token_dtype(len(form.vocabulary))
            )
            found = {
                "tokens": tokens,
                "lengths": lengths + 1,
                "raw": np.frombuffer(lines.encode(), "u1"),
            }
            arrays |= {f"{split}.{side}.{kind}": array for kind, array in found.items()}
    return arrays


_codec = lru_cache(maxsize=1)(Codec.load)
