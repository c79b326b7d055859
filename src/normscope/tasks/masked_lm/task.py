"""BERT's pre-training as a task."""

# N = packed tokens, M = masked tokens, B = sequences, D = width
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...data.documents.corpus import DocumentCorpus
from ...data.documents.pair_batches import PairBatch
from ...data.documents.tokeniser import CLS, MASK, SEP, TextTokeniser
from ...model import Layout, MaskedEncoder
from .. import words
from ..protocol import Outputs, TrainingBatch
from ..samples import layout_of
from ..text_task import SHORTEST_ROW, TextTask
from .config import MaskedRunConfig
from .objective import MaskedObjective


class MaskedLm(TextTask[MaskedRunConfig, MaskedEncoder]):
    """Masked tokens and next sentences, by an encoder."""

    name: str = "masked-lm"
    config = MaskedRunConfig
    model = MaskedEncoder
    model_words = "an encoder"

    def objective(self, config: MaskedRunConfig, corpus: DocumentCorpus, device: torch.device) -> MaskedObjective:
        return MaskedObjective(
            corpus,
            config.masked_lm,
            sequence_length=config.data.sequence_length,
            batch_sequences=config.data.batch_sequences,
            seed=config.seed,
            device=device,
        )

    def loss_words(self, config: MaskedRunConfig) -> str:
        return "of masked tokens and of next sentences; the losses shown are of masked tokens"

    def batches(self, config: MaskedRunConfig, corpus: DocumentCorpus) -> Callable[[int], TrainingBatch]:
        """Logits of masked tokens (M, V) and of next sentences (B, 2); BERT's loss is the sum of both means."""
        objective = self.objective(config, corpus, torch.device("cpu"))
        return lambda number: _training_batch(objective.micro_batch(number))

    def words(self, codec: TextTokeniser) -> words.Words:
        return words.of_encoder(codec)

    def outputs(self, rows: list[Tensor], codec: TextTokeniser) -> Outputs:
        cls, sep, mask = (codec.ids[special] for special in (CLS, SEP, MASK))
        whole = [torch.cat([torch.tensor([cls]), row, torch.tensor([sep])]) for row in rows]
        tokens_N = torch.cat(whole)
        regular_N = (tokens_N != cls) & (tokens_N != sep)
        masked_M = regular_N.nonzero().squeeze(1)[::SHORTEST_ROW]

        def of_model(model: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
            assert isinstance(model, MaskedEncoder)
            hidden_ND = model(tokens_N.index_fill(0, masked_M, mask), None, layout_of(whole))
            return hidden_ND, model.logits(hidden_ND[masked_M]), tokens_N[masked_M]

        return of_model


def _training_batch(batch: PairBatch) -> TrainingBatch:
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

    return TrainingBatch(run=run, loss=loss)


MASKED_LM: MaskedLm = MaskedLm()
