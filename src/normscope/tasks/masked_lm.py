"""BERT's pre-training (Devlin et al. 2018, section 3.1): masked tokens and next sentences."""

# N = packed tokens, M = masked tokens, B = sequences, D = width

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..data.batches import EpochBatches
from ..data.documents.batches import Masker, PairBatch, PairSource
from ..data.documents.corpus import DocumentCorpus, DocumentSplit
from ..data.documents.pairs import pack_pairs
from ..data.documents.tokeniser import CLS, MASK, PAD, SEP, TextTokeniser
from ..data.opening import TextDataConfig
from ..errors import UserError
from ..model import EncoderConfig, Layout, MaskedEncoder
from ..model.linear import in_mode
from . import words
from .loss import LN2, at_least_float32, smoothed_cross_entropy
from .protocol import TrainingBatch
from .run_config import TextRunConfig
from .text_task import TextObjective, TextTask

MOST_PACKINGS = 100
"""All of them lie in memory; RoBERTa's static masking had 10, on 40 epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedConfig:
    """The settings of masking, and of packing sentence pairs."""

    masked_share: float = 0.15
    """The share of a sequence's tokens that is masked, 80 % behind [MASK], 10 % behind a random
    token, 10 % left as they are.
    """
    whole_words: bool = False
    """Mask whole words, not single tokens."""
    packings: int = 1
    """The number of times that the training text is packed into pairs, each time with other random
    choices; an epoch goes through all of them. BERT's data had 10.
    """
    valid_sequences: int = 2000
    """The number of held-out pairs that are validated on, at most: the first ones, the same in
    every run.
    """

    def __post_init__(self) -> None:
        if not 0 < self.masked_share < 1:
            raise ValueError(f"masked_share must lie between 0 and 1, got {self.masked_share}")
        if not 1 <= self.packings <= MOST_PACKINGS:
            raise ValueError(f"packings must be from 1 to {MOST_PACKINGS}, got {self.packings}")
        if self.valid_sequences < 1:
            raise ValueError(f"valid_sequences must be at least 1, got {self.valid_sequences}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRunConfig(TextRunConfig):
    """BERT's pre-training."""

    task: Literal["masked-lm"] = "masked-lm"
    data: TextDataConfig = field(default_factory=TextDataConfig)
    model: EncoderConfig = field(default_factory=EncoderConfig)
    masked_lm: MaskedConfig = field(default_factory=MaskedConfig)


