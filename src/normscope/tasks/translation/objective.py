"""Translation: parallel sentences to label-smoothed cross-entropy."""

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...data.parallel.batches import BatchSchedule, TranslationBatch, collate, make_batches
from ...data.parallel.corpus import Corpus
from ...errors import UserError
from ...model import EncoderDecoder, Layout
from ...train import ALONE, Share
from ..loss import smoothed_cross_entropy
from ..numbers import LN2
from .config import TranslationConfig


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
