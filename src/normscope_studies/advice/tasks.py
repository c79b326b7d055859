"""Batches without end of a case's text, as its model is called with them, and what knows no more
than frequencies.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.data.batches import raw_bits
from normscope.data.opening import DataConfig, open_corpus
from normscope.data.parallel.batches import TranslationBatch, collate
from normscope.data.parallel.corpus import Corpus
from normscope.model import Layout
from normscope.tasks.translation import TranslationConfig, TranslationObjective

from .cases import OURS, AdviceCase
from .models import built, kind_of
from .texts import digits, running

VALID_TOKENS = 8000
"""Target tokens that the loss at the end is measured on, about."""
MASKED = 0.3
"""Share of the tokens that an encoder does not see."""
_ORDER, _MASK = 0, 1
_TRANSLATED = ("toy", "multi30k")
_PATCHES = 17
"""Tokens of an image of digits, that of its class included."""

# N = target tokens of a batch, V = vocabulary, B = sequences, T = tokens of each


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseBatch:
    """One batch; the loss is the mean over its targets."""

    run: Callable[[nn.Module], Tensor]
    """The model's logits, (N, V)."""
    targets: Tensor
    """(N,)."""
    previous: Tensor
    """(N,): the token before each of them."""
    hidden: Tensor | None = None
    """(N,): whether the model does not see the target itself; None where it sees none."""

    def loss(self, logits_NV: Tensor) -> Tensor:
        """Returns the loss in nats."""
        return functional.cross_entropy(logits_NV, self.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTask:
    """Makes the batches that a case is trained on."""

    model: Callable[[int], nn.Module]
    """The function that makes a model with the initial weights of a seed."""
    batch: Callable[[int], CaseBatch]
    """For training, counted from 0."""
    held_out: Callable[[], Sequence[CaseBatch]]
    """The same ones whatever the seed."""


def task_of(case: AdviceCase, text_file: str, corpus: str, seed: int) -> CaseTask:
    """text_file: what characters and pieces are of; corpus: the folder of Multi30k; seed: of the
    batches' order.

    Raises UserError for one that is not there.
    """
    kind = kind_of(case)
    if kind == "classifier":
        return _images(case, seed)
    if case.model == "encoder-decoder" and case.text in _TRANSLATED:
        return _translation(case, "toy" if case.text == "toy" else corpus, seed)
    text = running(case.text, text_file)
    count, stretch = max(1, case.tokens // case.length), case.length + 1
    asked = {"encoder": _masked, "encoder-decoder": _continued}.get(kind, _next)

    def batch(number: int) -> CaseBatch:
        starts = raw_bits(count, seed, _ORDER, number) % np.uint64(len(text.train) - stretch)
        rows = text.train.unfold(0, stretch, 1)[torch.from_numpy(starts.astype("int64"))]
        return asked(case, rows, text.vocabulary, (seed, number))

    def held_out() -> list[CaseBatch]:
        most = count * math.ceil(VALID_TOKENS / (count * case.length))
        rows = text.valid[: len(text.valid) // stretch * stretch].view(-1, stretch)[:most]
        several = [rows[start : start + count] for start in range(0, len(rows) - count + 1, count)]
        return [
            asked(case, rows, text.vocabulary, (0, place)) for place, rows in enumerate(several)
        ]

    mask = kind == "encoder"
    return CaseTask(
        model=lambda seed: built(case, text.vocabulary + mask, seed), batch=batch, held_out=held_out
    )


def _next(case: AdviceCase, rows: Tensor, vocabulary: int, seeds: tuple[int, int]) -> CaseBatch:
    """Each token of rows (B, T + 1) from those before it."""
    seen, targets = rows[:, :-1], rows[:, 1:]
    return CaseBatch(
        run=lambda model: _logits(case, model, seen),
        targets=targets.flatten(),
        previous=seen.flatten(),
    )


def _masked(case: AdviceCase, rows: Tensor, vocabulary: int, seeds: tuple[int, int]) -> CaseBatch:
    """The rows themselves, of which some tokens are masked. Masked tokens alone are not learnt in
    so short trainings."""
    targets = rows[:, 1:]
    order = np.argsort(raw_bits(targets.numel(), seeds[0], _MASK, seeds[1]), kind="stable")
    hidden = torch.zeros(targets.numel(), dtype=torch.bool)
    hidden[torch.from_numpy(order[: math.ceil(MASKED * targets.numel())])] = True
    seen = targets.flatten().masked_fill(hidden, vocabulary).view_as(targets)
    return CaseBatch(
        run=lambda model: _logits(case, model, seen),
        targets=targets.flatten(),
        previous=rows[:, :-1].flatten(),
        hidden=hidden,
    )


def _continued(
    case: AdviceCase, rows: Tensor, vocabulary: int, seeds: tuple[int, int]
) -> CaseBatch:
    """The second half of each row from the first, which the encoder sees, and the tokens before."""
    half = rows.shape[1] // 2
    source = rows[:, :half]
    before = rows[:, half:-1]
    targets = rows[:, half + 1 :]
    return CaseBatch(
        run=lambda model: _logits(case, model, source, before),
        targets=targets.flatten(),
        previous=before.flatten(),
    )


def _logits(case: AdviceCase, model: Any, seen: Tensor, before: Tensor | None = None) -> Tensor:
    """(N, V). Ours take packed tokens, others (B, T)."""
    if case.model not in OURS:
        found = model(seen) if before is None else model(input_ids=seen, decoder_input_ids=before)
        logits: Tensor = found if isinstance(found, Tensor) else found.logits
        return logits.reshape(-1, logits.shape[-1])
    packed, layout = seen.flatten(), Layout(torch.full((seen.shape[0],), seen.shape[1]))
    if before is not None:
        target = Layout(torch.full((before.shape[0],), before.shape[1]))
        states = model(packed, layout, before.flatten(), target)
    else:
        states = model(packed, None, layout) if case.model == "encoder" else model(packed, layout)
    hers: Tensor = model.logits(states)
    return hers


def _images(case: AdviceCase, seed: int) -> CaseTask:
    images, classes = digits()
    count = max(1, case.tokens // _PATCHES)
    held = len(classes) // 5

    def of(chosen: Tensor) -> CaseBatch:
        seen, targets = images[chosen], classes[chosen]
        return CaseBatch(
            run=lambda model: _logits(case, model, seen),
            targets=targets,
            previous=torch.zeros_like(targets),
        )

    def batch(number: int) -> CaseBatch:
        return of(
            torch.from_numpy(
                (raw_bits(count, seed, _ORDER, number) % np.uint64(held * 4)).astype("int64")
            )
        )

    return CaseTask(
        model=lambda seed: built(case, 10, seed),
        batch=batch,
        held_out=lambda: [of(torch.arange(4 * held, len(classes)))],
    )


def _translation(case: AdviceCase, folder: str, seed: int) -> CaseTask:
    # Plain cross-entropy, so that its end compares with an entropy.
    loss, device = TranslationConfig(label_smoothing=0.0), torch.device("cpu")
    opened = _corpus(folder)
    objective = TranslationObjective(opened, loss, max_tokens=case.tokens, seed=seed, device=device)

    def held_out() -> list[CaseBatch]:
        """Returns batches from all over the validation split, long sentences and short ones."""
        batches, split = objective.valid_batches, objective.valid
        many = max(1, round(VALID_TOKENS / (int(split.target.lengths.sum()) / len(batches))))
        chosen = np.unique(np.linspace(0, len(batches) - 1, many).round().astype(int))
        return [_pairs(collate(split, batches[place])) for place in chosen]

    return CaseTask(
        model=lambda seed: built(case, len(opened.codec.target.vocabulary), seed),
        batch=lambda number: _pairs(objective.micro_batch(number)),
        held_out=held_out,
    )


@cache
def _corpus(folder: str) -> Corpus:
    return open_corpus(DataConfig(corpus=folder))


def _pairs(batch: TranslationBatch) -> CaseBatch:
    source, target = Layout(batch.source_lengths_B), Layout(batch.target_lengths_B)
    source_N, before_M = source.pack(batch.source_BS), target.pack(batch.target_in_BT)
    targets_M = target.pack(batch.target_out_BT)

    def run(model: Any) -> Tensor:
        logits: Tensor = model.logits(model(source_N, source, before_M, target))
        return logits

    return CaseBatch(run=run, targets=targets_M, previous=before_M)


_COUNTED = 400
"""Batches of training in which tokens are counted."""
_PRIOR = 8.0
"""The times that a token counts as seen after another by how frequent it is alone."""


def baselines(task: CaseTask) -> dict[str, float]:
    """Returns the held-out nats of the best models that know how frequent each token is, and how
    frequent after the one before.

    Of what is hidden from the model: what it sees costs nothing.
    """
    train, held = [task.batch(number) for number in range(_COUNTED)], task.held_out()
    previous, targets, _ = _together(train)
    size = 1 + int(max(batch.targets.max() for batch in (*train, *held)))
    before = 1 + int(max(batch.previous.max() for batch in (*train, *held)))
    alone = torch.bincount(targets, minlength=size).double() + 1
    alone /= alone.sum()
    pairs = (
        torch.bincount(previous * size + targets, minlength=before * size)
        .double()
        .view(before, size)
    )
    after = (pairs + _PRIOR * alone) / (pairs.sum(1, keepdim=True) + _PRIOR)
    previous, targets, hidden = _together(held)
    nats = {"unigram_nats": -alone.log()[targets], "bigram_nats": -after.log()[previous, targets]}
    return {name: float((each * hidden).mean()) for name, each in nats.items()}


def _together(batches: Sequence[CaseBatch]) -> tuple[Tensor, Tensor, Tensor]:
    hidden = [torch.ones_like(one.targets) if one.hidden is None else one.hidden for one in batches]
    previous = [one.previous for one in batches]
    targets = [one.targets for one in batches]
    return torch.cat(previous), torch.cat(targets), torch.cat(hidden)
