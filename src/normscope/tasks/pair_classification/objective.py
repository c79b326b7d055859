"""The loss of classifying sentence pairs (Devlin et al. 2018, section 4.1)."""

# N = packed tokens, B = sequences, D = width, C = classes
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ...data.epochs import EpochBatches
from ...data.labelled.corpus import LabelledBatch, LabelledCorpus
from ...model import Layout
from ...model.classifier import PairClassifier
from ...train import ALONE, Share
from ..numbers import LN2, at_least_float32


class ClassificationObjective:
    """Batches of labelled pairs, and their loss under a `PairClassifier`."""

    def __init__(self, corpus: LabelledCorpus, *, batch_sequences: int, seed: int, device: torch.device) -> None:
        self.corpus, self.batch_sequences, self.device = corpus, batch_sequences, device
        self.epochs = EpochBatches(sequences=len(corpus.splits["train"]), batch_sequences=batch_sequences, seed=seed)

    @property
    def micro_batches_per_epoch(self) -> int:
        return len(self.epochs)

    def prepare(self, number: int) -> LabelledBatch:
        _, indices = self.epochs.micro_batch(number)
        return self.corpus.splits["train"].batch(indices.tolist())

    def micro_batch(self, number: int) -> LabelledBatch:
        return self.prepare(number).to(self.device)

    def target_tokens(self, batch: LabelledBatch) -> int:
        """The batch's pairs: each has one label to predict, and losses are means over pairs."""
        return len(batch.labels_B)

    def tokens_of(self, number: int) -> int:
        _, indices = self.epochs.micro_batch(number)
        return len(indices)

    def loss_sums(self, model: nn.Module, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        """Cross-entropy summed over the batch's pairs, in nats, twice: nothing is smoothed."""
        loss = functional.cross_entropy(self._logits(model, batch), batch.labels_B, reduction="sum")
        return loss, loss.detach()

    @torch.no_grad()
    def validate(self, model: nn.Module, share: Share = ALONE.share) -> dict[str, float]:
        """Means over the held-out pairs: loss in nats, accuracy, and F1 of the positive label where there are two."""
        was_training = model.training
        model.eval()
        split = self.corpus.splits["valid"]
        batches = EpochBatches(sequences=len(split), batch_sequences=self.batch_sequences, seed=0).in_order()

        def judged(indices: NDArray[np.int64]) -> tuple[float, list[int], list[int]]:
            batch = split.batch(indices.tolist()).to(self.device)
            logits_BC = self._logits(model, batch)
            loss = float(functional.cross_entropy(logits_BC.double(), batch.labels_B, reduction="sum"))
            return loss, logits_BC.argmax(-1).tolist(), batch.labels_B.tolist()

        loss_sum, predicted, labels = 0.0, list[int](), list[int]()
        for loss, of_batch, right in share(batches, judged):
            loss_sum += loss
            predicted += of_batch
            labels += right
        model.train(was_training)
        predicted_B, labels_B = torch.tensor(predicted), torch.tensor(labels)
        nll = loss_sum / len(split)
        numbers = {
            "loss_nats": nll,
            "nll_nats": nll,
            "nll_bits": nll / LN2,
            "accuracy": accuracy(predicted_B, labels_B),
        }
        if self.corpus.positive is not None:
            numbers["f1"] = f1(predicted_B, labels_B, self.corpus.positive)
        return numbers

    def _logits(self, model: nn.Module, batch: LabelledBatch) -> Tensor:
        """(B, C)."""
        layout = Layout(batch.lengths_B, self.device)
        hidden_ND = model(batch.tokens_N, batch.segments_N, layout)
        # A compiled model hands its attributes through; the cast is for the type checker only.
        return at_least_float32(cast(PairClassifier, model).logits(hidden_ND, layout))


def accuracy(predicted_B: Tensor, labels_B: Tensor) -> float:
    """Share of pairs whose label is predicted."""
    return float((predicted_B == labels_B).double().mean())


def f1(predicted_B: Tensor, labels_B: Tensor, positive: int) -> float:
    """2 TP / (2 TP + FP + FN) of the class `positive`; 0 where no pair has that class and none is predicted to."""
    predicted, true = predicted_B == positive, labels_B == positive
    both, either = int((predicted & true).sum()), int(predicted.sum()) + int(true.sum())
    return 2 * both / either if either else 0.0
