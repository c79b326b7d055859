"""Trainings of the study of probes, the streams of trained models, and what probes read from them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from normscope.measure.features import anisotropy, control_labels, linear_cka
from normscope.model import DecoderConfig, LanguageModel, Layout, Stack
from normscope.model.norms import NormGroup
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.train.device import seed_weights

from ..engine.training import Training, TrainingPlan
from .texts import NONE, Ids, ProbeText, batch_of, packed

# N = packed tokens, D = width


_StreamState = Any


@dataclass(frozen=True, slots=True)
class _AroundNorm:
    """One tensor (N, D) before a norm and after it."""

    before_ND: Tensor
    after_ND: Tensor


@dataclass(slots=True)
class _PassedState:
    """One forward pass, by completed blocks, from the embedding on."""

    states: list[_StreamState] = field(default_factory=list)
    """The placement's, L + 1 of them."""
    norms: list[_AroundNorm] = field(default_factory=list)
    """What every norm of the stack read and gave, in order."""


@torch.no_grad()
def passed(model: LanguageModel, tokens_N: Tensor, layout: Layout) -> _PassedState:
    """What a forward pass leaves at its blocks and norms."""
    with _recorded(model.decoder) as found:
        model(tokens_N, layout)
    return found


def around_norms(stack: Stack, found: _PassedState) -> list[_AroundNorm]:
    """Of the stream after each block, L of them: where a norm gives the stream, as in Post-LN, what that norm read and
    the stream; else the stream, and what the first norm gives that reads it: the next block's, or the final one.

    Raises ValueError where a block's stream meets no norm, as between blocks that have it after the branch alone.
    """
    return [
        _around(stack.placement.hidden(state), found.norms, stack, block)
        for block, state in enumerate(found.states[1:], 1)
    ]


def _around(hidden_ND: Tensor, norms: Sequence[_AroundNorm], stack: Stack, block: int) -> _AroundNorm:
    for one in norms:
        if one.after_ND is hidden_ND:
            return one
    for one in norms:
        if one.before_ND is hidden_ND:
            return one
    raise ValueError(
        f"the stream of {stack.placement.name} meets no norm after block {block}, so there is no before and after to "
        "probe; leave it out of `placements`"
    )


