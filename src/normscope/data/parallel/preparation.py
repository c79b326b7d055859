"""The configuration of a preparation of parallel text, which training pairs it leaves out, and its report."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from ...errors import UserError
from ..preparation import CorpusReport
from ..text import TextForm, check_language, has_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareConfig:
    """What a corpus is made of. Raises UserError for values that cannot be meant."""

    out: Path
    """Folder of the corpus to make."""
    source_language: str
    target_language: str
    splits: Mapping[str, tuple[Path, Path]]
    """Name -> (source file, target file); "train" is required, "valid" is taken out of train where it is missing."""
    vocabulary_size: int
    """Number of entries of the vocabulary, special tokens included, or of each one where they are separate."""
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
    workers: int = 1
    """Number of processes that work at once; the corpus is the same for any."""  # >1 needs an importable main module
    fields: tuple[str, str] | None = None
    """Fields of the source and the target text where the files hold records. By default the codes of the languages."""

    def __post_init__(self) -> None:
        if "train" not in self.splits:
            given = ", ".join(self.splits) or "none"
            raise UserError(f'splits: "train" is missing (given: {given}); name the files of the training text')
        for name in self.splits:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
                raise UserError(f"{name!r}: names of splits are letters, digits, - and _; rename it")
        try:
            for language in self.languages:
                check_language(language)
        except ValueError as error:
            raise UserError(f"languages: {error}") from error
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise UserError(f"min_tokens={self.min_tokens} must lie between 1 and max_tokens={self.max_tokens}")
        if not self.max_length_ratio >= 1:
            raise UserError(f"max_length_ratio={self.max_length_ratio} must be 1 or more: it is longer over shorter")
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
        """How source and target text is written in the corpus."""
        source = TextForm(self.source_language, tokenise=self.tokenise, lowercase=self.lowercase)
        return source, replace(source, language=self.target_language)

    def options(self) -> dict[str, Any]:
        """All that decides what the corpus holds, but the bytes of the input."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for without_effect in ("out", "workers"):
            del values[without_effect]
        # Corpora that were made before there were fields stay what they are.
        if self.fields is None:
            del values["fields"]
        return values | {"splits": sorted(self.splits)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareReport(CorpusReport):
    """What was made."""

    read: Mapping[str, int]
    """Pairs in the files of each split."""
    kept: Mapping[str, int]
    """Pairs of each split of the corpus."""
    dropped: Mapping[str, int]
    """Reason -> training pairs left out for it."""
    held_out_every: int | None
    """n where every n-th clean training pair became the validation split; None where one was given."""
    vocabulary_sizes: tuple[int, int]
    tokens: Mapping[str, tuple[int, int]]
    """Source and target tokens of each split, EOS included."""

    def summary(self, config: PrepareConfig) -> list[str]:
        """The report on what `config` asked for, as lines of text."""
        lines = [f"{self.out}: {'unchanged, nothing done' if self.unchanged else 'prepared'}"]
        for name, pairs in self.kept.items():
            source, target = self.tokens[name]
            lines.append(f"{name}: {pairs:,} pairs, {source:,} source and {target:,} target tokens")
        if self.dropped:
            reasons = ", ".join(f"{reason} {pairs:,}" for reason, pairs in self.dropped.items())
            lines.append(
                f"left out of train: {sum(self.dropped.values()):,} of {self.read['train']:,} pairs ({reasons})"
            )
        if self.held_out_every:
            lines.append(f"no validation split was given: every {self.held_out_every}rd pair of train became it")
        source, target = self.vocabulary_sizes
        lines.append(
            f"joint vocabulary: {source:,}" if config.joint else f"vocabularies: {source:,} source, {target:,} target"
        )
        for language in dict.fromkeys(config.languages):
            if config.tokenise and not has_rules(language):
                lines.append(f"note: Moses has no rules for {language!r}, and its English ones were used")
        return lines

    @classmethod
    def of_unchanged(cls, state: Mapping[str, Any], *, out: Path, fingerprint: str) -> Self:
        values = dict(state)
        values["vocabulary_sizes"] = tuple(values["vocabulary_sizes"])
        values["tokens"] = {name: tuple(counts) for name, counts in values["tokens"].items()}
        return cls(out=out, unchanged=True, fingerprint=fingerprint, **values)


def drop_reason(source: str, target: str, config: PrepareConfig) -> str | None:
    """Why a tokenised pair has no place in the training split; None where it has."""
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
