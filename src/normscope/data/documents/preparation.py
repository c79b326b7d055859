"""What a preparation of documents is asked for, and what it tells afterwards."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import UserError
from ..sources.opening import FIELD
from ..text import check_language
from .learning import Kind
from .text import Layout

HOLD_OUT_EVERY = 200
VOCABULARY_SIZE = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsConfig:
    """What a corpus of documents is made of."""

    out: Path
    splits: Mapping[str, tuple[Path, ...]]
    """Name -> files of text or of records, or folders of `datasets`; "train" is required, "valid" is taken out of train
    where it is missing."""
    tokeniser: Kind | Path = "wordpiece"
    """wordpiece or bpe to learn one, or a `tokenizer.json` to take."""
    vocabulary_size: int | None = None
    """Of one that is learned; 30,000 where it is not said, BERT's."""
    lowercase: bool = False
    """Of one that is learned."""
    layout: Layout = "paragraphs"
    language: str = "en"
    field: str = FIELD
    """What the text of a record is called, where the files hold records."""
    processes: int = 1
    """That work at once; the result does not depend on it. More than 1 needs an importable main module."""

    def __post_init__(self) -> None:
        try:
            check_language(self.language)
        except ValueError as error:
            raise UserError(f"language: {error}") from error
        if self.processes < 1:
            raise UserError(f"processes={self.processes} must be 1 or more")
        if not self.splits.get("train"):
            raise UserError("train is missing; name the files of the training text")
        if isinstance(self.tokeniser, Path) and (self.lowercase or self.vocabulary_size is not None):
            raise UserError(
                f"lowercase and a vocabulary size are for a tokeniser that is learned, and {self.tokeniser} has both "
                "settled; leave them out"
            )

    @property
    def entries(self) -> int:
        """Of the vocabulary of a tokeniser that is learned."""
        return VOCABULARY_SIZE if self.vocabulary_size is None else self.vocabulary_size

    def options(self) -> dict[str, Any]:
        """All that decides what the corpus holds, but the bytes of the input."""
        learned = not isinstance(self.tokeniser, Path)
        return {
            "tokeniser": self.tokeniser if learned else "file",
            "vocabulary_size": self.entries if learned else None,
            "lowercase": self.lowercase,
            "layout": self.layout,
            "language": self.language,
            # Corpora that were made of text before there was a field stay what they are.
            **({"field": self.field} if self.field != FIELD else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsReport:
    """What was made."""

    out: Path
    unchanged: bool
    """True: the corpus stood there already, made from the same files in the same way, and was left alone."""
    fingerprint: str
    vocabulary_size: int
    held_out: bool
    """True where the validation split was taken out of train."""
    documents: Mapping[str, int] = field(default_factory=dict)
    sentences: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, int] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)

    def summary(self) -> list[str]:
        """The report as lines of text."""
        lines = [f"{self.out}: {'unchanged, nothing done' if self.unchanged else 'prepared'}"]
        for name in self.documents:
            lines.append(
                f"{name}: {self.documents[name]:,} documents, {self.sentences[name]:,} sentences, "
                f"{self.words[name]:,} words, {self.tokens[name]:,} tokens"
            )
        if self.held_out:
            lines.append(
                f"no validation files were given: one document of {HOLD_OUT_EVERY} of the training files became "
                "validation text, at least two where there are four"
            )
        return [*lines, f"vocabulary: {self.vocabulary_size:,}"]

    def state(self) -> dict[str, Any]:
        """What the corpus notes of it, for JSON."""
        return {name: value for name, value in asdict(self).items() if name not in ("out", "unchanged", "fingerprint")}
