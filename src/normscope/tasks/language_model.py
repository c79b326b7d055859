"""Decoder-only language modelling: the next token of text, and perplexity."""

# N = packed tokens, D = width, V = vocabulary

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..data.batches import EpochBatches
from ..data.documents.batches import StretchBatch, Stretches
from ..data.documents.corpus import DocumentCorpus, DocumentSplit
from ..data.documents.text import documents_in
from ..data.documents.tokeniser import SEP, TextTokeniser
from ..data.opening import TextDataConfig
from ..data.sources import TextLayout
from ..errors import UserError
from ..model import DecoderConfig, LanguageModel, Layout
from ..model.linear import in_mode
from ..settings.tables import check_choice
from . import words as task_words
from .loss import LN2, smoothed_cross_entropy
from .protocol import Evaluation, LoadedRun, TrainingBatch
from .run_config import TextRunConfig
from .text_task import TextObjective, TextTask


@dataclass(frozen=True, slots=True, kw_only=True)
class _LanguageModelConfig:
    """The loss."""

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {self.label_smoothing}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModelRunConfig(TextRunConfig):
    """Decoder-only language modelling."""

    task: Literal["language-model"] = "language-model"
    data: TextDataConfig = field(default_factory=TextDataConfig)
    model: DecoderConfig = field(default_factory=DecoderConfig)
    language_model: _LanguageModelConfig = field(default_factory=_LanguageModelConfig)


class _LanguageModelObjective(TextObjective):
    """Stretches of a corpus of documents, and their loss under a `LanguageModel`."""

    def __init__(
        self, corpus: DocumentCorpus, config: LanguageModelRunConfig, device: torch.device
    ) -> None:
        super().__init__(corpus, config, device)
        self.label_smoothing = config.language_model.label_smoothing
        self.train = self._stretches("train")
        self._stretches("valid")
        self.epochs = EpochBatches(
            sequences=len(self.train), batch_sequences=self.batch_sequences, seed=self.seed
        )

    def prepare(self, number: int) -> StretchBatch:
        _, indices = self.epochs.micro_batch(number)
        return self.train.batch(indices.tolist())

    def target_tokens(self, batch: StretchBatch) -> int:
        return len(batch.targets_N)

    def loss_sums(self, model: nn.Module, batch: StretchBatch) -> tuple[Tensor, Tensor]:
        """Cross-entropy (smoothed, where asked for) and negative log-likelihood, summed over
        tokens, in nats.
        """
        hidden_ND = model(batch.tokens_N, Layout(batch.lengths_B, self.device))
        # A compiled model hands its attributes through; the cast is for the type checker only.
        decoder = cast(LanguageModel, model)
        return smoothed_cross_entropy(
            hidden_ND,
            decoder.output_rows(),
            batch.targets_N,
            self.label_smoothing,
            soft_cap=decoder.soft_cap,
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """Means over a split, in nats, and perplexities: per token, and per word as blanks part
        them, which compares between tokenisers. Each token sees what its stretch holds before it,
        as in training."""
        stretches = self._stretches(split)
        batches = EpochBatches(
            sequences=len(stretches), batch_sequences=self.batch_sequences, seed=0
        ).in_order()
        loss_sum = nll_sum = 0.0
        with in_mode(model, training=False):
            for indices in self.group.part_of(list(batches)):
                loss, nll = self.loss_sums(model, stretches.batch(indices.tolist()).to(self.device))
                loss_sum, nll_sum = loss_sum + float(loss), nll_sum + float(nll)
        loss_sum, nll_sum = self.group.total([loss_sum, nll_sum])
        mean = nll_sum / stretches.targets
        return {
            "loss_nats": loss_sum / stretches.targets,
            "nll_nats": mean,
            "nll_bits": mean / LN2,
            "perplexity": _exp(mean),
            "word_perplexity": _exp(nll_sum / self.corpus.splits[split].words),
        }

    def _stretches(self, split: str) -> Stretches:
        if split not in self.corpus.splits or not len(self.corpus.splits[split]):
            raise UserError(
                f"the corpus has no {split} split with text in it; it has "
                f"{', '.join(self.corpus.splits)}"
            )
        end = self.corpus.tokeniser.ids[SEP]
        return Stretches(split=self.corpus.splits[split], length=self.sequence_length, end=end)


def _exp(nats: float) -> float:
    """A model gone wrong has a perplexity beyond what a float holds; metrics lines have no
    infinity.
    """
    return math.exp(min(nats, 700.0))


class _LanguageModelling(TextTask):
    """The next token of text, by a decoder alone."""

    name: str = "language-model"
    config = LanguageModelRunConfig
    model = LanguageModel
    model_words = "a decoder alone"
    specials = (SEP,)
    objective_of = _LanguageModelObjective

    def evaluate_text(
        self, run: LoadedRun, text: Path, *, layout: str, language: str
    ) -> Evaluation:
        """Evaluates a text as a split is evaluated: in stretches as long as those of the run's
        training.
        """
        try:
            check_choice("layout", layout, get_args(TextLayout))
        except ValueError as error:
            raise UserError(str(error)) from None
        documents = documents_in([text], cast(TextLayout, layout), language)
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

    def training_batch(self, batch: StretchBatch) -> TrainingBatch:
        """Logits (N, V) of the tokens that follow."""

        def run(model: nn.Module) -> Tensor:
            assert isinstance(model, LanguageModel)
            return model.logits(model(batch.tokens_N, Layout(batch.lengths_B)))

        return TrainingBatch(
            run=run, loss=lambda logits_NV: functional.cross_entropy(logits_NV, batch.targets_N)
        )

    def words(self, codec: TextTokeniser) -> task_words.Words:
        return task_words.of_decoder(codec)


LANGUAGE_MODEL: _LanguageModelling = _LanguageModelling()