@contextmanager
def _recorded(stack: Stack) -> Iterator[_PassedState]:
    found = _PassedState()

    def first(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        found.states.append(inputs[0])

    def block(_: nn.Module, inputs: tuple[Any, ...], output: _StreamState) -> None:
        found.states.append(output)

    def norm(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        found.norms.append(_AroundNorm(inputs[0], output))

    handles = [stack.blocks[0].register_forward_pre_hook(first)]
    handles += [one.register_forward_hook(block) for one in stack.blocks]
    groups = [module for module in stack.modules() if isinstance(module, NormGroup)]
    handles += [one.register_forward_hook(norm) for group in groups for one in group.children()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


# N = packed tokens, D = width, L = blocks


_CONTROL_SEED = 7
_HELD_OUT = 3
"""Every third sequence is held out from the probes."""
PLACES = ("before", "after")
"""Its norm."""
_ProbeAccuracy = Callable[[NDArray[Any], Ids, NDArray[Any], Ids], float]
"""Features and labels to fit to, those held out -> the share that is right; given, since adapters do not measure."""


def probed(
    model_config: DecoderConfig,
    text: ProbeText,
    probe: _ProbeAccuracy,
    *,
    seed: int,
    peak_lr: float,
    warmup_updates: int,
    batch_sequences: int,
    target_nats: float,
    validate_every: int,
    most_updates: int,
) -> dict[str, Any]:
    """Of the model at the first validation at or below the target, or at the last one.

    update and valid_nats: where it ended; reached: whether at the target. The rest as `read` gives it.
    """
    seed_weights(seed)
    model = LanguageModel(model_config, text.vocabulary)
    plan = TrainingPlan(
        optimizer=OptimizerConfig(name="adam", peak_lr=peak_lr),
        schedule=ScheduleConfig(decay="constant", warmup_updates=warmup_updates),
        updates=most_updates,
    )
    training = Training(model, text.batches(batch_sequences, seed), plan)
    nats = math.inf
    while training.update < most_updates and nats > target_nats:
        training.backward()
        training.step()
        if training.update % validate_every == 0:
            nats = loss_nats(model, text.valid)
    model.eval()
    found = {"update": training.update, "valid_nats": nats, "reached": nats <= target_nats}
    return found | read(model, text, probe)


def read(model: LanguageModel, text: ProbeText, probe: _ProbeAccuracy) -> dict[str, Any]:
    """What is read from a model on the probed sequences, by completed blocks.

    accuracy and control, by property: of linear probes on held-out tokens, a row for the embedding's stream (one
    number, twice) and one for each block's, [before, after] its norm; control is on the property's control task.
    majority: the share of the commonest class among the held-out tokens. cka: linear CKA of the streams, (L+1, L+1).
    lens_nats: loss of the output read from each stream through the stack's end. anisotropy: mean cosine of the tokens'
    streams. left_out_nats: by how much the loss rises without each block, (L,).
    """
    tokens_N, layout = packed(text.probed)
    found = passed(model, tokens_N, layout)
    stack = model.decoder
    hidden = [stack.placement.hidden(state) for state in found.states]
    around = [(one.before_ND, one.after_ND) for one in around_norms(stack, found)]
    places = [(hidden[0], hidden[0]), *around]
    held_out_N = np.repeat(
        [number % _HELD_OUT == 0 for number in range(len(text.probed))], [len(ids) - 1 for ids in text.probed]
    )
    return {
        **_probes(places, tokens_N.numpy(), text.labels, held_out_N, probe),
        "cka": [[linear_cka(one, other) for other in hidden] for one in hidden],
        "anisotropy": [anisotropy(one) for one in hidden],
        "lens_nats": _lens(model, found.states, text.probed),
        "left_out_nats": _left_out(model, text.probed),
    }


def _probes(
    places: Sequence[tuple[Tensor, Tensor]],
    words_N: Ids,
    labels: Mapping[str, Ids],
    held_out_N: NDArray[np.bool_],
    probe: _ProbeAccuracy,
) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {"accuracy": {}, "control": {}, "majority": {}}
    for name, labels_N in labels.items():
        asked = labels_N != NONE
        fitted, held = asked & ~held_out_N, asked & held_out_N
        control_N = np.full_like(labels_N, NONE)
        control_N[asked] = control_labels(words_N[asked], labels_N[asked], seed=_CONTROL_SEED)
        for task, of_task in (("accuracy", labels_N), ("control", control_N)):
            found[task][name] = [_before_and_after(pair, of_task, fitted, held, probe) for pair in places]
        counts = np.bincount(labels_N[held])
        found["majority"][name] = float(counts.max() / counts.sum())
    return found


def _before_and_after(
    pair: tuple[Tensor, Tensor],
    labels_N: Ids,
    fitted: NDArray[np.bool_],
    held: NDArray[np.bool_],
    probe: _ProbeAccuracy,
) -> list[float]:
    """A stream that is both is probed once: the embedding's meets no norm."""
    streams = [x_ND.numpy() for x_ND in (pair[:1] if pair[0] is pair[1] else pair)]
    found = [probe(x_ND[fitted], labels_N[fitted], x_ND[held], labels_N[held]) for x_ND in streams]
    return [found[0], found[-1]]


@torch.no_grad()
def loss_nats(model: LanguageModel, sequences: Sequence[Ids]) -> float:
    """Mean loss per target token."""
    was_training = model.training
    model.eval()
    batch = batch_of(sequences)
    nats = float(batch.loss(batch.run(model)))
    model.train(was_training)
    return nats


@torch.no_grad()
def _lens(model: LanguageModel, states: Sequence[Any], sequences: Sequence[Ids]) -> list[float]:
    """nostalgebraist 2020: the stack's end and the output projection, read from every depth."""
    stack, batch = model.decoder, batch_of(sequences)
    return [float(batch.loss(model.logits(stack.placement.finish(state, stack.finish)))) for state in states]


def _left_out(model: LanguageModel, sequences: Sequence[Ids]) -> list[float]:
    whole = loss_nats(model, sequences)
    found = []
    for block in range(len(model.decoder.blocks)):
        with without_block(model.decoder, block):
            found.append(loss_nats(model, sequences) - whole)
    return found


@contextmanager
def without_block(stack: Stack, block: int) -> Iterator[None]:
    """The stack without one of its blocks, counted from 0: the next one reads what the one before gave."""
    blocks = stack.blocks
    try:
        stack.blocks = nn.ModuleList(one for number, one in enumerate(blocks) if number != block)
        yield
    finally:
        stack.blocks = blocks
