"""From text files to a corpus of documents: split into sentences, learn the tokeniser, write token ids.

Where no validation files are given, every 200th document at random is held out: 199 to 1, as Xiong et al. 2020,
section 4.1, split Wikipedia.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...files import disk_errors, recover, whole_folder
from ..lines import file_sha256
from ..manifest import check_replaceable, write_manifest
from ..order import permutation
from ..text import check_language
from .corpus import FORMAT, TOKENISER, VERSION, DocumentCorpus, DocumentSplit
from .text import Layout, TextDocument, documents_in
from .tokeniser import Kind, TextTokeniser

HOLD_OUT_EVERY = 200
VOCABULARY_SIZE = 30_000
_DOCUMENTS_AT_ONCE = 256

Progress = Callable[[str, int, int], None]
"""Called with a stage ("read", "learn", "encode"), how much of it is done, and its total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsConfig:
    """What a corpus of documents is made of."""

    out: Path
    splits: Mapping[str, tuple[Path, ...]]
    """Name -> text files; "train" is required, "valid" is taken out of train where it is missing."""
    tokeniser: Kind | Path = "wordpiece"
    """wordpiece or bpe to learn one, or a `tokenizer.json` to take."""
    vocabulary_size: int | None = None
    """Of one that is learned; 30,000 where it is not said, BERT's."""
    lowercase: bool = False
    """Of one that is learned."""
    layout: Layout = "paragraphs"
    language: str = "en"

    def __post_init__(self) -> None:
        try:
            check_language(self.language)
        except ValueError as error:
            raise UserError(f"language: {error}") from error
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


def prepare_documents(config: DocumentsConfig, progress: Progress = lambda stage, done, total: None) -> DocumentsReport:
    """Make the corpus at `config.out`, whole or not at all; does nothing where it stands there already.

    Raises UserError for input that cannot be used, for an `out` that holds something else, and for a disk that is full
    or cannot be written.
    """
    out = config.out.expanduser().resolve()
    with disk_errors(f"writing {out}"):
        recover(out)
    check_replaceable(out)
    key = _key(config)
    standing = _standing(out, key)
    if standing is not None:
        return standing
    texts = _texts(config, progress)
    tokeniser = _tokeniser(config, texts["train"], progress)
    size, splits = len(tokeniser), {}
    for done, (name, documents) in enumerate(texts.items()):
        progress("encode", done, len(texts))
        words = sum(document.words for document in documents)
        splits[name] = DocumentSplit.of(_encoded(tokeniser, documents), words=words, vocabulary_size=size)
    progress("encode", len(texts), len(texts))
    report = DocumentsReport(
        out=out,
        unchanged=False,
        fingerprint="",  # known when the manifest, which holds the rest of the report, is written
        vocabulary_size=size,
        held_out="valid" not in config.splits,
        documents={name: len(split) for name, split in splits.items()},
        sentences={name: len(split.sentences) - 1 for name, split in splits.items()},
        words={name: split.words for name, split in splits.items()},
        tokens={name: len(split.tokens) for name, split in splits.items()},
    )
    with disk_errors(f"writing {out}"), whole_folder(out) as folder:
        tokeniser.save(folder / TOKENISER)
        for name, split in splits.items():
            split.save(folder, name, size)
        preparation = {"key": key, "options": config.options(), "report": report.state()}
        noted = write_manifest(folder, format_name=FORMAT, version=VERSION, splits=splits, preparation=preparation)
    return replace(report, fingerprint=noted)


def _key(config: DocumentsConfig) -> str:
    """SHA-256 over options, format version and input bytes: equal where preparing again would change nothing."""
    state = {
        "version": VERSION,
        "options": config.options(),
        "inputs": {name: [file_sha256(file) for file in files] for name, files in config.splits.items()},
        "tokeniser": file_sha256(config.tokeniser) if isinstance(config.tokeniser, Path) else "",
    }
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _standing(out: Path, key: str) -> DocumentsReport | None:
    """The report of the corpus at `out` if it is sound and of this key."""
    try:
        corpus = DocumentCorpus.open(out)
        if corpus.preparation.get("key") != key:
            return None
        return DocumentsReport(out=out, unchanged=True, fingerprint=corpus.fingerprint, **corpus.preparation["report"])
    except (UserError, KeyError, TypeError):
        return None  # none there, or a damaged one, which is made anew


def _texts(config: DocumentsConfig, progress: Progress) -> dict[str, list[TextDocument]]:
    """The documents of every split, some of train held out where there is no other validation text."""
    texts = {}
    for done, (name, files) in enumerate(config.splits.items()):
        progress("read", done, len(config.splits))
        texts[name] = list(documents_in(files, config.layout, config.language))
        if not texts[name]:
            raise UserError(f"{files[0]}: no text in it; give a paragraph a line, and a blank line between documents")
    progress("read", len(config.splits), len(config.splits))
    if len(texts["train"]) < 2:
        raise UserError(
            f"{config.splits['train'][0]}: only one document; at least 2 are needed, since a random next sentence "
            "comes from another document. Put a blank line between documents, or for WikiText take --layout wikitext"
        )
    if "valid" not in texts:
        train = texts["train"]
        # Two of a small corpus, where two are left to train on: a random next sentence comes from another document.
        count = max(len(train) // HOLD_OUT_EVERY, min(2, len(train) // 2))
        held_out = set(permutation(len(train), 0)[:count].tolist())
        texts["valid"] = [document for number, document in enumerate(train) if number in held_out]
        texts["train"] = [document for number, document in enumerate(train) if number not in held_out]
    return texts


def _tokeniser(config: DocumentsConfig, documents: list[TextDocument], progress: Progress) -> TextTokeniser:
    if isinstance(config.tokeniser, Path):
        return TextTokeniser.load(config.tokeniser)
    progress("learn", 0, 1)
    texts = (sentence for document in documents for sentence in document.sentences)
    learned = TextTokeniser.learn(texts, config.entries, kind=config.tokeniser, lowercase=config.lowercase)
    progress("learn", 1, 1)
    return learned


def _encoded(tokeniser: TextTokeniser, documents: list[TextDocument]) -> Iterator[list[list[int]]]:
    for start in range(0, len(documents), _DOCUMENTS_AT_ONCE):
        some = documents[start : start + _DOCUMENTS_AT_ONCE]
        ids = iter(tokeniser.encode_many([sentence for document in some for sentence in document.sentences]))
        for document in some:
            yield [next(ids) for _ in document.sentences]
