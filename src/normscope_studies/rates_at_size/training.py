"""One training of a decoder of transformers on running text: a model, a peak rate, a schedule and a
horizon.
"""

import contextlib
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional

from normscope.data.batches import raw_bits
from normscope.data.lines import read_lines
from normscope.errors import UserError, installation
from normscope.files import write_atomically
from normscope.optim import DECAY_EVERYWHERE, OPTIMIZERS, OptimizerConfig, make_optimizer
from normscope.optim.schedules import ScheduleConfig, factor
from normscope.train.device import choose_device

from ..advice.training import of_narrower

# V = vocabulary, B = sequences, T = tokens of each

PIECES = 16_384
"""The pieces of the byte-pair encoding, learnt from the text itself."""
FLOOR = 0.1
"""The share of the peak at which the cosine ends."""
_LEARNT_FROM_LINES = 60_000
_VALID_TOKENS = 131_072
_ORDER = 0
_EMBEDDINGS_STD = 0.02
_SWITCHES = {"use_cache": False, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedModel:
    """A decoder of transformers with its own initial weights, and what it is trained with."""

    name: str
    """Short, and safe as a part of a file's name."""
    made_by: Literal["LlamaForCausalLM", "Olmo2ForCausalLM", "OPTForCausalLM"]
    sizes: dict[str, Any]
    """Keywords of its configuration, beside its vocabulary."""
    normed_sums: float = 0.0
    """The share of its residual sums that are normed."""
    narrower: float = 1.0
    """The factor by which the model is narrower that its rates are measured by: matrices take steps
    so much smaller, and begin smaller by its root, as in µP (Yang et al. 2022, arXiv:2203.03466,
    table 8).
    """
    tokens: int = 4_096
    """The tokens of a batch."""
    length: int = 512
    """The length of a sequence."""

    @property
    def warmup_share(self) -> float:
        """The share of updates that is warm-up: 8 % where residual sums are normed, else 1 %."""
        return 0.08 if self.normed_sums else 0.01

    @property
    def width(self) -> int:
        return int(self.sizes["hidden_size"])

    @property
    def blocks(self) -> int:
        return int(self.sizes["num_hidden_layers"])


def built(one: SizedModel, seed: int) -> nn.Module:
    """Builds a model with initial weights. Raises UserError where transformers is not installed."""
    try:
        import transformers
    except ModuleNotFoundError:
        raise UserError(f"{one.name} is of transformers: {installation('huggingface')}") from None
    kind: Any = getattr(transformers, one.made_by)
    torch.manual_seed(seed)
    smaller = (
        {"initializer_range": _EMBEDDINGS_STD / math.sqrt(one.narrower)}
        if one.narrower != 1
        else {}
    )
    model: nn.Module = kind(
        kind.config_class(vocab_size=PIECES, **one.sizes, **smaller, **_SWITCHES)
    )
    for module in model.modules():
        if one.narrower != 1 and isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=_EMBEDDINGS_STD)
    return model


def optimizer_of(one: SizedModel, model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """AdamW as it is usually given; matrices and the head with less where rates are a narrower
    model's.
    """
    config = OptimizerConfig(
        name="adamw",
        peak_lr=rate,
        weight_decay=OPTIMIZERS["adamw"].usual_weight_decay,
        groups=DECAY_EVERYWHERE if one.narrower == 1 else of_narrower(one.narrower),
    )
    return make_optimizer(model, config)


@dataclass(frozen=True, eq=False)
class _SizedText:
    """The ids of a text: two sequences, for training and validation."""

    train: Tensor
    valid: Tensor
    unigram_nats: float
    """The loss on the held-out ids, by how frequent each is in training."""


@cache
def text_of(train_file: str, valid_file: str, kept: Path) -> _SizedText:
    """Returns two files of UTF-8 text, plain, .gz or .xz, as ids of pieces that the first one
    taught; kept: the file that remembers the ids.

    Raises UserError where a file cannot be read.
    """
    if not kept.is_file():
        lines = _lines(train_file)
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=PIECES, show_progress=False, initial_alphabet=alphabet
        )
        tokenizer.train_from_iterator(lines[:_LEARNT_FROM_LINES], trainer)
        parts = [_ids(tokenizer, lines), _ids(tokenizer, _lines(valid_file))]
        header = np.array([len(parts[0])], dtype="<u4").view("<u2")
        write_atomically(kept, np.concatenate([header, *parts]).tobytes())
    whole = np.fromfile(kept, dtype="<u2")
    border = 2 + int(whole[:2].view("<u4")[0])
    train, valid = (
        torch.from_numpy(part.astype("int64")) for part in (whole[2:border], whole[border:])
    )
    valid = valid[: _VALID_TOKENS + 1]
    counts = torch.bincount(train, minlength=PIECES).double() + 1
    return _SizedText(train, valid, float(-(counts / counts.sum()).log()[valid].mean()))


