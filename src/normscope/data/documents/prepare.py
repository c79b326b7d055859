"""The preparation of a corpus of documents from texts: split into sentences, learn the tokeniser,
write token ids.

Where no validation files are given, every 200th document at random is held out: 199 to 1, as Xiong
et al. 2020, section 4.1, split Wikipedia.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import UserError, user_errors
from ...files import write_atomically
from ..batches import permutation
from ..lines import file_sha256
from ..parallel.codec import check_language
from ..preparation import (
    CorpusReport,
    Preparation,
    Progress,
    TextPart,
    numbered,
    prepared,
    read_parts,
)
from ..sources import FIELD, TextLayout, source_bytes, source_sha256
from .corpus import FORMAT, TOKENISER, VERSION, DocumentCorpus, SplitWriter
from .text import count_part, encode_part, paragraphs_of, split_paragraphs
from .tokeniser import TextTokeniser, TokeniserKind

HOLD_OUT_EVERY = 200
VOCABULARY_SIZE = 30_000
_COUNTED = ("documents", "sentences", "words", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsConfig:
    """The settings of a corpus of documents."""

    out: Path
    """Folder of the corpus to make."""
    splits: Mapping[str, tuple[Path, ...]]
    """Name -> files of text or of records, or folders of `datasets`; "train" is required, "valid"
    is taken out of train where it is missing."""
    tokeniser: TokeniserKind | Path = "wordpiece"
    """Kind of tokeniser to learn, or a tokenizer.json to use."""
    vocabulary_size: int | None = None
    """Number of entries of a vocabulary that is learned, special tokens included. By default
    30000.
    """  # BERT's
    lowercase: bool = False
    """Lower-case all text before a tokeniser is learned."""
    layout: TextLayout = "paragraphs"
    """paragraphs: one on each line, and a blank line between documents, or a record for each;
    wikitext: as in WikiText.
    """
    language: str = "en"
    """Language by whose rules paragraphs are split into sentences."""
    field: str = FIELD
    """Field of the text where the files hold records."""
    # More than one needs an importable main module.
    processes: int = 1
    """Number of processes that work at once; the corpus is the same for any."""

    def __post_init__(self) -> None:
        with user_errors(ValueError, said=lambda error: f"language: {error}"):
            check_language(self.language)
        if self.processes < 1:
            raise UserError(f"processes={self.processes} must be 1 or more")
        if not self.splits.get("train"):
            raise UserError("train is missing; name the files of the training text")
        if isinstance(self.tokeniser, Path) and (
            self.lowercase or self.vocabulary_size is not None
        ):
            raise UserError(
                "lowercase and a vocabulary size are for a tokeniser that is learned, and "
                f"{self.tokeniser} has both settled; leave them out"
            )

    @property
    def entries(self) -> int:
        """The number of entries of the vocabulary of a tokeniser that is learned."""
        return VOCABULARY_SIZE if self.vocabulary_size is None else self.vocabulary_size

    def options(self) -> dict[str, Any]:
        """Returns all that decides what the corpus holds, but the bytes of the input."""
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


def summary(report: CorpusReport) -> list[str]:
    """Returns the report as lines of text.

    Its counts: `documents`, `sentences`, `words` and `tokens` of each split, the `vocabulary_size`,
    and whether the validation split was `held_out` of train.
    """
    counts = report.counts
    lines = [f"{report.out}: {'unchanged, nothing done' if report.unchanged else 'prepared'}"]
    for name in counts["documents"]:
        lines.append(f"{name}: " + ", ".join(f"{counts[what][name]:,} {what}" for what in _COUNTED))
    if counts["held_out"]:
        lines.append(
            f"no validation files were given: one document of {HOLD_OUT_EVERY} of the training "
            "files became validation text, at least two where there are four"
        )
    return [*lines, f"vocabulary: {counts['vocabulary_size']:,}"]


def prepare_documents(
    config: DocumentsConfig, progress: Progress = lambda stage, done, total: None
) -> CorpusReport:
    """Make the corpus at `config.out`, as `prepared` does. Stages of the progress: "read", "learn",
    "encode".
    """
    return prepared(_Documents(config), progress)


class _Documents(Preparation):
    corpus = DocumentCorpus
    format_name = FORMAT
    version = VERSION
    learned = TOKENISER
    encode = staticmethod(encode_part)

    def __init__(self, config: DocumentsConfig) -> None:
        self.config = config
        self.out = config.out
        self.processes = config.processes
        self.options = config.options()
        kind = config.tokeniser
        self.sources = [file for files in config.splits.values() for file in files]
        self.sources += [kind] if isinstance(kind, Path) else []
        self.count = None if isinstance(kind, Path) else partial(count_part, kind, config.lowercase)

    def inputs(self, progress: Progress) -> dict[str, Any]:
        tokeniser = self.config.tokeniser
        digests = {}
        for name, files in self.config.splits.items():
            digests[name] = [source_sha256(file) for file in files]
        return {
            "inputs": digests,
            "tokeniser": file_sha256(tokeniser) if isinstance(tokeniser, Path) else "",
        }

    def read(self, folder: Path, progress: Progress) -> list[TextPart]:
        config = self.config
        done = 0
        total = 0
        texts = {}

        def told(file_bytes: int) -> None:
            nonlocal done
            done = file_bytes

        for split, files in config.splits.items():
            texts[split] = paragraphs_of(files, config.layout, config.field, told, total)
            total += source_bytes(files)
        parts = read_parts(
            folder,
            texts,
            partial(split_paragraphs, config.layout, config.language),
            characters=lambda paragraph: len(paragraph[1]),
            processes=config.processes,
            progress=lambda known: progress("read", min(done, total - 1), total),
        )
        progress("read", total, total)
        train = [known for _, split, known in parts if split == "train"]
        documents = sum(known["documents"] for known in train)
        self._check({split for _, split, _ in parts}, documents)
        self.words = sum(known["words"] for known in train)
        return numbered(
            parts, "documents", {} if "valid" in config.splits else {"train": _held_out(documents)}
        )

    def _check(self, read: set[str], documents: int) -> None:
        """Raise UserError for a split without text, and fewer than two documents to train on."""
        for split, files in self.config.splits.items():
            if split not in read:
                raise UserError(
                    f"{files[0]}: no text in it; give a paragraph a line, and a blank line between "
                    "documents"
                )
        if documents < 2:
            raise UserError(
                f"{self.config.splits['train'][0]}: only one document; at least 2 are needed, "
                "since a random next sentence comes from another document. Put a blank line "
                "between documents, or for WikiText take --layout wikitext"
            )

    def learn(self, counts: Sequence[Counter[str]], path: Path) -> None:
        kind = self.config.tokeniser
        tokeniser = (
            TextTokeniser.load(kind)
            if isinstance(kind, Path)
            else TextTokeniser.of_counts(
                counts[0], self.config.entries, kind=kind, lowercase=self.config.lowercase
            )
        )
        write_atomically(path, tokeniser.to_json())

    def writers(self, folder: Path, learned: Path, stack: ExitStack) -> dict[str, SplitWriter]:
        tokeniser = TextTokeniser.load(learned)
        tokeniser.save(folder / TOKENISER)
        self.vocabulary_size = len(tokeniser)
        names = dict.fromkeys([*self.config.splits, "valid"])
        return {
            name: stack.enter_context(SplitWriter(folder, name, len(tokeniser))) for name in names
        }

    def counts(self, writers: Mapping[str, SplitWriter]) -> dict[str, Any]:
        for writer in writers.values():
            writer.end()
        counted = {}
        for what in _COUNTED:
            counted[what] = {name: getattr(writer, what) for name, writer in writers.items()}
        return {
            "vocabulary_size": self.vocabulary_size,
            "held_out": "valid" not in self.config.splits,
            **counted,
        }


def _held_out(documents: int) -> list[int]:
    """Returns the numbers of the training documents that become validation text, in ascending
    order.
    """
    # Two of a small corpus, where two are left to train on: a random next sentence comes from
    # another document.
    count = max(documents // HOLD_OUT_EVERY, min(2, documents // 2))
    return sorted(permutation(documents, 0)[:count].tolist())
