"""Translation: its configuration, label-smoothed cross-entropy of parallel sentences, and how it is
scored.
"""

# N = packed source tokens, M = packed target tokens, D = width, V = vocabulary

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..data import opening
from ..data.batches import EpochBatches
from ..data.opening import DataConfig
from ..data.parallel.batches import TranslationBatch, collate, make_batches
from ..data.parallel.codec import Codec
from ..data.parallel.corpus import Corpus, Split
from ..decode.search import BeamConfig
from ..decode.translate import corpus_bleu, tokenised_bleu4, translate_lines
from ..errors import UserError, user_errors
from ..model import EncoderDecoder, Layout, ModelConfig, stack_shape
from ..model.linear import in_mode
from ..placement import StackShape
from ..train import Objective
from . import words
from .loss import LN2, smoothed_cross_entropy, unigram_entropy_nats
from .protocol import Evaluation, LoadedRun, Task, TrainingBatch
from .run_config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationConfig:
    """The loss, and how validation translates."""

    label_smoothing: float = 0.1
    bleu_sentences: int = 0
    """Sentences of the validation split to translate at each validation; 0 for no BLEU while
    training.
    """
    bleu_beam: int = 1
    """1 is greedy search, which is enough to follow a run."""
    bleu_length_penalty: float = 1.0
    """The length penalty of that search, as `BeamConfig.length_penalty`; 1.2 in Xiong et al. 2020,
    appendix A.1.
    """

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {self.label_smoothing}")
        if self.bleu_sentences < 0 or self.bleu_beam < 1:
            raise ValueError("bleu_sentences must be 0 or more and bleu_beam at least 1")
        if not math.isfinite(self.bleu_length_penalty):
            raise ValueError(
                f"bleu_length_penalty must be a finite number, got {self.bleu_length_penalty}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRunConfig(RunConfig):
    """Translation of sentences."""

    task: Literal["translation"] = "translation"
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    translation: TranslationConfig = field(default_factory=TranslationConfig)


def translation(config: RunConfig, what: str) -> TranslationRunConfig:
    """Returns the configuration, of the one task that `what` can be done with. Raises UserError for
    another.
    """
    if not isinstance(config, TranslationRunConfig):
        raise UserError(
            f'{what} is for task = "translation", and this configuration has task = "{config.task}"'
        )
    return config


class TranslationObjective(Objective):
    """Batches of a corpus, and their loss under an `EncoderDecoder`."""

    def __init__(
        self,
        corpus: Corpus,
        config: TranslationConfig,
        *,
        max_tokens: int,
        seed: int,
        device: torch.device,
    ) -> None:
        for split in ("train", "valid"):
            if split not in corpus.splits or not len(corpus.splits[split]):
                raise UserError(
                    f"training needs a {split} split with sentences in it, and the corpus has none"
                )
        self.corpus = corpus
        self.config = config
        self.device = device
        self.train, self.valid = corpus.splits["train"], corpus.splits["valid"]
        self.batches = make_batches(
            self.train.source.lengths, self.train.target.lengths, max_tokens=max_tokens, seed=seed
        )
        self.epochs = EpochBatches(sequences=len(self.batches), batch_sequences=1, seed=seed)
        # The same batches whatever the run's seed, so that validation losses compare exactly.
        self.valid_batches = make_batches(
            self.valid.source.lengths, self.valid.target.lengths, max_tokens=max_tokens, seed=0
        )

    @property
    def micro_batches_per_epoch(self) -> int:
        return len(self.epochs)

    def prepare(self, number: int) -> TranslationBatch:
        _, (batch,) = self.epochs.micro_batch(number)
        return collate(self.train, self.batches[int(batch)])

    def target_tokens(self, batch: TranslationBatch) -> int:
        return batch.target_tokens

    def loss_sums(self, model: nn.Module, batch: TranslationBatch) -> tuple[Tensor, Tensor]:
        """Label-smoothed cross-entropy and negative log-likelihood, summed over target tokens, in
        nats.
        """
        source_layout = Layout(batch.source_lengths_B, self.device)
        target_layout = Layout(batch.target_lengths_B, self.device)
        hidden_MD = model(
            source_layout.pack(batch.source_BS),
            source_layout,
            target_layout.pack(batch.target_in_BT),
            target_layout,
        )
        # A compiled model hands its attributes through; the cast is for the type checker only.
        weight_VD = cast(EncoderDecoder, model).output_rows()
        target_M = target_layout.pack(batch.target_out_BT)
        return smoothed_cross_entropy(hidden_MD, weight_VD, target_M, self.config.label_smoothing)

    @torch.no_grad()
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Returns the mean loss (smoothed) and negative log-likelihood per target token over the
        validation split, in nats.
        """
        loss_sum = nll_sum = 0.0
        with in_mode(model, training=False):
            for indices in self.group.part_of(self.valid_batches):
                loss, nll = self.loss_sums(model, collate(self.valid, indices).to(self.device))
                loss_sum, nll_sum = loss_sum + float(loss), nll_sum + float(nll)
        loss_sum, nll_sum = self.group.total([loss_sum, nll_sum])
        tokens = int(self.valid.target.lengths.sum())
        return {
            "loss_nats": loss_sum / tokens,
            "nll_nats": nll_sum / tokens,
            "nll_bits": nll_sum / tokens / LN2,
        }


def _training_batch(batch: TranslationBatch, smoothing: float) -> TrainingBatch:
    """Returns the logits of a batch, and its training loss."""
    source, target = Layout(batch.source_lengths_B), Layout(batch.target_lengths_B)
    return TrainingBatch(
        run=logits_of(
            source.pack(batch.source_BS), source, target.pack(batch.target_in_BT), target
        ),
        loss=smoothed_loss(target.pack(batch.target_out_BT), smoothing),
    )


def logits_of(
    source_N: Tensor, source: Layout, target_M: Tensor, target: Layout
) -> Callable[[nn.Module], Tensor]:
    """Run an `EncoderDecoder` up to its logits (M, V); forward alone gives hidden states."""

    def run(model: nn.Module) -> Tensor:
        assert isinstance(model, EncoderDecoder)
        return model.logits(model(source_N, source, target_M, target))

    return run


def smoothed_loss(asked_M: Tensor, smoothing: float) -> Callable[[Any], Tensor]:
    """Returns the mean over target tokens of the loss of training, of logits (M, V).

    torch shares ε among all V entries, the target included, where training shares it among the V -
    1 others.
    """

    def loss(logits_MV: Any) -> Tensor:
        entries = logits_MV.shape[1]
        return functional.cross_entropy(
            logits_MV, asked_M, label_smoothing=smoothing * entries / max(entries - 1, 1)
        )

    return loss


_LINES = 256
"""Translated together, in batches of like lengths. Another number gives other batches, which round
otherwise.
"""


def evaluate_split(
    model: EncoderDecoder, codec: Codec, split: Split, beam: BeamConfig, *, limit: int | None = None
) -> dict[str, Any]:
    """Translate a split and score it: sacreBLEU and tokenised BLEU4 with their signatures, and the
    translations.
    """
    sources, references = split.source_text[:limit], split.target_text[:limit]
    parts = (sources[start : start + _LINES] for start in range(0, len(sources), _LINES))
    translations = [one for part in parts for one in translate_lines(model, codec, part, beam)]
    form = codec.target.form
    bleu = corpus_bleu([t.detokenised for t in translations], references, lowercase=form.lowercase)
    tokenised = tokenised_bleu4(
        [t.tokenised for t in translations],
        [form.prepare(line) for line in references],
        lowercase=form.lowercase,
    )
    return {
        "bleu": bleu.score,
        "bleu_signature": bleu.signature,
        "bleu_tokenised": tokenised.score,
        "bleu_tokenised_signature": tokenised.signature,
        "translations": [t.detokenised for t in translations],
    }


class Translation(Task):
    """Sentences of one language to sentences of another, by an encoder-decoder."""

    name: str = "translation"
    config = TranslationRunConfig
    model = EncoderDecoder
    model_words = "an encoder-decoder"
    translates = True

    def open(self, config: TranslationRunConfig) -> Corpus:
        return opening.open_corpus(config.data)

    def load_codec(self, vocabularies: Path) -> Codec:
        return Codec.load(vocabularies)

    def save_vocabularies(self, corpus: Corpus, folder: Path) -> None:
        corpus.codec.save(folder)

    def build(self, config: TranslationRunConfig, codec: Codec) -> Any:
        return self.drawn(config, len(codec.source.vocabulary), len(codec.target.vocabulary))

    def objective(
        self, config: TranslationRunConfig, corpus: Corpus, device: torch.device
    ) -> TranslationObjective:
        return TranslationObjective(
            corpus,
            config.translation,
            max_tokens=config.data.max_tokens,
            seed=config.seed,
            device=device,
        )

    def extra_validation(
        self, config: TranslationRunConfig, corpus: Corpus
    ) -> Callable[[nn.Module], dict[str, float]] | None:
        count = config.translation.bleu_sentences
        beam = BeamConfig(
            beam=config.translation.bleu_beam,
            length_penalty=config.translation.bleu_length_penalty,
        )

        def bleu(model: nn.Module) -> dict[str, float]:
            assert isinstance(model, EncoderDecoder)
            scores = evaluate_split(model, corpus.codec, corpus.splits["valid"], beam, limit=count)
            return {"bleu": scores["bleu"]}

        return bleu if count else None

    def evaluate(
        self, run: LoadedRun, corpus: Corpus, split: str, search: Mapping[str, Any]
    ) -> Evaluation:
        with user_errors(ValueError):
            beam = BeamConfig(**search)
        scores = evaluate_split(run.model, run.codec, corpus.splits[split], beam)
        translations = tuple(scores.pop("translations"))
        searched = {name: asdict(beam)[name] for name in ("beam", "length_penalty")}
        return Evaluation(settings=searched, scores=scores, translations=translations, decimals=2)

    def chance_nats(self, corpus: Corpus) -> float:
        return unigram_entropy_nats(corpus.splits["valid"].target.tokens)

    def shapes(self, config: TranslationRunConfig) -> list[StackShape]:
        return [stack_shape(config.model, "encoder"), stack_shape(config.model, "decoder")]

    def corpus_facts(self, config: TranslationRunConfig, corpus: Corpus) -> list[tuple[str, str]]:
        train, valid = corpus.splits["train"], corpus.splits["valid"]
        source, target = len(corpus.source.vocabulary), len(corpus.target.vocabulary)
        joint = f"joint vocabulary: {source:,}"
        languages = f"{corpus.source.form.language} to {corpus.target.form.language}"
        return [
            ("Corpus", f"{Path(config.data.corpus).name}, {languages}"),
            ("Fingerprint", corpus.fingerprint),
            ("Sentences", f"{len(train):,} to train on, {len(valid):,} to validate on"),
            (
                "Vocabulary",
                joint if corpus.codec.joint else f"{source:,} source, {target:,} target",
            ),
        ]

    def batch_tokens(self, config: TranslationRunConfig) -> int | None:
        return config.data.max_tokens

    def batch_words(self, config: TranslationRunConfig) -> str:
        return f"{config.data.max_tokens} tokens"

    def in_smaller_batches(self, config: TranslationRunConfig, tokens: int) -> TranslationRunConfig:
        return replace(
            config, data=replace(config.data, max_tokens=min(config.data.max_tokens, tokens))
        )

    def loss_words(self, config: TranslationRunConfig) -> str:
        return (
            f"label smoothing {config.translation.label_smoothing:g}; the losses shown are not "
            "smoothed"
        )

    def batches(
        self, config: TranslationRunConfig, corpus: Corpus
    ) -> Callable[[int], TrainingBatch]:
        objective, smoothing = (
            self.objective(config, corpus, torch.device("cpu")),
            config.translation.label_smoothing,
        )
        return lambda number: _training_batch(objective.micro_batch(number), smoothing)

    def words(self, codec: Codec) -> words.Words:
        return words.of_codec(codec)


TRANSLATION: Translation = Translation()
