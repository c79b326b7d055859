"""Decoder-only language modelling as a task."""

# N = packed tokens, D = width, V = vocabulary
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...data.documents.corpus import DocumentCorpus, DocumentSplit
from ...data.documents.stretches import StretchBatch
from ...data.documents.tokeniser import SEP, TextTokeniser
from ...errors import UserError
from ...model import LanguageModel, Layout
from .. import words
from ..protocol import Evaluation, LoadedRun, Outputs, TrainingBatch
from ..samples import layout_of
from ..text_task import TextTask
from .config import LanguageModelRunConfig
from .objective import LanguageModelObjective


class LanguageModelling(TextTask[LanguageModelRunConfig, LanguageModel]):
    """The next token of text, by a decoder alone."""

    name: str = "language-model"
    config = LanguageModelRunConfig
    model = LanguageModel
    model_words = "a decoder alone"
    specials = (SEP,)

    def objective(
        self, config: LanguageModelRunConfig, corpus: DocumentCorpus, device: torch.device
    ) -> LanguageModelObjective:
        return LanguageModelObjective(
            corpus,
            config.language_model,
            sequence_length=config.data.sequence_length,
            batch_sequences=config.data.batch_sequences,
            seed=config.seed,
            device=device,
        )

    def evaluate_text(
        self,
        run: LoadedRun[LanguageModelRunConfig, LanguageModel, TextTokeniser],
        documents: Sequence[Sequence[str]],
        words: int,
    ) -> Evaluation:
        """As of a split: in stretches as long as those of the run's training."""
        ids = (run.codec.encode_many(document) for document in documents)
        split = DocumentSplit.of(ids, words=words, vocabulary_size=len(run.codec))
        if not len(split):
            raise UserError("the text has no tokens")
        corpus = DocumentCorpus.in_memory(run.codec, {"train": split, "valid": split})
        return self.evaluate(run, corpus, "valid", {})

    def loss_words(self, config: LanguageModelRunConfig) -> str:
        return "of every next token"

    def batches(self, config: LanguageModelRunConfig, corpus: DocumentCorpus) -> Callable[[int], TrainingBatch]:
        """Logits (N, V) of the tokens that follow."""
        objective = self.objective(config, corpus, torch.device("cpu"))
        return lambda number: _training_batch(objective.micro_batch(number))

    def words(self, codec: TextTokeniser) -> words.Words:
        return words.of_decoder(codec)

    def outputs(self, rows: list[Tensor], codec: TextTokeniser) -> Outputs:
        end = torch.tensor([codec.ids[SEP]])
        inputs = [torch.cat([end, row[:-1]]) for row in rows]

        def of_model(model: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
            assert isinstance(model, LanguageModel)
            hidden_ND = model(torch.cat(inputs), layout_of(inputs))
            return hidden_ND, model.logits(hidden_ND), torch.cat(rows)

        return of_model


def _training_batch(batch: StretchBatch) -> TrainingBatch:
    def run(model: nn.Module) -> Tensor:
        assert isinstance(model, LanguageModel)
        return model.logits(model(batch.tokens_N, Layout(batch.lengths_B)))

    return TrainingBatch(run=run, loss=lambda logits_NV: functional.cross_entropy(logits_NV, batch.targets_N))


LANGUAGE_MODEL: LanguageModelling = LanguageModelling()
