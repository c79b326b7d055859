"""The texts of the study of advice, and the tasks that its cases learn on them."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional

from normscope.data.batches import raw_bits
from normscope.data.lines import read_lines
from normscope.data.opening import DataConfig, open_corpus, toy_corpus
from normscope.data.parallel.batches import TranslationBatch, collate
from normscope.model import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoder,
    LanguageModel,
    Layout,
    MaskedEncoder,
    ModelConfig,
)
from normscope.tasks.protocol import TrainingBatch
from normscope.tasks.translation import TranslationConfig, TranslationObjective

from .cases import HEAD_WIDTH, AdviceCase

_MOST_CHARACTERS = 1_000_000
"""Of the file: more than any of these trainings can read."""
_CHARACTERS, _PIECES = 96, 400
_TOY_SENTENCES = 5_000
_HELD_OUT = 0.05


@dataclass(frozen=True, eq=False)
class _RunningText:
    """One long sequence of ids to train on, and another that is held out."""

    train: Tensor
    valid: Tensor
    vocabulary: int
    """Ids below this are tokens of the text; the next one is free for a mask."""


@cache
def running_text(kind: str, file: str) -> _RunningText:
    """kind: toy, characters or pieces. file: UTF-8 text, plain, .gz or .xz; not read for toy.

    Raises UserError where the file cannot be read.
    """
    if kind == "toy":
        return _toy()
    text = _text(file)
    ids = {"characters": _as_characters, "pieces": _as_pieces}[kind](text)
    held = max(1, int(len(ids) * _HELD_OUT))
    return _RunningText(ids[:-held], ids[-held:], int(ids.max()) + 1)


def _toy() -> _RunningText:
    corpus = toy_corpus(_TOY_SENTENCES)
    parts = [torch.from_numpy(corpus.splits[split].target.tokens.astype("int64")) for split in ("train", "valid")]
    return _RunningText(parts[0], parts[1], len(corpus.target.vocabulary))


@cache
def _text(file: str) -> str:
    kept: list[str] = []
    count = 0
    for _, line in read_lines(Path(file)):
        if line := line.strip():
            kept.append(line)
            count += len(line) + 1
        if count >= _MOST_CHARACTERS:
            break
    return "\n".join(kept)[:_MOST_CHARACTERS]


def _as_characters(text: str) -> Tensor:
    """The commonest characters, and one id for all others."""
    common = {letter: number for number, (letter, _) in enumerate(Counter(text).most_common(_CHARACTERS - 1))}
    return torch.tensor([common.get(letter, _CHARACTERS - 1) for letter in text])


def _as_pieces(text: str) -> Tensor:
    """Byte-pair encoding learnt from the text itself."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_PIECES, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    return torch.tensor([piece for line in tokenizer.encode_batch(text.splitlines()) for piece in line.ids])


# N = tokens of a batch, V = vocabulary


VALID_TOKENS = 4000
"""Target tokens that the loss at the end is measured on, about."""
MASKED = 0.3
"""Share of the tokens that an encoder does not see."""
_ORDER, _MASK = 0, 1


class CaseTask(ABC):
    """Batches without end, in an order that the seed decides."""

    @abstractmethod
    def model(self, seed: int) -> nn.Module:
        """With its initial weights."""

    @abstractmethod
    def batch(self, number: int) -> TrainingBatch:
        """Training batch, counted from 0."""

    @abstractmethod
    def held_out(self) -> Sequence[TrainingBatch]:
        """The same ones whatever the seed."""

    @abstractmethod
    def held_out_targets(self) -> Tensor:
        """Their targets, end to end."""

    @abstractmethod
    def training_tokens(self) -> Tensor:
        """What targets are of, all of the training text."""

    def unigram_nats(self) -> float:
        """Held-out cross-entropy of the best model that knows nothing but how frequent each token is in training.

        One is added to every count, for tokens that training does not have.
        """
        targets, tokens = self.held_out_targets(), self.training_tokens()
        counts = torch.bincount(tokens, minlength=int(targets.max()) + 1).double() + 1
        return float(-(counts / counts.sum()).log()[targets].mean())


def task_of(case: AdviceCase, text_file: str, corpus: str, seed: int | None = None) -> CaseTask:
    """text_file: what characters and pieces are of; corpus: the folder of Multi30k. seed: of the batches' order, the
    case's own by default. Raises UserError for one that is not there."""
    seed = case.seed if seed is None else seed
    if case.architecture == "encoder-decoder":
        return _Translation(case, "toy" if case.text == "toy" else corpus, seed)
    return (_NextToken if case.architecture == "decoder" else _MaskedTokens)(case, text_file, seed)


