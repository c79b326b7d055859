"""Decoder-only language modelling: the next token of text, and perplexity."""

import math
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...data.documents.corpus import DocumentCorpus
from ...data.documents.stretches import StretchBatch, Stretches
from ...data.documents.tokeniser import SEP
from ...data.epochs import EpochBatches
from ...errors import UserError
from ...model import LanguageModel, Layout
from ...train import ALONE, Share
from ..loss import smoothed_cross_entropy
from ..numbers import LN2
from .config import LanguageModelConfig


class LanguageModelObjective:
    """Stretches of a corpus of documents, and their loss under a `LanguageModel`."""

    def __init__(
        self,
        corpus: DocumentCorpus,
        config: LanguageModelConfig,
        *,
        sequence_length: int,
        batch_sequences: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self.corpus, self.config, self.device = corpus, config, device
        self.sequence_length, self.batch_sequences = sequence_length, batch_sequences
        self.train = self._stretches("train")
        self._stretches("valid")
        self.epochs = EpochBatches(sequences=len(self.train), batch_sequences=batch_sequences, seed=seed)

    @property
    def micro_batches_per_epoch(self) -> int:
        return len(self.epochs)

    def prepare(self, number: int) -> StretchBatch:
        _, indices = self.epochs.micro_batch(number)
        return self.train.batch(indices.tolist())

    def micro_batch(self, number: int) -> StretchBatch:
        return self.prepare(number).to(self.device)

    def target_tokens(self, batch: StretchBatch) -> int:
        return len(batch.targets_N)

    def tokens_of(self, number: int) -> int:
        _, indices = self.epochs.micro_batch(number)
        return self.train.targets_of(indices.tolist())

    def loss_sums(self, model: nn.Module, batch: StretchBatch) -> tuple[Tensor, Tensor]:
        """Cross-entropy (smoothed, where asked for) and negative log-likelihood, summed over tokens, in nats."""
        hidden_ND = model(batch.tokens_N, Layout(batch.lengths_B, self.device))
        # A compiled model hands its attributes through; the cast is for the type checker only.
        decoder = cast(LanguageModel, model)
        return smoothed_cross_entropy(
            hidden_ND,
            decoder.output_rows(),
            batch.targets_N,
            self.config.label_smoothing,
            soft_cap=decoder.soft_cap,
        )

    def validate(self, model: nn.Module, share: Share = ALONE.share) -> dict[str, float]:
        """`evaluate` of the validation split."""
        return self.evaluate(model, "valid", share)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str, share: Share = ALONE.share) -> dict[str, float]:
        """Means over a split, in nats, and perplexities: per token, and per word as blanks part them, which compares
        between tokenisers. Each token sees what its stretch holds before it, as in training."""
        was_training = model.training
        model.eval()
        stretches = self._stretches(split)
        batches = EpochBatches(sequences=len(stretches), batch_sequences=self.batch_sequences, seed=0).in_order()

        def sums_of(indices: NDArray[np.int64]) -> tuple[float, float]:
            loss, nll = self.loss_sums(model, stretches.batch(indices.tolist()).to(self.device))
            return float(loss), float(nll)

        loss_sum = nll_sum = 0.0
        for loss, nll in share(batches, sums_of):
            loss_sum, nll_sum = loss_sum + loss, nll_sum + nll
        model.train(was_training)
        nll = nll_sum / stretches.targets
        return {
            "loss_nats": loss_sum / stretches.targets,
            "nll_nats": nll,
            "nll_bits": nll / LN2,
            "perplexity": _exp(nll),
            "word_perplexity": _exp(nll_sum / self.corpus.splits[split].words),
        }

    def _stretches(self, split: str) -> Stretches:
        if split not in self.corpus.splits or not len(self.corpus.splits[split]):
            raise UserError(f"the corpus has no {split} split with text in it; it has {', '.join(self.corpus.splits)}")
        end = self.corpus.tokeniser.ids[SEP]
        return Stretches.of(self.corpus.splits[split], length=self.sequence_length, end=end)


def _exp(nats: float) -> float:
    """A model gone wrong has a perplexity beyond what a float holds; metrics lines have no infinity."""
    return math.exp(min(nats, 700.0))
