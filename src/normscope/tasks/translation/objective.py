"""Translation: its configuration, and label-smoothed cross-entropy of parallel sentences."""

from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...data.opening import DataConfig
from ...data.parallel.batches import BatchSchedule, TranslationBatch, collate, make_batches
from ...data.parallel.corpus import Corpus
from ...errors import UserError
from ...model import EncoderDecoder, Layout, ModelConfig
from ...train import ALONE, Share
from ..loss import LN2, smoothed_cross_entropy
from ..run_config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationConfig:
    """The loss, and how validation translates."""

    label_smoothing: float = 0.1
    bleu_sentences: int = 0
    """Sentences of the validation split to translate at each validation; 0 for no BLEU while training."""
    bleu_beam: int = 1
    """1 is greedy search, which is enough to follow a run."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {self.label_smoothing}")
        if self.bleu_sentences < 0 or self.bleu_beam < 1:
            raise ValueError("bleu_sentences must be 0 or more and bleu_beam at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRunConfig(RunConfig):
    """Translation of sentences."""

    task: Literal["translation"] = "translation"
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    translation: TranslationConfig = field(default_factory=TranslationConfig)


def translation(config: RunConfig, what: str) -> TranslationRunConfig:
    """The configuration, of the one task that `what` can be done with. Raises UserError for another."""
    if not isinstance(config, TranslationRunConfig):
        raise UserError(f'{what} is for task = "translation", and this configuration has task = "{config.task}"')
    return config


class TranslationObjective:
    """Batches of a corpus, and their loss under an `EncoderDecoder`."""

    def __init__(
        self, corpus: Corpus, config: TranslationConfig, *, max_tokens: int, seed: int, device: torch.device
    ) -> None:
        for split in ("train", "valid"):
            if split not in corpus.splits or not len(corpus.splits[split]):
                raise UserError(f"training needs a {split} split with sentences in it, and the corpus has none")
        self.corpus, self.config, self.device = corpus, config, device
        self.train, self.valid = corpus.splits["train"], corpus.splits["valid"]
        self.schedule = BatchSchedule(
            make_batches(self.train.source.lengths, self.train.target.lengths, max_tokens=max_tokens, seed=seed), seed
        )
        # The same batches whatever the run's seed, so that validation losses compare exactly.
        self.valid_batches = make_batches(
            self.valid.source.lengths, self.valid.target.lengths, max_tokens=max_tokens, seed=0
        )

    @property
    def micro_batches_per_epoch(self) -> int:
        return len(self.schedule)

    def prepare(self, number: int) -> TranslationBatch:
        return collate(self.train, self.schedule.micro_batch(number))

    def micro_batch(self, number: int) -> TranslationBatch:
        return self.prepare(number).to(self.device)

    def target_tokens(self, batch: TranslationBatch) -> int:
        return batch.target_tokens

    def tokens_of(self, number: int) -> int:
        return int(self.train.target.lengths[self.schedule.micro_batch(number)].sum())

    def loss_sums(self, model: nn.Module, batch: TranslationBatch) -> tuple[Tensor, Tensor]:
        """Label-smoothed cross-entropy and negative log-likelihood, summed over target tokens, in nats."""
        source_layout = Layout(batch.source_lengths_B, self.device)
        target_layout = Layout(batch.target_lengths_B, self.device)
        hidden_MD = model(
            source_layout.pack(batch.source_BS), source_layout, target_layout.pack(batch.target_in_BT), target_layout
        )
        # A compiled model hands its attributes through; the cast is for the type checker only.
        weight_VD = cast(EncoderDecoder, model).output_rows()
        target_M = target_layout.pack(batch.target_out_BT)
        return smoothed_cross_entropy(hidden_MD, weight_VD, target_M, self.config.label_smoothing)

    @torch.no_grad()
    def validate(self, model: nn.Module, share: Share = ALONE.share) -> dict[str, float]:
        """Mean loss (smoothed) and negative log-likelihood per target token over the validation split, in nats."""
        was_training = model.training
        model.eval()

        def sums_of(indices: NDArray[np.int64]) -> tuple[float, float]:
            loss, nll = self.loss_sums(model, collate(self.valid, indices).to(self.device))
            return float(loss), float(nll)

        loss_sum = nll_sum = 0.0
        for loss, nll in share(self.valid_batches, sums_of):
            loss_sum, nll_sum = loss_sum + loss, nll_sum + nll
        model.train(was_training)
        tokens = int(self.valid.target.lengths.sum())
        return {"loss_nats": loss_sum / tokens, "nll_nats": nll_sum / tokens, "nll_bits": nll_sum / tokens / LN2}
