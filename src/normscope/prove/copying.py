"""Copying, for models that name the next token: the second half of a sequence repeats the first."""

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
    UNKNOWABLE_WEIGHT,
    LearningBatch,
    LearningTask,
    alphabet_of,
    replaced,
)
from .losses import loss_from_inputs
from .references import OneStackReference, ReferenceSize


def copying(of: Learner, name: str, classes: int) -> LearningTask:
    """Returns the task for a model whose tokens stand under a name. Raises Untried."""
    names = named_inputs(of.model, of.inputs)
    ids_BT = names[name]
    old = ids_BT.shape[1]
    places = min(old, MOST_PLACES)
    places -= places % 2
    if places < LEAST_PLACES:
        raise Untried(f"copying takes sequences of {LEAST_PLACES} tokens, and these have {old}")
    own = loss_from_inputs(of)
    # A loss that counts all targets alike is to count few that nothing tells.
    parts = 4 if own is not None and "labels" not in names else 2
    apart = places // parts
    places = apart * parts
    alphabet = alphabet_of(of.model, ids_BT, classes)
    shifted = "labels" in names and _are_shifted(names["labels"], ids_BT)

    def draw(generator: torch.Generator, rows: int, trained: bool) -> LearningBatch:
        first_BT = alphabet.drawn(generator, rows, apart)
        drawn_BT = first_BT.repeat(1, parts)
        new = {name: drawn_BT.to(ids_BT.device)}
        known_T = torch.arange(places) >= apart - 1
        known_T[-1] = False
        unknowable_T = torch.arange(places) < apart - 1
        if "labels" in names:
            labels_BT = _labels(drawn_BT, apart, generator, trained)
            if shifted:
                labels_BT = labels_BT.roll(-1, 1)
                labels_BT[:, -1] = IGNORED
            new["labels"] = labels_BT.to(ids_BT.device)
        return LearningBatch(
            inputs=with_changed(of.model, of.inputs, replaced(names, new, old)),
            reference_inputs=(drawn_BT,),
            targets=drawn_BT.roll(-1, 1),
            known=known_T.expand(rows, -1),
            unknowable=unknowable_T.expand(rows, -1),
        )

    def reference(size: ReferenceSize) -> nn.Module:
        return OneStackReference(size, places=places, classes=classes, vocabulary=classes)

    return LearningTask(
        words=f"to copy tokens from {apart} places earlier",
        chance_nats=math.log(len(alphabet.tokens)),
        draw=draw,
        reference=reference,
        is_usual=True,
        own_loss=own,
    )


def _are_shifted(labels: Tensor, ids_BT: Tensor) -> bool:
    """Returns whether labels are the next tokens already."""
    return labels.shape == ids_BT.shape and torch.equal(labels[:, :-1], ids_BT[:, 1:])


def _labels(drawn_BT: Tensor, apart: int, generator: torch.Generator, trained: bool) -> Tensor:
    """Returns the tokens themselves, which a model that is given labels compares one place later;
    most of those that nothing tells are left out of a training.
    """
    if not trained:
        return drawn_BT
    kept_B = torch.rand(len(drawn_BT), generator=generator) < UNKNOWABLE_WEIGHT
    first_T = torch.arange(drawn_BT.shape[1]) < apart
    return drawn_BT.masked_fill(first_T & ~kept_B[:, None], IGNORED)
