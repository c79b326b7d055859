"""The runs of one figure, trained where the folder lacks them, and what they are compared with."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from normscope.compare.sources import sources
from normscope.data.parallel.opening import open_corpus
from normscope.tasks.translation.task import TRANSLATION

from ..engine.pieces import Pieces
from .arms import Arm
from .cells import cells_of, folder_of, train
from .config import RunsConfig
from .curves import Curves, curves_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What a language pair is trained and validated on."""

    unigram_nats: float
    """Entropy of the validation targets taken one by one: what is reached without looking at the source."""
    train_pairs: int
    train_tokens: int
    """Of the target side."""
    valid_pairs: int
    valid_tokens: int
    vocabulary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Curves of every arm, and the text of every language pair."""

    curves: Curves
    texts: dict[str, Text]
    trained_by: dict[str, dict[str, Any]]
    """By run: the source that made it."""

    def unigram(self, arm: Arm) -> float:
        """The baseline of its language pair."""
        return self.texts[arm.pair].unigram_nats


def trained(config: RunsConfig, arms: Iterable[Arm], pieces: Pieces) -> Trained:
    """Raises UserError for text that is not there, and for a training that fails."""
    arms = list(arms)
    cells = cells_of(config, arms, folder_of(config, pieces))
    texts = {pair: _text(config, pair) for pair in dict.fromkeys(arm.pair for arm in arms)}
    train(cells, config, pieces)
    return Trained(curves=curves_of(cells), texts=texts, trained_by=sources(cells))


def _text(config: RunsConfig, pair: str) -> Text:
    corpus = open_corpus(config.training(pair).data)
    train_split, valid = corpus.splits["train"], corpus.splits["valid"]
    return Text(
        unigram_nats=TRANSLATION.chance_nats(corpus),
        train_pairs=len(train_split),
        train_tokens=int(train_split.target.lengths.sum()),
        valid_pairs=len(valid),
        valid_tokens=int(valid.target.lengths.sum()),
        vocabulary=len(corpus.codec.target.vocabulary),
    )
