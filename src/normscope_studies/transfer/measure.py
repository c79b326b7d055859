"""The coordinate check of Yang et al. 2022 (arXiv:2203.03466, appendix D.1): how far the first updates move a model."""

# N = packed tokens, D = width, V = vocabulary
from collections.abc import Sequence

import torch
from torch import Tensor

from normscope.data.documents.corpus import DocumentCorpus
from normscope.model import LanguageModel, renormalise, unit_vectors
from normscope.optim.optimizers import OptimizerConfig, make_optimizer
from normscope.runs.config import replaced
from normscope.tasks.language_model import LANGUAGE_MODEL, LanguageModelRunConfig
from normscope.tasks.protocol import TrainingBatch

WHAT = ("output", "logits")
"""The stack's output, which meets the output projection, and the logits."""


def coordinates(
    config: LanguageModelRunConfig, corpus: DocumentCorpus, *, seed: int, rate: float, after: Sequence[int]
) -> dict[str, list[float]]:
    """Root mean squares of the change since initialisation on the first batch, after so many updates of Adam.

    By name of `WHAT`, one number for each of `after`. Every update has a batch of its own and the same rate.
    """
    config = replaced(config, seed=seed)
    model: LanguageModel = LANGUAGE_MODEL.build(config, corpus.tokeniser)
    batches = LANGUAGE_MODEL.batches(config, corpus)
    optimizer = make_optimizer(model, OptimizerConfig(name="adam", peak_lr=rate))
    vectors = unit_vectors(model)
    first = batches(0)
    before = _seen(model, first)
    found: dict[str, list[float]] = {name: [] for name in WHAT}
    for update in range(1, max(after) + 1):
        batch = batches(update)
        optimizer.zero_grad()
        batch.loss(batch.run(model)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        renormalise(vectors)
        if update in after:
            now = _seen(model, first)
            for name in WHAT:
                found[name].append(float((now[name] - before[name]).square().mean().sqrt()))
    return found


@torch.no_grad()
def _seen(model: LanguageModel, batch: TrainingBatch) -> dict[str, Tensor]:
    """The stack's output (N, D) and the logits (N, V) of a batch."""
    outputs: list[Tensor] = []
    handle = model.decoder.register_forward_hook(lambda _module, _inputs, output: outputs.append(output.double()))
    try:
        logits_NV = batch.run(model)
    finally:
        handle.remove()
    return {"output": outputs[0], "logits": logits_NV.double()}
