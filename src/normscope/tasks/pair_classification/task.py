"""Fine-tuning on labelled sentence pairs as a task."""

import dataclasses

import torch

from ...data.labelled.corpus import open_labelled
from ...model import PairClassifier
from ...train.seeds import seed_weights
from ..protocol import Assembly, Task
from ..run_config import absolute, with_absolute_paths
from .config import PairRunConfig
from .objective import ClassificationObjective
from .start import Start, start_of


class PairClassification(Task[PairRunConfig]):
    """Classes of sentence pairs, by a pre-trained encoder and a classifier drawn anew."""

    name: str = "pair-classification"
    config = PairRunConfig

    def with_absolute_paths(self, config: PairRunConfig) -> PairRunConfig:
        valid = absolute(config.data.valid_file) if config.data.valid_file else ""
        data = dataclasses.replace(config.data, corpus=absolute(config.data.corpus), valid_file=valid)
        start = dataclasses.replace(config.start, run=absolute(config.start.run))
        return dataclasses.replace(with_absolute_paths(config), data=data, start=start)

    def assemble(self, config: PairRunConfig, device: torch.device) -> Assembly:
        start = start_of(config)
        pairs = open_labelled(config.data, start.tokeniser)
        return Assembly(
            corpus=pairs,
            objective=ClassificationObjective(
                pairs, batch_sequences=config.data.batch_sequences, seed=config.seed, device=device
            ),
            build=lambda: classifier(config, start, len(pairs.labels)),
            drawn=False,
        )


def classifier(config: PairRunConfig, start: Start, classes: int) -> PairClassifier:
    """The model with the weights of `start` and a classifier drawn anew. Raises UserError for a damaged checkpoint."""
    seed_weights(config.seed)
    model = PairClassifier(config.model, len(start.tokeniser), classes, dropout=config.classification.dropout)
    model.start_from(start.encoder())
    return model


PAIR_CLASSIFICATION: PairClassification = PairClassification()
