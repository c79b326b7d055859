"""The base of tasks on a corpus of documents: masked tokens and language modelling."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from ..data import opening
from ..data.batches import EpochBatches
from ..data.documents.corpus import TOKENISER, DocumentCorpus
from ..data.documents.tokeniser import SPECIALS, TextTokeniser
from ..errors import UserError
from ..placement import StackShape
from ..train import Objective
from .loss import unigram_entropy_nats
from .protocol import Evaluation, LoadedRun, Task, TrainingBatch
from .run_config import TextRunConfig


class TextObjective(Objective):
    """Batches of sequences of a corpus of documents, their loss, and means over any split."""

    epochs: EpochBatches
    """The batches of the training split."""

    def __init__(self, corpus: DocumentCorpus, config: Any, device: torch.device) -> None:
        self.corpus = corpus
        self.seed = config.seed
        self.device = device
        self.sequence_length, self.batch_sequences = (
            config.data.sequence_length,
            config.data.batch_sequences,
        )

    @property
    def micro_batches_per_epoch(self) -> int:
        return len(self.epochs)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """`evaluate` of the validation split."""
        return self.evaluate(model, "valid")

    @abstractmethod
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """Means over a split."""


class TextTask(Task):
    """Sequences of tokens of documents, read by one stack."""

    specials: ClassVar[tuple[str, ...]] = SPECIALS
    """The special tokens that its sequences are made with."""
    objective_of: ClassVar[type[TextObjective]]
    """The class of its objective."""

    def batches(
        self, config: TextRunConfig, corpus: DocumentCorpus
    ) -> Callable[[int], TrainingBatch]:
        objective = self.objective(config, corpus, torch.device("cpu"))
        return lambda number: self.training_batch(objective.micro_batch(number))

    @abstractmethod
    def training_batch(self, batch: Any) -> TrainingBatch:
        """The model on a batch of the objective."""

    def open(self, config: TextRunConfig) -> DocumentCorpus:
        return opening.open_documents(config.data)

    def load_codec(self, vocabularies: Path) -> TextTokeniser:
        return TextTokeniser.load(vocabularies / TOKENISER)

    def save_vocabularies(self, corpus: DocumentCorpus, folder: Path) -> None:
        corpus.tokeniser.save(folder / TOKENISER)

    def build(self, config: TextRunConfig, codec: TextTokeniser) -> Any:
        lacking = [special for special in self.specials if special in codec.lacks]
        if lacking:
            raise UserError(
                f"the tokeniser has no {' and no '.join(lacking)}, which task {self.name} needs"
            )
        return self.drawn(config, len(codec))

    def objective(
        self, config: TextRunConfig, corpus: DocumentCorpus, device: torch.device
    ) -> TextObjective:
        return self.objective_of(corpus, config, device)

    def evaluate(
        self, run: LoadedRun, corpus: DocumentCorpus, split: str, search: Mapping[str, Any]
    ) -> Evaluation:
        objective = self.objective(run.config, corpus, next(run.model.parameters()).device)
        return Evaluation(settings={}, scores=objective.evaluate(run.model, split))

    def chance_nats(self, corpus: DocumentCorpus) -> float:
        return unigram_entropy_nats(corpus.splits["valid"].tokens)

    def shapes(self, config: TextRunConfig) -> list[StackShape]:
        return [config.model.shape()]

    def corpus_facts(self, config: TextRunConfig, corpus: DocumentCorpus) -> list[tuple[str, str]]:
        train, valid = corpus.splits["train"], corpus.splits["valid"]
        return [
            ("Corpus", Path(config.data.corpus).name),
            ("Fingerprint", corpus.fingerprint),
            (
                "Documents",
                f"{len(train):,} to train on ({len(train.tokens):,} tokens), {len(valid):,} to "
                "validate on",
            ),
            ("Vocabulary", f"{len(corpus.tokeniser):,}"),
        ]

    def batch_tokens(self, config: TextRunConfig) -> int | None:
        return config.data.batch_sequences * config.data.sequence_length

    def batch_words(self, config: TextRunConfig) -> str:
        return (
            f"{config.data.batch_sequences} sequences of up to {config.data.sequence_length} tokens"
        )

    def in_smaller_batches(self, config: TextRunConfig, tokens: int) -> TextRunConfig:
        fewer = min(config.data.batch_sequences, max(1, tokens // config.data.sequence_length))
        return replace(config, data=replace(config.data, batch_sequences=fewer))