class _MaskedObjective(TextObjective):
    """Batches of a corpus of documents, and their loss under a `MaskedEncoder`."""

    def __init__(
        self, corpus: DocumentCorpus, config: MaskedRunConfig, device: torch.device
    ) -> None:
        super().__init__(corpus, config, device)
        tokeniser, self.config = corpus.tokeniser, config.masked_lm
        self.masker = Masker(
            masked_share=self.config.masked_share,
            whole_words=self.config.whole_words,
            mask_id=tokeniser.ids[MASK],
            # Unknown characters are masked as any token is, as in BERT's own data: they are part of
            # the text.
            special_ids=frozenset(tokeniser.ids[special] for special in (PAD, CLS, SEP, MASK)),
            regular_ids=tokeniser.regular_ids,
            begins_word_V=tokeniser.begins_word_V,
        )
        self._sources: dict[tuple[str, int, int], PairSource] = {}
        # What is wrong with the corpus is reported at once; packing waits, as evaluating alone has
        # no use for it.
        for split in ("train", "valid"):
            _split(corpus, split)

    @cached_property
    def train(self) -> PairSource:
        return self._source("train", self.seed, self.config.packings)

    @cached_property
    def epochs(self) -> EpochBatches:  # type: ignore[override]
        return EpochBatches(
            sequences=len(self.train.pairs), batch_sequences=self.batch_sequences, seed=self.seed
        )

    def prepare(self, number: int) -> PairBatch:
        epoch, indices = self.epochs.micro_batch(number)
        return self.train.batch(indices.tolist(), epoch=epoch)

    def target_tokens(self, batch: PairBatch) -> int:
        """Masked tokens: what `loss_nats` and `nll_nats` are means over."""
        return len(batch.targets_M)

    def loss_sums(self, model: nn.Module, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """Masked-token plus next-sentence loss, and the masked-token loss alone, times masked
        tokens, in nats.

        BERT adds the two means. Divided by the masked tokens of an update of several batches, the
        next-sentence part counts each batch by its share of them.
        """
        masked, pairs, _ = self._losses(model, batch)
        weight = len(batch.targets_M) / len(batch.is_random_B)
        return masked + weight * pairs, masked.detach()

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """Means over the pairs of a split, in nats: `loss_nats` is the sum of `nll_nats` (masked
        tokens) and `next_sentence_nats`. The pairs and masks are the same whatever the run's seed:
        losses compare exactly."""
        source = self._source(split, 0, 1)
        sequences = min(len(source.pairs), self.config.valid_sequences)
        batches = EpochBatches(
            sequences=sequences, batch_sequences=self.batch_sequences, seed=0
        ).in_order()
        sums = torch.zeros(3, dtype=torch.float64)
        tokens = 0
        with in_mode(model, training=False):
            for indices in self.group.part_of(list(batches)):
                batch = source.batch(indices.tolist(), epoch=0).to(self.device)
                sums += torch.tensor(
                    [float(value) for value in self._losses(model, batch)], dtype=torch.float64
                )
                tokens += len(batch.targets_M)
        totals = self.group.total([*sums.tolist(), float(tokens)])
        masked_sum, pair_sum, right_sum, tokens_sum = totals
        nll, pair_loss = masked_sum / tokens_sum, pair_sum / sequences
        return {
            "loss_nats": nll + pair_loss,
            "nll_nats": nll,
            "nll_bits": nll / LN2,
            "next_sentence_nats": pair_loss,
            "next_sentence_accuracy": right_sum / sequences,
        }

    def _source(self, split: str, seed: int, packings: int) -> PairSource:
        key = split, seed, packings
        if key not in self._sources:
            found = _split(self.corpus, split)
            pairs = pack_pairs(
                found, sequence_length=self.sequence_length, seed=seed, packings=packings
            )
            self._sources[key] = PairSource(
                split=found,
                pairs=pairs,
                tokeniser=self.corpus.tokeniser,
                masker=self.masker,
                seed=seed,
            )
        return self._sources[key]

    def _losses(self, model: nn.Module, batch: PairBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Sums: masked-token loss, next-sentence loss, and pairs judged correctly."""
        layout = Layout(batch.lengths_B, self.device)
        hidden_ND = model(batch.tokens_N, batch.segments_N, layout)
        # A compiled model hands its attributes through; the cast is for the type checker only.
        encoder = cast(MaskedEncoder, model)
        masked, _ = smoothed_cross_entropy(
            encoder.predict(hidden_ND.index_select(0, batch.masked_M)),
            encoder.output_rows(),
            batch.targets_M,
            0.0,
            bias_V=encoder.output_bias,
        )
        logits_B2 = at_least_float32(encoder.next_sentence(encoder.pooled(hidden_ND, layout)))
        pairs = functional.cross_entropy(logits_B2, batch.is_random_B, reduction="sum")
        return masked, pairs, (logits_B2.argmax(-1) == batch.is_random_B).sum()


def _split(corpus: DocumentCorpus, name: str) -> DocumentSplit:
    """Returns a split that can be packed. Raises UserError where it cannot be packed."""
    if name not in corpus.splits:
        raise UserError(f"the corpus has no {name} split, only {', '.join(corpus.splits)}")
    split = corpus.splits[name]
    if len(split) < 2:
        raise UserError(
            f"the {name} split has {len(split)} document(s); at least 2 are needed, since a random "
            "next sentence comes from another document: prepare the corpus from more documents"
        )
    return split


class _MaskedLm(TextTask):
    """Masked tokens and next sentences, by an encoder."""

    name: str = "masked-lm"
    config = MaskedRunConfig
    model = MaskedEncoder
    model_words = "an encoder"
    objective_of = _MaskedObjective

    def loss_words(self, config: MaskedRunConfig) -> str:
        return "of masked tokens and of next sentences; the losses shown are of masked tokens"

    def training_batch(self, batch: PairBatch) -> TrainingBatch:
        """Logits of masked tokens (M, V) and of next sentences (B, 2); BERT's loss is the sum of
        both means.
        """

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

    def words(self, codec: TextTokeniser) -> words.Words:
        return words.of_encoder(codec)


MASKED_LM: _MaskedLm = _MaskedLm()
