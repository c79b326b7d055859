"""The corpus of documents a run trains on: a prepared folder, or sentences of the embedded toy language."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...errors import UserError
from ...limits.reading import is_folder, shown
from ..draw import Draw
from ..parallel.opening import TOY
from ..toy.language import SPLITS, toy_pairs
from .corpus import DocumentCorpus
from .tokeniser import TextTokeniser

_TOY_DOCUMENTS = {"train": 2000, "valid": 60, "test": 60}
_TOY_VOCABULARY = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDataConfig:
    """What to train on, and how large a batch is."""

    corpus: str = TOY
    """A folder made by `normscope data documents`, or `toy` for English sentences of the embedded language."""
    sequence_length: int = 512
    """Tokens of the longest sequence, special tokens included."""
    batch_sequences: int = 256
    """Sequences of a batch; BERT's size (Devlin et al. 2018, appendix A.2)."""

    def __post_init__(self) -> None:
        if self.sequence_length < 8 or self.batch_sequences < 1:
            raise ValueError(
                f"sequence_length must be at least 8 and batch_sequences 1, got {self.sequence_length} and "
                f"{self.batch_sequences}"
            )


def open_documents(config: TextDataConfig) -> DocumentCorpus:
    """Raises UserError where the folder is not a whole corpus of documents."""
    if config.corpus == TOY:
        return toy_documents()
    if not is_folder(Path(config.corpus)):
        raise UserError(
            f"no corpus at {shown(config.corpus, 1000)}: give a folder made by `normscope data documents`, or {TOY!r} "
            "for the embedded language"
        )
    return DocumentCorpus.open(Path(config.corpus))


@cache
def toy_documents() -> DocumentCorpus:
    """The embedded language in memory: documents of 4 to 12 English sentences that have nothing else in common."""
    texts = {}
    for split in SPLITS:
        draw = Draw(f"toy documents {split}")
        sizes = [4 + draw.below(9) for _ in range(_TOY_DOCUMENTS[split])]
        sentences = iter(english for _, english in toy_pairs(sum(sizes), seed=1, split=split))
        texts[split] = [[next(sentences) for _ in range(size)] for size in sizes]
    learned_from = (sentence for document in texts["train"] for sentence in document)
    tokeniser = TextTokeniser.learn(learned_from, _TOY_VOCABULARY, kind="wordpiece", lowercase=True)
    return DocumentCorpus.of_texts(tokeniser, texts)
