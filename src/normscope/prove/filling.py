"""Filling in, for encoders that name each token: one that is hidden stands elsewhere in the
sequence, at a fixed distance, or is hidden there as well.
"""

# B = sequences, T = places

import math

import torch
from torch import Tensor, nn

from ..doctor.laws.given import named_inputs, with_changed
from ..doctor.laws.trial import Untried
from ..doctor.learned import Learner
from .asking import (
    IGNORED,
    LEAST_PLACES,
    MOST_PLACES,
    LearningBatch,
    LearningTask,
    alphabet_of,
    replaced,
)
from .losses import loss_from_labels
from .references import OneStackReference, ReferenceSize

_ONE_HIDDEN, _BOTH_HIDDEN = 0.6, 0.1
"""Shares of the pairs of one token: with one of its places hidden, and with both."""


def filling(of: Learner, name: str, classes: int) -> LearningTask:
    """Returns the task for a model whose tokens stand under a name. Raises Untried."""
    names = named_inputs(of.model, of.inputs)
    ids_BT = names[name]
    old = ids_BT.shape[1]
    places = min(old, MOST_PLACES)
    apart = places // 2
    places = 2 * apart
    if places < LEAST_PLACES:
        raise Untried(f"filling in takes sequences of {LEAST_PLACES} tokens, and these have {old}")
    alphabet = alphabet_of(of.model, ids_BT, classes)
    hides = _mask_token(of.model, alphabet.spare, classes)

    def draw(generator: torch.Generator, rows: int, trained: bool) -> LearningBatch:
        first_BT = alphabet.drawn(generator, rows, apart)
        drawn_BT = first_BT.repeat(1, 2)
        hidden_BT = _hidden(generator, rows, apart)
        partner_BT = hidden_BT.roll(apart, 1)
        given_BT = drawn_BT.masked_fill(hidden_BT, hides)
        new = {name: given_BT.to(ids_BT.device)}
        if "labels" in names:
            labels_BT = drawn_BT.masked_fill(~hidden_BT, IGNORED)
            new["labels"] = labels_BT.to(ids_BT.device)
        return LearningBatch(
            inputs=with_changed(of.model, of.inputs, replaced(names, new, old)),
            reference_inputs=(given_BT,),
            targets=drawn_BT,
            known=hidden_BT & ~partner_BT,
            unknowable=hidden_BT & partner_BT,
        )

    def reference(size: ReferenceSize) -> nn.Module:
        return OneStackReference(size, places=places, classes=classes, vocabulary=classes)

    return LearningTask(
        words=f"to fill in tokens that stand {apart} places away",
        chance_nats=math.log(len(alphabet.tokens)),
        draw=draw,
        reference=reference,
        own_loss=loss_from_labels(of),
    )


def _hidden(generator: torch.Generator, rows: int, apart: int) -> Tensor:
    """Returns (B, T), True where tokens are hidden."""
    drawn_BT = torch.rand(rows, apart, generator=generator)
    side_BT = torch.rand(rows, apart, generator=generator) < 0.5
    one_BT = drawn_BT < _ONE_HIDDEN
    both_BT = drawn_BT > 1 - _BOTH_HIDDEN
    return torch.cat([one_BT & side_BT | both_BT, one_BT & ~side_BT | both_BT], 1)


def _mask_token(model: nn.Module, spare: int, classes: int) -> int:
    """Returns the model's own mask, or a token that the task has no other use for."""
    own = getattr(getattr(model, "config", None), "mask_token_id", None)
    return own if isinstance(own, int) and 0 <= own < classes else spare
