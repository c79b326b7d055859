"""Decoder-only language modelling as a task."""

# N = packed tokens, D = width, V = vocabulary
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...data.documents.corpus import DocumentCorpus, DocumentSplit
from ...data.documents.stretches import StretchBatch
from ...data.documents.text import Layout as TextLayout
from ...data.documents.text import documents_in
from ...data.documents.tokeniser import SEP, TextTokeniser
from ...errors import UserError
from ...model import LanguageModel, Layout
from ...settings.choices import check_choice
from .. import words as task_words
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
        text: Path,
        *,
        layout: str,
        language: str,
    ) -> Evaluation:
        """As of a split: in stretches as long as those of the run's training."""
        try:
            check_choice("layout", layout, get_args(TextLayout))
        except ValueError as error:
            raise UserError(str(error)) from None
        documents = list(documents_in([text], cast(TextLayout, layout), language))
        words = sum(document.words for document in documents)
        if not words:
            raise UserError(f"{text}: no text in it")
        ids = (run.codec.encode_many(document.sentences) for document in documents)
        split = DocumentSplit.of(ids, words=words, vocabulary_size=len(run.codec))
        if not len(split):
            raise UserError(f"{text}: the text has no tokens")
        corpus = DocumentCorpus.in_memory(run.codec, {"train": split, "valid": split})
        found = self.evaluate(run, corpus, "valid", {})
        return replace(found, settings={"words": words, **found.settings})

    def loss_words(self, config: LanguageModelRunConfig) -> str:
        return "of every next token"

    def batches(self, config: LanguageModelRunConfig, corpus: DocumentCorpus) -> Callable[[int], TrainingBatch]:
        """Logits (N, V) of the tokens that follow."""
        objective = self.objective(config, corpus, torch.device("cpu"))
        return lambda number: _training_batch(objective.micro_batch(number))

    def words(self, codec: TextTokeniser) -> task_words.Words:
        return task_words.of_decoder(codec)

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
