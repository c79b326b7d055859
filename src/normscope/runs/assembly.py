"""From a configuration to what the training loop needs: for each task its corpus, its model and its batches."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data.documents.corpus import DocumentCorpus
from ..data.documents.opening import open_documents
from ..data.documents.tokeniser import TextTokeniser
from ..data.labelled.corpus import LabelledCorpus, open_labelled
from ..data.parallel.codec import Codec
from ..data.parallel.corpus import Corpus, Split
from ..data.parallel.opening import open_corpus
from ..decode.beam import BeamConfig
from ..decode.bleu import corpus_bleu, tokenised_bleu4
from ..decode.translate import translate_lines
from ..errors import UserError
from ..model import EncoderDecoder, LanguageModel, MaskedEncoder, PairClassifier
from ..tasks import ClassificationTask, LanguageModelTask, MaskedTask, TranslationTask
from ..train import Objective
from ..train.seeds import seed_weights
from .config import AnyRunConfig, LanguageModelRunConfig, MaskedRunConfig, PairRunConfig, RunConfig
from .finetune_start import Start, start_of

TextRunConfig = MaskedRunConfig | LanguageModelRunConfig
TextTask = MaskedTask | LanguageModelTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A run before its first update."""

    corpus: Corpus | DocumentCorpus | LabelledCorpus
    task: Objective
    build: Callable[[], nn.Module]
    """The model with its initial weights, on the CPU."""
    drawn: bool = True
    """The weights are drawn, not learned elsewhere: a placement may set its own by a first batch."""
    extra_validation: Callable[[nn.Module], dict[str, float]] | None = None

    @property
    def fingerprint(self) -> str:
        """Of the training data."""
        return self.corpus.fingerprint

    def save_vocabularies(self, folder: Path) -> None:
        """Write what is needed to use the model without the corpus."""
        self.corpus.save_vocabularies(folder)


def assemble(config: AnyRunConfig, device: torch.device) -> Assembly:
    """Raises UserError where the corpus cannot be opened, or does not fit the configuration."""
    if isinstance(config, RunConfig):
        corpus = open_corpus(config.data)
        return Assembly(
            corpus=corpus,
            task=translation_task(config, corpus, device),
            build=lambda: build_model(config, corpus.codec),
            extra_validation=_bleu(config, corpus) if config.translation.bleu_sentences else None,
        )
    if isinstance(config, PairRunConfig):
        return _fine_tuning(config, device)
    documents = open_documents(config.data)
    return Assembly(
        corpus=documents,
        task=text_task(config, documents, device),
        build=lambda: build_text_model(config, documents.tokeniser),
    )


def _fine_tuning(config: PairRunConfig, device: torch.device) -> Assembly:
    start = start_of(config)
    pairs = open_labelled(config.data, start.tokeniser)
    return Assembly(
        corpus=pairs,
        task=ClassificationTask(pairs, batch_sequences=config.data.batch_sequences, seed=config.seed, device=device),
        build=lambda: build_classifier(config, start, len(pairs.labels)),
        drawn=False,
    )


def translation_task(config: RunConfig, corpus: Corpus, device: torch.device) -> TranslationTask:
    return TranslationTask(
        corpus, config.translation, max_tokens=config.data.max_tokens, seed=config.seed, device=device
    )


def text_task(config: TextRunConfig, corpus: DocumentCorpus, device: torch.device) -> TextTask:
    """Raises UserError where the corpus has no use for the task."""
    sizes: dict[str, Any] = {
        "sequence_length": config.data.sequence_length,
        "batch_sequences": config.data.batch_sequences,
        "seed": config.seed,
        "device": device,
    }
    if isinstance(config, MaskedRunConfig):
        return MaskedTask(corpus, config.masked_lm, **sizes)
    return LanguageModelTask(corpus, config.language_model, **sizes)


def build_model(config: RunConfig, codec: Codec) -> EncoderDecoder:
    """The model with its initial weights. Raises UserError where configuration and vocabularies do not fit."""
    seed_weights(config.seed)
    try:
        return EncoderDecoder(config.model, len(codec.source.vocabulary), len(codec.target.vocabulary))
    except ValueError as error:
        raise UserError(str(error)) from error


def build_text_model(config: TextRunConfig, tokeniser: TextTokeniser) -> MaskedEncoder | LanguageModel:
    """The model with its initial weights. Raises UserError where the placement is not defined for such a model."""
    seed_weights(config.seed)
    try:
        if isinstance(config, MaskedRunConfig):
            return MaskedEncoder(config.model, len(tokeniser))
        return LanguageModel(config.model, len(tokeniser))
    except ValueError as error:
        raise UserError(str(error)) from error


def build_classifier(config: PairRunConfig, start: Start, classes: int) -> PairClassifier:
    """The model with the weights of `start` and a classifier drawn anew. Raises UserError for a damaged checkpoint."""
    seed_weights(config.seed)
    model = PairClassifier(config.model, len(start.tokeniser), classes, dropout=config.classification.dropout)
    model.start_from(start.encoder())
    return model


def _bleu(config: RunConfig, corpus: Corpus) -> Callable[[nn.Module], dict[str, float]]:
    def measure(model: nn.Module) -> dict[str, float]:
        assert isinstance(model, EncoderDecoder)
        count, beam = config.translation.bleu_sentences, BeamConfig(beam=config.translation.bleu_beam)
        return {"bleu": evaluate_split(model, corpus.codec, corpus.splits["valid"], beam, limit=count)["bleu"]}

    return measure


def evaluate_split(
    model: EncoderDecoder, codec: Codec, split: Split, beam: BeamConfig, *, limit: int | None = None
) -> dict[str, Any]:
    """Translate a split and score it: sacreBLEU and tokenised BLEU4 with their signatures, and the translations."""
    sources, references = split.source_text[:limit], split.target_text[:limit]
    translations = list(translate_lines(model, codec, sources, beam))
    form = codec.target.form
    bleu = corpus_bleu([t.detokenised for t in translations], references, lowercase=form.lowercase)
    tokenised = tokenised_bleu4(
        [t.tokenised for t in translations], [form.prepare(line) for line in references], lowercase=form.lowercase
    )
    return {
        "bleu": bleu.score,
        "bleu_signature": bleu.signature,
        "bleu_tokenised": tokenised.score,
        "bleu_tokenised_signature": tokenised.signature,
        "translations": [t.detokenised for t in translations],
    }
