"""A small learning task: fresh batches, which of their targets can be known, and the loss.

A token is drawn evenly from a few of the model's own, so that what nothing tells beforehand has a
loss of ln(tokens) at best, and what stands elsewhere in the sequence one of 0.
"""

# B = sequences, T = places, C = classes

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..doctor.laws.trial import Untried
from ..doctor.trace.forward import Inputs, main_tensor

ROWS = 32
"""Sequences of a batch in training."""
MOST_PLACES = 24
"""The places of a sequence: half of them lie within most windows."""
LEAST_PLACES = 8
UNKNOWABLE_WEIGHT = 0.1
"""The weight of a target that nothing tells: enough to learn a leak by, and too little to be
learned first.
"""
IGNORED = -100
"""The label that torch's cross-entropy takes for no target."""
_MOST_TOKENS, _LEAST_TOKENS = 32, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningBatch:
    """Sequences that are drawn anew."""

    inputs: Inputs
    """The inputs of the user's model."""
    reference_inputs: tuple[Tensor, ...]
    """The inputs of ours."""
    targets: Tensor
    """(B, T) classes, or (B,) of whole sequences."""
    known: Tensor
    """True, in the same shape, where something in the sequence tells a target."""
    unknowable: Tensor
    """True where nothing does; where neither is, it is not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningTask:
    """A task in a model's own vocabulary and input shape."""

    words: str
    """The task in words, to stand after "learns" or "does not learn"."""
    chance_nats: float
    draw: Callable[[torch.Generator, int, bool], LearningBatch]
    """Draws so many sequences; True where they are trained on, so that most of what nothing tells
    may be left out of the user's own targets."""
    reference: Callable[[Any], nn.Module]
    """A function that builds our model of a `ReferenceSize`."""
    is_usual: bool = False
    """True where healthy models of its kind are known to learn it; of another task no failure is
    a finding."""
    own_loss: Callable[[Any, Inputs], Tensor] | None = None
    """The user's loss of an output and its inputs, where it takes the targets from these."""


def scores_of(output: Any, targets: Tensor) -> Tensor:
    """Returns the scores for targets, (B, T, C) or (B, C). Raises Untried where there are none."""
    scores = main_tensor(output)
    if scores is None or scores.shape[:-1] != targets.shape:
        shape = "none" if scores is None else str(tuple(scores.shape))
        raise Untried(f"the output has no scores for each of its targets: its shape is {shape}")
    return scores


def nats_by_target(scores: Tensor, targets: Tensor) -> Tensor:
    """Returns cross-entropies of the targets' shape."""
    flat = functional.cross_entropy(
        scores.flatten(0, -2).float(), targets.flatten(), reduction="none"
    )
    return flat.view_as(targets)


def loss_of_ours(output: Any, batch: LearningBatch) -> Tensor:
    """Returns the weighted mean of what can be known and of what cannot."""
    nats = nats_by_target(scores_of(output, batch.targets), batch.targets)
    weights = batch.known + UNKNOWABLE_WEIGHT * batch.unknowable
    return (nats * weights).sum() / weights.sum()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alphabet:
    """Tokens of a task, spread over those that the model is given."""

    tokens: Tensor
    """(A,) int64."""
    spare: int
    """A token beside them, which hides one or stands at the beginning."""

    def drawn(self, generator: torch.Generator, *shape: int) -> Tensor:
        """Returns tokens that are drawn evenly."""
        return self.tokens[torch.randint(len(self.tokens), shape, generator=generator)]


def alphabet_of(model: nn.Module, ids: Tensor, classes: int) -> Alphabet:
    """Returns tokens between the least and the greatest that a batch has. Raises Untried where
    these are too few.
    """
    special = special_tokens(model)
    least = max(1, int(ids.min()))
    most = min(classes - 1, int(ids.max()))
    usable = [token for token in range(least, most + 1) if token not in special]
    if len(usable) <= _LEAST_TOKENS:
        raise Untried(f"a task takes more than {_LEAST_TOKENS} tokens, and the batch has few")
    spare = usable.pop()
    count = min(_MOST_TOKENS, len(usable))
    places = torch.linspace(0, len(usable) - 1, count).round().long()
    return Alphabet(tokens=torch.tensor(usable)[places], spare=spare)


_SPECIAL = (
    "pad_token_id",
    "eos_token_id",
    "bos_token_id",
    "mask_token_id",
    "sep_token_id",
    "cls_token_id",
    "decoder_start_token_id",
)


def special_tokens(model: nn.Module) -> set[int]:
    """Returns tokens that mean something of their own, by the model's tables and configuration."""
    found = {one.padding_idx for one in model.modules() if isinstance(one, nn.Embedding)}
    config = getattr(model, "config", None)
    found |= {getattr(config, name, None) for name in _SPECIAL}
    return {one for one in found if isinstance(one, int)}


def with_rows(given: Any, rows: int) -> Any:
    """Returns another input of so many sequences: the first ones again and again."""
    if not isinstance(given, Tensor) or not given.ndim:
        return given
    return given[torch.arange(rows, device=given.device) % len(given)]


_REAL = ("attention_mask", "decoder_attention_mask", "encoder_attention_mask")


def beside(name: str, given: Tensor, rows: int, old: int, places: int) -> Tensor:
    """Returns what a task gives for an input that is no token of its own: nothing hidden, places in
    their order, and of all else the same as before.
    """
    cut = with_rows(given, rows)
    for dimension in range(1, cut.ndim):
        if cut.shape[dimension] == old:
            cut = cut.narrow(dimension, 0, places)
    if name in _REAL:
        return torch.ones_like(cut)
    if "position" in name and cut.ndim == 2 and not cut.is_floating_point():
        order: Tensor = torch.arange(cut.shape[1], device=cut.device).expand_as(cut).contiguous()
        return order
    is_mask = cut.dtype == torch.bool or ("mask" in name and not cut.is_floating_point())
    if is_mask and cut.ndim == 2:
        # What a mask says of a batch whose padding is the lesser part, it says of all of it here.
        common = given.flatten().mode().values if given.dtype != torch.bool else _common(given)
        return torch.full_like(cut, common.item())
    unchanged: Tensor = cut
    return unchanged


def _common(mask: Tensor) -> Tensor:
    return mask.float().mean() > 0.5


def replaced(names: Mapping[str, Tensor], new: Mapping[str, Tensor], old: int) -> dict[str, Tensor]:
    """Returns all inputs of a batch, with some of them another one and the others as `beside` has
    them.
    """
    rows, places = next(iter(new.values())).shape[:2]
    return {
        name: new[name] if name in new else beside(name, given, rows, old, places)
        for name, given in names.items()
    }
