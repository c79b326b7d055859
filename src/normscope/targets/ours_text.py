"""Our encoders and language models as targets: what is run, and the loss of what comes out."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..data.documents.corpus import DocumentCorpus
from ..data.documents.pair_batches import PairBatch
from ..data.documents.stretches import StretchBatch
from ..doctor.lint.rules import Loading
from ..doctor.trace.inputs import Inputs
from ..model import LanguageModel, Layout, MaskedEncoder
from ..optim import make_optimizer
from ..runs.assembly import TextRunConfig, text_task
from .target import Loss, Target


def text_target(
    title: str, config: TextRunConfig, model: nn.Module, corpus: DocumentCorpus, loading: Loading | None
) -> Target:
    """On the first batch of the run's training. Raises UserError where the corpus has no use for the task."""
    batch = text_task(config, corpus, torch.device("cpu")).micro_batch(0)
    inputs, loss = _of_pairs(batch) if isinstance(batch, PairBatch) else _of_stretches(batch)
    return Target(
        title=f"{type(model).__name__} ({title})",
        model=model,
        inputs=inputs,
        loss=loss,
        optimizer=make_optimizer(model.parameters(), config.optimizer),
        loading=loading,
        wanted_placement=config.model.placement,
    )


def _of_pairs(batch: PairBatch) -> tuple[Inputs, Loss]:
    """Logits of masked tokens (M, V) and of next sentences (B, 2); BERT's loss is the sum of both means."""

    def run(model: nn.Module) -> tuple[Tensor, Tensor]:
        assert isinstance(model, MaskedEncoder)
        layout = Layout(batch.lengths_B)
        hidden_ND = model(batch.tokens_N, batch.segments_N, layout)
        masked_MV = model.logits(hidden_ND.index_select(0, batch.masked_M))
        return masked_MV, model.next_sentence(model.pooled(hidden_ND, layout))

    def loss(output: Any) -> Tensor:
        masked_MV, pairs_B2 = output
        masked = functional.cross_entropy(masked_MV, batch.targets_M)
        return masked + functional.cross_entropy(pairs_B2, batch.is_random_B)

    return run, loss


def _of_stretches(batch: StretchBatch) -> tuple[Inputs, Loss]:
    """Logits (N, V) of the tokens that follow."""

    def run(model: nn.Module) -> Tensor:
        assert isinstance(model, LanguageModel)
        return model.logits(model(batch.tokens_N, Layout(batch.lengths_B)))

    return run, lambda logits_NV: functional.cross_entropy(logits_NV, batch.targets_N)