class _Stretches(CaseTask):
    """Stretches of running text, all of one length, from anywhere in it."""

    def __init__(self, case: AdviceCase, file: str, seed: int) -> None:
        self.case, self.seed = case, seed
        self.text = running_text(case.text, file)
        self.rows = case.tokens // case.length
        self.layout = Layout(torch.full((self.rows,), case.length))

    def model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        case = self.case
        none = {"dropout": 0.0, "attention_dropout": 0.0}
        return self._built(**_sizes(case), positions=case.length, blocks=case.blocks, **none)

    def batch(self, number: int) -> TrainingBatch:
        return self._of(self._train(number), self.seed, number)

    def held_out(self) -> Sequence[TrainingBatch]:
        return [self._of(rows, 0, place) for place, rows in enumerate(self._valid())]

    def held_out_targets(self) -> Tensor:
        return torch.cat([rows[:, 1:].flatten() for rows in self._valid()])

    def training_tokens(self) -> Tensor:
        return self.text.train

    @abstractmethod
    def _built(self, **sizes: Any) -> nn.Module:
        """The model of these sizes."""

    @abstractmethod
    def _of(self, rows: Tensor, seed: int, number: int) -> TrainingBatch:
        """The batch of rows of tokens, (rows, length + 1); seed and number: of what else is drawn for it."""

    def _train(self, number: int) -> Tensor:
        """(rows, length + 1)."""
        starts = raw_bits(self.rows, self.seed, _ORDER, number) % np.uint64(len(self.text.train) - self.case.length - 1)
        return torch.stack([self.text.train[int(start) : int(start) + self.case.length + 1] for start in starts])

    def _valid(self) -> list[Tensor]:
        stretch = self.case.length + 1
        whole = len(self.text.valid) // stretch
        rows = self.text.valid[: whole * stretch].view(whole, stretch)
        count = max(1, round(VALID_TOKENS / (self.rows * self.case.length)))
        groups = [rows[start : start + self.rows] for start in range(0, len(rows), self.rows)]
        return [group for group in groups[:count] if len(group) == self.rows]


class _NextToken(_Stretches):
    def _built(self, **sizes: Any) -> nn.Module:
        return LanguageModel(DecoderConfig(**sizes), self.text.vocabulary)

    def _of(self, rows: Tensor, seed: int, number: int) -> TrainingBatch:
        tokens_N, targets_N = rows[:, :-1].flatten(), rows[:, 1:].flatten()

        def run(model: nn.Module) -> Tensor:
            assert isinstance(model, LanguageModel)
            return model.logits(model(tokens_N, self.layout))

        return TrainingBatch(run=run, loss=lambda logits_NV: functional.cross_entropy(logits_NV, targets_N))


class _MaskedTokens(_Stretches):
    """The text itself, of which some is masked. Masked tokens alone are not learnt in so short trainings."""

    def _built(self, **sizes: Any) -> nn.Module:
        return MaskedEncoder(EncoderConfig(**sizes), self.text.vocabulary + 1)

    def _masked(self, seed: int, number: int) -> Tensor:
        """Places of the masked tokens in a batch, rising."""
        count = self.rows * self.case.length
        order = np.argsort(raw_bits(count, seed, _MASK, number), kind="stable")
        return torch.from_numpy(np.sort(order[: math.ceil(MASKED * count)]))

    def _of(self, rows: Tensor, seed: int, number: int) -> TrainingBatch:
        masked_M = self._masked(seed, number)
        targets_N = rows[:, 1:].flatten()
        seen_N = targets_N.clone()
        seen_N[masked_M] = self.text.vocabulary

        def run(model: nn.Module) -> Tensor:
            assert isinstance(model, MaskedEncoder)
            return model.logits(model(seen_N, None, self.layout))

        return TrainingBatch(run=run, loss=lambda logits_NV: functional.cross_entropy(logits_NV, targets_N))


class _Translation(CaseTask):
    def __init__(self, case: AdviceCase, corpus: str, seed: int) -> None:
        self.case = case
        # Plain cross-entropy, so that its end compares with an entropy.
        loss = TranslationConfig(label_smoothing=0.0)
        opened = open_corpus(DataConfig(corpus=corpus))
        self.objective = TranslationObjective(
            opened, loss, max_tokens=case.tokens, seed=seed, device=torch.device("cpu")
        )

    def model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        case, codec = self.case, self.objective.corpus.codec
        config = ModelConfig(**_sizes(case), encoder_blocks=case.blocks, decoder_blocks=case.blocks, dropout=0.0)
        return EncoderDecoder(config, len(codec.source.vocabulary), len(codec.target.vocabulary))

    def batch(self, number: int) -> TrainingBatch:
        return _pairs(self.objective.micro_batch(number))

    def held_out(self) -> Sequence[TrainingBatch]:
        return [_pairs(batch) for batch in self._valid()]

    def held_out_targets(self) -> Tensor:
        return torch.cat([_packed(batch)[1] for batch in self._valid()])

    def training_tokens(self) -> Tensor:
        return torch.from_numpy(self.objective.train.target.tokens.astype("int64"))

    def _valid(self) -> list[TranslationBatch]:
        """From all over the validation split, long sentences and short ones."""
        batches, split = self.objective.valid_batches, self.objective.valid
        many = max(1, round(VALID_TOKENS / (int(split.target.lengths.sum()) / len(batches))))
        chosen = np.unique(np.linspace(0, len(batches) - 1, many).round().astype(int))
        return [collate(split, batches[place]) for place in chosen]


def _packed(batch: TranslationBatch) -> tuple[Layout, Tensor]:
    target = Layout(batch.target_lengths_B)
    return target, target.pack(batch.target_out_BT)


def _pairs(batch: TranslationBatch) -> TrainingBatch:
    source, (target, targets_M) = Layout(batch.source_lengths_B), _packed(batch)
    source_N, target_M = source.pack(batch.source_BS), target.pack(batch.target_in_BT)

    def run(model: nn.Module) -> Tensor:
        assert isinstance(model, EncoderDecoder)
        return model.logits(model(source_N, source, target_M, target))

    return TrainingBatch(run=run, loss=lambda logits_MV: functional.cross_entropy(logits_MV, targets_M))


def _sizes(case: AdviceCase) -> dict[str, Any]:
    return {
        "placement": case.placement,
        "width": case.width,
        "ffn_width": 2 * case.width,
        "heads": case.width // HEAD_WIDTH,
        "initialisation": case.initialisation,
    }
