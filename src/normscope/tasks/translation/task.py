"""Translation as a task."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...data import opening
from ...data.parallel.codec import Codec
from ...data.parallel.corpus import Corpus
from ...decode.beam import BeamConfig
from ...errors import UserError
from ...limits.memory import bounded_building
from ...model import EncoderDecoder, stack_shape
from ...model.config import least_weights
from ...placement import StackShape
from ...train import Share
from ...train.device import seed_weights
from .. import words
from ..loss import unigram_entropy_nats
from ..protocol import (
    SMALLER,
    Evaluation,
    ExtraValidation,
    FactLines,
    LoadedRun,
    Outputs,
    TaskFromScratch,
    TrainingBatch,
)
from . import samples
from .objective import TranslationObjective, TranslationRunConfig
from .samples import evaluate_split

_Run = LoadedRun[TranslationRunConfig, EncoderDecoder, Codec]


class Translation(TaskFromScratch[TranslationRunConfig, Corpus, EncoderDecoder, Codec]):
    """Sentences of one language to sentences of another, by an encoder-decoder."""

    name: str = "translation"
    config = TranslationRunConfig
    model = EncoderDecoder
    model_words = "an encoder-decoder"
    translates = True

    def open(self, config: TranslationRunConfig) -> Corpus:
        return opening.open_corpus(config.data)

    def codec_of(self, corpus: Corpus) -> Codec:
        return corpus.codec

    def load_codec(self, vocabularies: Path) -> Codec:
        return Codec.load(vocabularies)

    def save_codec(self, codec: Codec, vocabularies: Path) -> None:
        codec.save(vocabularies)

    def build(self, config: TranslationRunConfig, codec: Codec) -> EncoderDecoder:
        seed_weights(config.seed)
        try:
            least = sum(map(least_weights, self.shapes(config)))
            with bounded_building("the model of this configuration", SMALLER, least_weights=least):
                return EncoderDecoder(config.model, len(codec.source.vocabulary), len(codec.target.vocabulary))
        except ValueError as error:
            raise UserError(str(error)) from error

    def objective(self, config: TranslationRunConfig, corpus: Corpus, device: torch.device) -> TranslationObjective:
        return TranslationObjective(
            corpus, config.translation, max_tokens=config.data.max_tokens, seed=config.seed, device=device
        )

    def extra_validation(self, config: TranslationRunConfig, corpus: Corpus) -> ExtraValidation | None:
        count, beam = config.translation.bleu_sentences, BeamConfig(beam=config.translation.bleu_beam)

        def bleu(model: nn.Module, share: Share) -> dict[str, float]:
            assert isinstance(model, EncoderDecoder)
            scores = evaluate_split(model, corpus.codec, corpus.splits["valid"], beam, limit=count, share=share)
            return {"bleu": scores["bleu"]}

        return bleu if count else None

    def evaluate(self, run: _Run, corpus: Corpus, split: str, search: Mapping[str, Any]) -> Evaluation:
        try:
            beam = BeamConfig(**search)
        except ValueError as error:
            raise UserError(str(error)) from error
        scores = evaluate_split(run.model, run.codec, corpus.splits[split], beam)
        translations = tuple(scores.pop("translations"))
        searched = {name: asdict(beam)[name] for name in ("beam", "length_penalty")}
        return Evaluation(settings=searched, scores=scores, translations=translations, decimals=2)

    def chance_nats(self, corpus: Corpus) -> float:
        return unigram_entropy_nats(corpus.splits["valid"].target.tokens)

    def shapes(self, config: TranslationRunConfig) -> list[StackShape]:
        return [stack_shape(config.model, "encoder"), stack_shape(config.model, "decoder")]

    def corpus_facts(self, config: TranslationRunConfig, corpus: Corpus) -> FactLines:
        train, valid = corpus.splits["train"], corpus.splits["valid"]
        languages = f"{corpus.source.language} to {corpus.target.language}"
        return [
            ("Corpus", f"{Path(config.data.corpus).name}, {languages}"),
            ("Fingerprint", corpus.fingerprint),
            ("Sentences", f"{len(train):,} to train on, {len(valid):,} to validate on"),
            ("Vocabulary", vocabulary_words(corpus.codec)),
        ]

    def batch_words(self, config: TranslationRunConfig) -> str:
        return f"{config.data.max_tokens} tokens"

    def in_smaller_batches(self, config: TranslationRunConfig, tokens: int) -> TranslationRunConfig:
        return replace(config, data=replace(config.data, max_tokens=min(config.data.max_tokens, tokens)))

    def loss_words(self, config: TranslationRunConfig) -> str:
        return f"label smoothing {config.translation.label_smoothing:g}; the losses shown are not smoothed"

    def batches(self, config: TranslationRunConfig, corpus: Corpus) -> Callable[[int], TrainingBatch]:
        objective, smoothing = self.objective(config, corpus, torch.device("cpu")), config.translation.label_smoothing
        return lambda number: samples.training_batch(objective.micro_batch(number), smoothing)

    def words(self, codec: Codec) -> words.Words:
        return words.of_codec(codec)

    def sentences(self, run: _Run) -> tuple[str, Outputs]:
        return samples.sentences(run.codec, lambda: self.open(run.config))


def vocabulary_words(codec: Codec) -> str:
    """How many tokens there are, in one table for both languages or in two."""
    source, target = len(codec.source.vocabulary), len(codec.target.vocabulary)
    return f"joint vocabulary: {source:,}" if codec.joint else f"{source:,} source, {target:,} target"


TRANSLATION: Translation = Translation()