def _lines(file: str) -> list[str]:
    return [line for _, line in read_lines(Path(file)) if line.strip()]


def _ids(tokenizer: Tokenizer, lines: list[str]) -> NDArray[np.uint16]:
    return np.concatenate([np.array(one.ids, dtype="<u2") for one in tokenizer.encode_batch(lines)])


def train_sized(
    one: SizedModel,
    rate: float,
    *,
    updates: int,
    seed: int,
    text: str,
    valid: str,
    kept: Path,
    on: str,
) -> dict[str, Any]:
    """Trains, and returns the losses in nats per token: of every update's batch before it, and on
    held-out text at the end.

    "valid_nats" is None where it was not finite. bf16 autocast over float32 weights on CUDA,
    float32 elsewhere; nothing is clipped. text, valid, kept: as of `text_of`; on: the device's
    name.
    """
    read, device = text_of(text, valid, kept), choose_device(on)
    model = built(one, seed).to(device)
    optimizer = optimizer_of(one, model, rate)
    warmup = round(one.warmup_share * updates)
    schedule = ScheduleConfig(
        decay="cosine", warmup_updates=warmup, decay_from_updates=warmup, floor=FLOOR
    )
    ids = read.train.to(device, torch.int32)
    model.train()
    losses = torch.empty(updates, device=device)
    for update in range(1, updates + 1):
        share = factor(schedule, update, horizon_updates=updates)
        for group in optimizer.param_groups:
            group["lr"] = rate * share * group["lr_factor"]
        loss = _nats(model, _rows(ids, one, seed, update), device)
        losses[update - 1] = loss.detach()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    last = held_out(one, model, read.valid, device)
    return {
        "train_nats": [round(value, 4) for value in losses.tolist()],
        "valid_nats": last if math.isfinite(last) else None,
        "parameters": sum(weight.numel() for weight in model.parameters()),
    }


def _rows(ids: Tensor, one: SizedModel, seed: int, number: int) -> Tensor:
    """(B, T + 1), from places drawn at random; the same ones whatever the rate."""
    starts = raw_bits(one.tokens // one.length, seed, _ORDER, number) % np.uint64(
        len(ids) - one.length - 1
    )
    first = torch.from_numpy(starts.astype("int64")).to(ids.device, non_blocking=True)
    return ids[first[:, None] + torch.arange(one.length + 1, device=ids.device)].long()


def _nats(model: Any, rows_BT: Tensor, device: torch.device) -> Tensor:
    """Returns the mean over all tokens but the first of each row."""
    on = (
        torch.autocast("cuda", torch.bfloat16)
        if device.type == "cuda"
        else contextlib.nullcontext()
    )
    with on:
        logits_BTV = model(input_ids=rows_BT[:, :-1]).logits
    return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), rows_BT[:, 1:].flatten())


@torch.no_grad()
def held_out(one: SizedModel, model: nn.Module, valid: Tensor, device: torch.device) -> float:
    """Returns the nats per token of the held-out text, in rows of the length of training."""
    model.eval()
    count, rows = one.tokens // one.length, valid.unfold(0, one.length + 1, one.length)
    starts = range(0, len(rows) - count + 1, count)
    losses = [
        float(_nats(model, rows[start : start + count].to(device), device)) for start in starts
    ]
    return math.fsum(losses) / len(losses)


def pair_nats(text: _SizedText) -> float:
    """Returns the loss on the held-out ids, by how frequent each is after the one before it in
    training.
    """
    train, valid = text.train.numpy(), text.valid.numpy()
    keys = train[:-1] * PIECES + train[1:]
    unique, counts = np.unique(keys, return_counts=True)
    alone = np.bincount(train, minlength=PIECES) + 1.0
    alone /= alone.sum()
    before = np.bincount(train[:-1], minlength=PIECES)
    asked = valid[:-1] * PIECES + valid[1:]
    place = np.minimum(np.searchsorted(unique, asked), len(unique) - 1)
    seen = np.where(unique[place] == asked, counts[place], 0)
    prior = 64.0
    share = (seen + prior * alone[valid[1:]]) / (before[valid[:-1]] + prior)
    return float(-np.log(share).mean())
