"""What is measured of a trained model: what its last blocks are worth, and how alike its tokens are at the end."""

# N = packed tokens, D = width
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from normscope.measure import stream_moments
from normscope.model import EncoderDecoder, LanguageModel, Stack
from normscope.runs.config import replaced
from normscope.tasks.protocol import AnyCorpus, TaskFromScratch, TrainingBatch
from normscope.tasks.run_config import RunConfig
from normscope.train import RunFolder

BATCHES = 4
"""Batches of the training that a seed of its own draws."""
_SEED = 1000


@torch.no_grad()
def measured(
    task: TaskFromScratch[Any, Any, Any, Any], corpus: AnyCorpus, config: RunConfig, folder: RunFolder
) -> dict[str, float]:
    """Of a run's last checkpoint, its decoder on text that its first updates did not see; means over the batches.

    worth_nats: how far the loss rises where the last third of the decoder's blocks is left out. turned: the mean over
    tokens of 1 - cos between the decoder's output with and without that third. correlation: E⟨y_i, y_j⟩ / E‖y‖² of the
    output's different tokens of a sentence.
    """
    model: EncoderDecoder | LanguageModel = task.build(config, task.codec_of(corpus))
    folder.checkpoint("last").load_model(model)
    model.eval()
    batches = task.batches(replaced(config, seed=_SEED), corpus)
    found = [_of_batch(model, batches(number)) for number in range(BATCHES)]
    return {name: sum(one[name] for one in found) / len(found) for name in found[0]}


def gradient_spread(norms: dict[str, float]) -> float:
    """Largest over smallest norm of a decoder block's gradient. norms: of its parameters, before the first update."""
    squares: dict[str, float] = {}
    for name, norm in norms.items():
        head, _, rest = name.partition("decoder.blocks.")
        if rest and not head:
            block = rest.partition(".")[0]
            squares[block] = squares.get(block, 0.0) + norm**2
    return float((max(squares.values()) / min(squares.values())) ** 0.5)


def _of_batch(model: EncoderDecoder | LanguageModel, batch: TrainingBatch) -> dict[str, float]:
    stack = model.decoder
    whole_ND, lengths_B, loss = _pass(model, batch)
    with without_last_third(stack):
        part_ND, _, shorter = _pass(model, batch)
    cosine_N = nn.functional.cosine_similarity(whole_ND.double(), part_ND.double(), dim=-1)
    return {
        "worth_nats": shorter - loss,
        "turned": float(1 - cosine_N.mean()),
        "correlation": stream_moments(whole_ND, lengths_B=lengths_B).correlation,
    }


@contextmanager
def without_last_third(stack: Stack) -> Iterator[None]:
    """The stack without the last third of its blocks, at least one: its end reads what the block before them gave."""
    blocks = stack.blocks
    try:
        stack.blocks = blocks[: len(blocks) - max(1, round(len(blocks) / 3))]
        yield
    finally:
        stack.blocks = blocks


def _pass(model: EncoderDecoder | LanguageModel, batch: TrainingBatch) -> tuple[Tensor, Tensor, float]:
    """The decoder's output (N, D), the lengths of its sentences, and the loss."""
    seen: list[tuple[Tensor, Tensor]] = []

    def look(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        seen.append((output, inputs[1].layout.lengths_B))

    handle = model.decoder.register_forward_hook(look)
    try:
        loss = float(batch.loss(batch.run(model)))
    finally:
        handle.remove()
    (output_ND, lengths_B), *_ = seen
    return output_ND, lengths_B, loss
