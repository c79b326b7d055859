"""One short training at a constant rate, after a warm-up or without one: does it learn?"""

import math
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.parallel.batches import TranslationBatch, collate
from ...data.parallel.corpus import Corpus
from ...data.parallel.opening import DataConfig, open_corpus
from ...model import EncoderDecoder, profile
from ...optim import OPTIMIZERS, OptimizerConfig, make_optimizer
from ...optim.schedules import linear_warmup
from ...tasks.translation import TRANSLATION, TranslationConfig, TranslationObjective, TranslationRunConfig
from .cases import Case

VALID_TOKENS = 4000
"""Target tokens that the loss at the end is measured on."""


@cache
def corpus_at(path: str) -> Corpus:
    """Raises UserError where there is none."""
    return open_corpus(DataConfig(corpus=path))


def task_of(case: Case, max_tokens: int) -> TranslationObjective:
    """Plain cross-entropy, so that its end compares with an entropy."""
    loss = TranslationConfig(label_smoothing=0.0)
    return TranslationObjective(
        corpus_at(case.corpus), loss, max_tokens=max_tokens, seed=case.seed, device=torch.device("cpu")
    )


def model_of(case: Case, task: TranslationObjective) -> EncoderDecoder:
    """With its initial weights, those that a placement takes from the first batch included."""
    model = TRANSLATION.build(TranslationRunConfig(seed=case.seed, model=case.model()), task.corpus.codec)
    profile(model, lambda: task.loss_sums(model, task.micro_batch(0)))
    return model


def optimizer_of(case: Case, rate: float) -> OptimizerConfig:
    listed = OPTIMIZERS[case.optimizer]
    return OptimizerConfig(
        name=case.optimizer,
        peak_lr=rate,
        momentum=listed.usual_momentum,
        weight_decay=listed.usual_weight_decay,
    )


def train_once(case: Case, rate: float, *, updates: int, max_tokens: int, warmup_updates: int = 0) -> dict[str, Any]:
    """Losses in nats per target token: of every twentieth of the training, and on held-out text at the end.

    "valid_nats" is None where a loss was not finite. "unigram_nats": the entropy of the held-out text's tokens, taken
    one by one. Dropout is off, and nothing is clipped.
    """
    task = task_of(case, max_tokens)
    model = model_of(case, task)
    optimizer = make_optimizer(model.parameters(), optimizer_of(case, rate))
    losses: list[float] = []
    held_out = _held_out(task)
    for update in range(1, updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * linear_warmup(update, warmup_updates=warmup_updates)
        batch = task.micro_batch(update - 1)
        loss = task.loss_sums(model, batch)[0] / batch.target_tokens
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    valid = _mean_nats(task, model, held_out) if len(losses) == updates else math.nan
    bounds = [updates * part // 20 for part in range(21)]
    return {
        "train_nats": [float(np.mean(losses[a:b])) for a, b in pairwise(bounds) if b <= len(losses)],
        "valid_nats": valid if math.isfinite(valid) else None,
        "unigram_nats": _unigram_nats(held_out),
    }


def _held_out(task: TranslationObjective) -> list[TranslationBatch]:
    """Batches from all over the validation split, long sentences and short ones."""
    many = max(1, round(VALID_TOKENS / (int(task.valid.target.lengths.sum()) / len(task.valid_batches))))
    chosen = np.unique(np.linspace(0, len(task.valid_batches) - 1, many).round().astype(int))
    return [collate(task.valid, task.valid_batches[i]) for i in chosen]


@torch.no_grad()
def _mean_nats(task: TranslationObjective, model: EncoderDecoder, batches: list[TranslationBatch]) -> float:
    model.eval()
    return sum(float(task.loss_sums(model, batch)[1]) for batch in batches) / sum(b.target_tokens for b in batches)


def _unigram_nats(batches: list[TranslationBatch]) -> float:
    counts = torch.bincount(torch.cat([_targets(batch) for batch in batches])).double()
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * shares.log()).sum())


def _targets(batch: TranslationBatch) -> Tensor:
    return torch.cat([row[:length] for row, length in zip(batch.target_out_BT, batch.target_lengths_B, strict=True)])
