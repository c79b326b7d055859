"""The corpus a run trains on, of pairs or of documents: a prepared folder, or the embedded toy
language.
"""

from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from ..errors import UserError
from ..limits.reading import is_folder, shown
from .batches import StableDraw
from .documents import corpus as documents, tokeniser as tokenisers
from .lexicon import english_words, german_words
from .parallel import codec, corpus, vocabulary
from .toy import SPLITS, toy_pairs

TOY = "toy"
_TOY_HELD_OUT = 500
_MOST_TOY_PAIRS = 1_000_000
"""Made in minutes, and held in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The data of a training, and the size of a batch."""

    corpus: str = TOY
    """A folder made by `normscope data prepare`, or `toy` for the embedded language."""
    reverse: bool = False
    """Translate from the corpus's target language to its source language."""
    toy_pairs: int = 20_000
    """toy: sentence pairs of the training split."""
    max_tokens: int = 4096
    """The largest batch: longest sentence of either side, in tokens, times sentences (fairseq's
    --max-tokens).
    """

    def __post_init__(self) -> None:
        if not 1 <= self.toy_pairs <= _MOST_TOY_PAIRS or self.max_tokens < 1:
            raise ValueError(
                "toy_pairs and max_tokens must be at least 1, and toy_pairs at most "
                f"{_MOST_TOY_PAIRS:,}, got {self.toy_pairs} and {self.max_tokens}"
            )


def open_corpus(config: DataConfig) -> corpus.Corpus:
    """Opens the corpus in the direction that the configuration names.

    Raises UserError where the folder is not a whole corpus.
    """
    if config.corpus == TOY:
        found = toy_corpus(config.toy_pairs)
    else:
        found = corpus.Corpus.open(_folder(config.corpus, "prepare"))
    return found.reversed() if config.reverse else found


def _folder(corpus: str, command: str) -> Path:
    """Returns the folder of a corpus. Raises UserError where there is none, which a command of
    `normscope data` makes.
    """
    if not is_folder(Path(corpus)):
        raise UserError(
            f"no corpus at {shown(corpus, 1000)}: give a folder made by `normscope data "
            f"{command}`, or {TOY!r} for the embedded language"
        )
    return Path(corpus)


def toy_corpus(train_pairs: int) -> corpus.Corpus:
    """Returns the embedded language in memory: word-level vocabularies, joined, and 500 pairs each
    to validate and test on.
    """
    words = vocabulary.Vocabulary.of_words(sorted({*german_words(), *english_words()}))
    sides = [
        codec.CodecSide(
            form=codec.TextForm(language=language, tokenise=False, lowercase=True), vocabulary=words
        )
        for language in ("de", "en")
    ]
    counts = {"train": train_pairs, "valid": _TOY_HELD_OUT, "test": _TOY_HELD_OUT}
    lines = {}
    for name, count in counts.items():
        pairs = toy_pairs(count, seed=1, split=name)
        lines[name] = [german for german, _ in pairs], [english for _, english in pairs]
    return corpus.Corpus.of_lines(codec.Codec(source=sides[0], target=sides[1], joint=True), lines)


_TOY_DOCUMENTS = {"train": 2000, "valid": 60, "test": 60}
_TOY_VOCABULARY = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDataConfig:
    """The data of a training, and the size of a batch."""

    corpus: str = TOY
    """A folder made by `normscope data documents`, or `toy` for English sentences of the embedded
    language.
    """
    sequence_length: int = 512
    """Tokens of the longest sequence, special tokens included."""
    batch_sequences: int = 256
    """Sequences of a batch; BERT's size (Devlin et al. 2018, appendix A.2)."""

    def __post_init__(self) -> None:
        if self.sequence_length < 8 or self.batch_sequences < 1:
            raise ValueError(
                "sequence_length must be at least 8 and batch_sequences 1, got "
                f"{self.sequence_length} and {self.batch_sequences}"
            )


def open_documents(config: TextDataConfig) -> documents.DocumentCorpus:
    """Opens a corpus of documents. Raises UserError where the folder is not a whole one."""
    if config.corpus == TOY:
        return toy_documents()
    return documents.DocumentCorpus.open(_folder(config.corpus, "documents"))


@cache
def toy_documents() -> documents.DocumentCorpus:
    """Returns the embedded language in memory: documents of 4 to 12 English sentences that have
    nothing else in common.
    """
    texts = {}
    for split in SPLITS:
        draw = StableDraw(f"toy documents {split}")
        sizes = [4 + draw.below(9) for _ in range(_TOY_DOCUMENTS[split])]
        sentences = iter(english for _, english in toy_pairs(sum(sizes), seed=1, split=split))
        texts[split] = [list(islice(sentences, size)) for size in sizes]
    learned_from = (sentence for document in texts["train"] for sentence in document)
    tokeniser = tokenisers.TextTokeniser.learn(
        learned_from, _TOY_VOCABULARY, kind="wordpiece", lowercase=True
    )
    return documents.DocumentCorpus.of_texts(tokeniser, texts)
