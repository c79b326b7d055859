"""A prepared corpus of documents: token ids of sentences, where each sentence and each document
begins, the tokeniser.

A folder holds `corpus.json` (SHA-256 of every file, how it was made), `tokenizer.json`, and for
each split `<split>.tokens` (all sentences end to end, without special tokens),
`<split>.sentences.offsets` (where each begins, and the end, in tokens) and
`<split>.documents.offsets` (the same of documents, in sentences).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from .. import folder as stored
from .tokeniser import TextTokeniser

FORMAT, VERSION = "normscope-documents", 2
TOKENISER = "tokenizer.json"


def stored_types(vocabulary_size: int) -> dict[str, np.dtype[Any]]:
    """Returns the dtypes of a split's arrays by their names behind the split's: tokens, sentences,
    documents.
    """
    return {
        "tokens": stored.token_dtype(vocabulary_size),
        "sentences.offsets": stored.OFFSET_DTYPE,
        "documents.offsets": stored.OFFSET_DTYPE,
    }


@dataclass(frozen=True, eq=False, kw_only=True)
class DocumentSplit:
    """Sentence i is tokens[sentences[i] : sentences[i + 1]]; document k has the sentences from
    documents[k] on.
    """

    tokens: NDArray[Any]
    sentences: NDArray[Any]
    """One more than there are sentences; the first is 0, and none is empty."""
    documents: NDArray[Any]
    """One more than there are documents; the first is 0, and none is empty."""
    words: int
    """Words of the text, as blanks part them: what a perplexity per word is counted on."""

    def __len__(self) -> int:
        """Documents."""
        return len(self.documents) - 1

    @classmethod
    def of(
        cls, documents: Iterable[Sequence[Sequence[int]]], *, words: int, vocabulary_size: int
    ) -> Self:
        """Makes a split in memory, from the ids of each sentence of each document; what is empty is
        left out.
        """
        rows: list[NDArray[Any]] = []
        ends = [0]
        for document in documents:
            rows += [
                np.asarray(ids, dtype=stored.token_dtype(vocabulary_size))
                for ids in document
                if len(ids)
            ]
            if len(rows) > ends[-1]:
                ends.append(len(rows))
        return cls(
            tokens=np.concatenate(rows)
            if rows
            else np.empty(0, dtype=stored.token_dtype(vocabulary_size)),
            sentences=np.cumsum([0, *map(len, rows)], dtype=np.int64),
            documents=np.array(ends, dtype=np.int64),
            words=words,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class DocumentCorpus:
    """Made by `open` or `in_memory`."""

    tokeniser: TextTokeniser
    fingerprint: str
    """SHA-256 over token ids, offsets and tokeniser: equal for equal training data, wherever it
    lies.
    """
    splits: Mapping[str, DocumentSplit]
    preparation: Mapping[str, Any]
    """The record of how the corpus was made, as its maker noted it; empty in memory."""

    @property
    def codec(self) -> TextTokeniser:
        return self.tokeniser

    @classmethod
    def in_memory(cls, tokeniser: TextTokeniser, splits: Mapping[str, DocumentSplit]) -> Self:
        """Returns a corpus without a folder; its fingerprint is that of the same corpus on the
        disk.
        """
        types = stored_types(len(tokeniser)).items()
        digests = {
            f"{name}.{kind}": stored.array_digest(array, dtype)
            for name, split in splits.items()
            for (kind, dtype), array in zip(
                types, (split.tokens, split.sentences, split.documents), strict=True
            )
        }
        digests[TOKENISER] = hashlib.sha256(tokeniser.to_json().encode()).hexdigest()
        return cls(
            tokeniser=tokeniser,
            fingerprint=stored.fingerprint(digests),
            splits=dict(splits),
            preparation={},
        )

    @classmethod
    def of_texts(
        cls, tokeniser: TextTokeniser, texts: Mapping[str, Sequence[Sequence[str]]]
    ) -> Self:
        """Makes a corpus in memory, from the sentences of each document of each split."""
        splits = {}
        for name, documents in texts.items():
            words = sum(len(sentence.split()) for document in documents for sentence in document)
            ids = (tokeniser.encode_many(document) for document in documents)
            splits[name] = DocumentSplit.of(ids, words=words, vocabulary_size=len(tokeniser))
        return cls.in_memory(tokeniser, splits)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a prepared corpus; token ids stay on the disk and are mapped into memory.

        Every file is read once and its SHA-256 compared. Raises UserError for a folder that is no
        such corpus, or one that is incomplete, damaged or of another version.
        """
        names, noted, preparation = stored.open_manifest(
            folder, format_name=FORMAT, version=VERSION, made_by="`normscope data documents`"
        )
        tokeniser = TextTokeniser.load(folder / TOKENISER)
        try:
            words = {name: int(preparation["report"]["words"][name]) for name in names}
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{folder / stored.MANIFEST}: damaged ({error!r}); prepare the corpus again"
            ) from error
        splits = {}
        for name in names:
            tokens, sentences, documents = (
                stored.mapped(folder / f"{name}.{kind}", dtype)
                for kind, dtype in stored_types(len(tokeniser)).items()
            )
            splits[name] = DocumentSplit(
                tokens=tokens, sentences=sentences, documents=documents, words=words[name]
            )
        return cls(tokeniser=tokeniser, fingerprint=noted, splits=splits, preparation=preparation)


def encoded_sentences(
    tokens: NDArray[np.integer], lengths: NDArray[np.int64], numbers: NDArray[np.int64], words: int
) -> dict[str, NDArray[Any]]:
    """Returns the arrays of a part for one split, as its writer takes them, without sentences and
    documents that have no tokens.

    lengths, numbers: tokens of every sentence, and the number of its document. words: of all
    documents.
    """
    kept = lengths > 0
    found, counts = np.unique(numbers[kept], return_counts=True)
    return {
        "tokens": tokens,
        "lengths": lengths[kept],
        "numbers": found,
        "sentences": counts,
        "words": np.array([words]),
    }


class SplitWriter(stored.TokenWriter):
    """Writes one split into a corpus folder, part by part."""

    def __init__(self, folder: Path, name: str, vocabulary_size: int) -> None:
        _, sentences, documents = stored_types(vocabulary_size)
        super().__init__(folder, name, vocabulary_size, offsets=sentences)
        self._documents = self.enter_context((folder / f"{name}.{documents}").open("wb"))
        stored.append_numbers(self._documents, [0], stored.OFFSET_DTYPE)
        self._last = -1
        self.documents = self.words = 0
        """The counts so far."""

    def append(self, found: Mapping[str, NDArray[Any]]) -> None:
        """Add what a part holds; its first document may be the last one of the part before."""
        begins = self.sentences + np.cumsum(found["sentences"]) - found["sentences"]
        new = found["numbers"] != self._last
        # An offset is where one document ends and the next begins; the first, 0, is written.
        stored.append_numbers(self._documents, begins[new & (begins > 0)], stored.OFFSET_DTYPE)
        super().append(found)
        self.documents += int(new.sum())
        self.words += int(found["words"][0])
        if len(found["numbers"]):
            self._last = int(found["numbers"][-1])

    def end(self) -> None:
        """Write where the last document ends."""
        if self.documents:
            stored.append_numbers(self._documents, [self.sentences], stored.OFFSET_DTYPE)
