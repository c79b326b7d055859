"""transformers' Trainer beside a loop written out here: the same losses and logits, whatever the
placement.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from labelled_toy import tables, toy_encoder
from normscope.adapters.fine_tuning import TrainerRecipe, fine_tuned
from normscope.data.labelled import LabelledData, LabelledSplit, encoded
from normscope.finetune.classifier import OwnEncoder, SentenceClassifier
from normscope.model import Layout, MaskedEncoder

pytest.importorskip("transformers", reason="needs Hugging Face transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")

ROWS, BATCH, EPOCHS, UPDATES, RATE = 80, 8, 2, 20, 2e-3
WARMUP_UPDATES = 2
LOSS_BOUND, LOGIT_BOUND = 1e-6, 1e-9
"""In float64; Trainer sums up losses in float32."""


class Recorded:
    """A split that notes which of its rows were asked for."""

    def __init__(self, split: LabelledSplit) -> None:
        self.split, self.asked = split, list[int]()

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, row: int) -> Any:
        self.asked.append(row)
        return self.split[row]


def classifier(encoder: MaskedEncoder, data: LabelledData) -> SentenceClassifier:
    width, classes = encoder.config.width, len(data.labels)
    return SentenceClassifier(
        OwnEncoder(encoder), encoder.pooler, width=width, classes=classes, dropout=0.0, seed=1
    ).double()


def logits_by_hand(model: SentenceClassifier, split: LabelledSplit, rows: Sequence[int]) -> Tensor:
    """Of rows laid end to end without padding, (B, C)."""
    encoder: Any = model.encoder
    tokens_N = torch.from_numpy(np.concatenate([split.tokens_T[row] for row in rows]))
    segments_N = torch.from_numpy(np.concatenate([split.segments_T[row] for row in rows]))
    lengths = [len(split.tokens_T[row]) for row in rows]
    hidden_ND = encoder.model(tokens_N, segments_N, Layout(torch.tensor(lengths)))
    firsts = np.cumsum([0, *lengths[:-1]]).tolist()
    pooled_BD = torch.tanh(hidden_ND[firsts] @ model.pooler.weight.T + model.pooler.bias)
    return pooled_BD @ model.classifier.weight.T + model.classifier.bias


def rate_of(update: int) -> float:
    """Of an update counted from 0, as transformers' linear schedule states it."""
    if update < WARMUP_UPDATES:
        return RATE * update / WARMUP_UPDATES
    return RATE * (UPDATES - update) / (UPDATES - WARMUP_UPDATES)


def losses_by_hand(model: nn.Module, split: LabelledSplit, order: Sequence[int]) -> list[float]:
    """Adam with decoupled decay of matrices, gradients cut at norm 1: Loshchilov and Hutter 2019,
    algorithm 2.
    """
    first = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    second = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    losses = []
    for update in range(UPDATES):
        rows = order[update * BATCH : (update + 1) * BATCH]
        labels = torch.from_numpy(split.labels_P[list(rows)])
        chosen = logits_by_hand(model, split, rows).log_softmax(-1)[range(len(rows)), labels]
        loss = -chosen.mean()
        model.zero_grad()
        loss.backward()
        losses.append(loss.item())
        moved = {n: p for n, p in model.named_parameters() if p.grad is not None}
        norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in moved.values()))
        with torch.no_grad():
            for name, p in moved.items():
                gradient = p.grad * min(1.0, 1.0 / (norm + 1e-6))
                if p.ndim > 1:
                    p.mul_(1 - rate_of(update) * 0.01)
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.999 * second[name] + 0.001 * gradient**2
                mean = first[name] / (1 - 0.9 ** (update + 1))
                root = (second[name] / (1 - 0.999 ** (update + 1))).sqrt()
                p.sub_(rate_of(update) * mean / (root + 1e-6))
    return losses


@pytest.mark.parametrize("placement", ["pre-ln", "post-ln", "deepnorm", "residual", "b2t"])
def test_trainer_gives_the_losses_and_logits_of_a_loop_by_hand(placement: str) -> None:
    """Residual and B2T are computed by no model of transformers, which could not train them."""
    encoder, tokeniser = toy_encoder(placement)
    data = encoded(*tables(ROWS, 24), tokeniser, sequence_length=32)
    train = Recorded(data.train)
    recipe = TrainerRecipe(
        batch_sequences=BATCH,
        peak_lr=RATE,
        epochs=EPOCHS,
        warmup_share=WARMUP_UPDATES / UPDATES,
        seed=3,
        device="cpu",
    )
    by_trainer = classifier(toy_encoder(placement)[0], data)
    trained = list(by_trainer.parameters())
    before = [p.detach().clone() for p in trained]
    found = fine_tuned(by_trainer, train, data.dev, data.batch, recipe)

    by_hand = classifier(encoder, data)
    losses = losses_by_hand(by_hand, data.train, train.asked)
    with torch.no_grad():
        logits_PC = logits_by_hand(by_hand, data.dev, range(len(data.dev)))

    assert sorted(train.asked) == sorted([*range(ROWS)] * EPOCHS)
    assert train.asked[:ROWS] != train.asked[ROWS:]
    assert [update for update, _ in found.losses] == list(range(1, UPDATES + 1))
    np.testing.assert_allclose([loss for _, loss in found.losses], losses, atol=LOSS_BOUND, rtol=0)
    np.testing.assert_allclose(found.logits_PC, logits_PC.numpy(), atol=LOGIT_BOUND, rtol=0)
    # The bounds are far below what training changes.
    assert max(losses) - min(losses) > 1000 * LOSS_BOUND
    with torch.no_grad():
        moved = [float((p - old).abs().max()) for p, old in zip(trained, before, strict=True)]
    assert max(moved) > 1e-3
