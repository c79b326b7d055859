"""Stable ranks of the gradients of a run at its checkpoints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normscope.model import LanguageModel, Stack
from normscope.runs.config import load_run_config
from normscope.runs.trained import load_run
from normscope.tasks.language_model import LANGUAGE_MODEL
from normscope.train import RunFolder


def stable_ranks(run: Path, updates: Sequence[int]) -> list[list[float | None]]:
    """Returns by update, then by block, the mean stable rank of the gradients of its matrices.

    run: a finished one of a language model, with checkpoints of these updates; 0 is before the
    first. Each gradient is of the batch that the training takes next, of the mean loss per target
    token. None where a block's gradients are all 0.
    """
    return [_at(run, update) for update in updates]


def _at(run: Path, update: int) -> list[float | None]:
    config: Any = load_run_config(RunFolder(run))
    corpus = LANGUAGE_MODEL.open(config)
    if update:
        loaded = load_run(run, which=str(update), of_task=LANGUAGE_MODEL, device="cpu")
        model = loaded.model
    else:
        model = LANGUAGE_MODEL.build(config, corpus.tokeniser)
    objective = LANGUAGE_MODEL.objective(config, corpus, torch.device("cpu"))
    batch = objective.micro_batch(update * config.train.accumulation)
    model.train()
    loss, _ = objective.loss_sums(model, batch)
    (loss / objective.target_tokens(batch)).backward()  # type: ignore[no-untyped-call]
    return [_mean_rank(matrices) for matrices in block_matrices(model)]


def block_matrices(model: LanguageModel) -> list[list[nn.Parameter]]:
    """Returns the weight matrices of every block's attention and feed-forward."""
    stack: Stack = model.decoder
    weights = []
    for block in stack.blocks:
        sublayers = block.sublayers()  # type: ignore[operator]
        weights.append([one.weight for sublayer in sublayers for _, one in sublayer.f.matrices()])
    return weights


def _mean_rank(matrices: Sequence[nn.Parameter]) -> float | None:
    ranks = [
        stable_rank(matrix.grad)
        for matrix in matrices
        if matrix.grad is not None and bool(matrix.grad.any())
    ]
    return sum(ranks) / len(ranks) if ranks else None


def stable_rank(matrix: Tensor) -> float:
    """Returns ‖A‖_F² / ‖A‖₂², from 1 of a matrix of rank one to the smaller side of an isometry.

    (Rudelson and Vershynin 2007, section 1.) Raises ValueError for a matrix of zeros.

    >>> round(stable_rank(torch.diag(torch.tensor([2.0, 1.0, 1.0]))), 6)
    1.5
    """
    singular = torch.linalg.svdvals(matrix.detach().double())
    if not singular[0] > 0:
        raise ValueError("a matrix of zeros has no stable rank")
    return float(singular.square().sum() / singular[0].square())
