"""Labels of whole examples that depend on content and on its place: which token follows a marker,
and in which quarter of a picture a spot stands, bright or dark.
"""

# B = examples, T = tokens, C = classes

import math

import torch
from torch import Tensor, nn

from ..doctor.laws.given import named_inputs, with_changed
from ..doctor.laws.trial import Untried
from ..doctor.learned import Learner
from .asking import (
    LEAST_PLACES,
    MOST_PLACES,
    LearningBatch,
    LearningTask,
    alphabet_of,
    replaced,
    with_rows,
)
from .losses import loss_from_labels
from .references import OneStackReference, ReferenceSize

_MOST_LABELS = 8


def labelling(of: Learner, name: str, classes: int) -> LearningTask:
    """Returns the task in which a sequence's class is the token that follows a marker. Raises
    Untried.
    """
    names = named_inputs(of.model, of.inputs)
    ids_BT = names[name]
    old = ids_BT.shape[1]
    places = min(old, MOST_PLACES)
    if places < LEAST_PLACES:
        raise Untried(f"the task takes {LEAST_PLACES} tokens, and sequences have {old}")
    most = int(ids_BT.max()) + 1
    alphabet = alphabet_of(of.model, ids_BT, most)
    labels = min(classes, _MOST_LABELS, len(alphabet.tokens))

    def draw(generator: torch.Generator, rows: int, trained: bool) -> LearningBatch:
        which_BT = torch.randint(labels, (rows, places), generator=generator)
        drawn_BT = alphabet.tokens[which_BT]
        # The first and the last token are read for the whole by many models: they stay plain.
        at_B = torch.randint(1, places - 2, (rows,), generator=generator)
        row_B = torch.arange(rows)
        drawn_BT[row_B, at_B] = alphabet.spare
        target_B = which_BT[row_B, at_B + 1]
        new = {name: drawn_BT.to(ids_BT.device)}
        changed = replaced(names, new, old)
        if "labels" in names:
            changed["labels"] = target_B.to(ids_BT.device)
        return _batch(of, changed, drawn_BT, target_B)

    def reference(size: ReferenceSize) -> nn.Module:
        return OneStackReference(
            size, places=places, classes=classes, vocabulary=most, labels_whole=True
        )

    return LearningTask(
        words="to name the token that follows a marker",
        chance_nats=math.log(labels),
        draw=draw,
        reference=reference,
        own_loss=loss_from_labels(of),
    )


def _batch(
    of: Learner, changed: dict[str, Tensor], given: Tensor, target_B: Tensor
) -> LearningBatch:
    return LearningBatch(
        inputs=with_changed(of.model, of.inputs, changed),
        reference_inputs=(given,),
        targets=target_B.to(changed[next(iter(changed))].device),
        known=torch.ones_like(target_B, dtype=torch.bool),
        unknowable=torch.zeros_like(target_B, dtype=torch.bool),
    )


_GRID = 4
"""Cells of a side, each of which may have the spot."""
_NOISE, _SPOT = 0.1, 1.0


def picturing(of: Learner, name: str, classes: int) -> LearningTask:
    """Returns the task in which a picture's class tells in which quarter a spot stands, and whether
    it is bright. Raises Untried.
    """
    names = named_inputs(of.model, of.inputs)
    pictures = names[name]
    channels, height, width = pictures.shape[1:]
    if min(height, width) < _GRID:
        raise Untried(f"the task takes pictures of {_GRID} x {_GRID} pixels at least")
    labels = max(one for one in (2, 4, 8) if one <= max(2, classes))
    patch = max(1, min(height, width) // _GRID)

    def draw(generator: torch.Generator, rows: int, trained: bool) -> LearningBatch:
        drawn, target_B = _spotted((rows, channels, height, width), labels, generator)
        changed = {key: with_rows(given, rows) for key, given in names.items()}
        changed[name] = drawn.to(pictures)
        if "labels" in names:
            changed["labels"] = target_B.to(pictures.device)
        return _batch(of, changed, _patches(drawn, patch), target_B)

    def reference(size: ReferenceSize) -> nn.Module:
        return OneStackReference(
            size,
            places=(height // patch) * (width // patch),
            classes=classes,
            features=channels * patch * patch,
            labels_whole=True,
        )

    return LearningTask(
        words="to tell in which quarter of a picture a spot stands, and whether it is bright",
        chance_nats=math.log(labels),
        draw=draw,
        reference=reference,
        own_loss=loss_from_labels(of),
    )


def _spotted(
    shape: tuple[int, int, int, int], labels: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Returns pictures of noise with a spot each, and their classes.

    Of eight classes each is a quarter and a sign, of four a quarter or, dark, the one opposite, of
    two a half, the other where it is dark.
    """
    rows, _, height, width = shape
    drawn = _NOISE * torch.randn(shape, generator=generator)
    cell_B = torch.randint(_GRID * _GRID, (rows,), generator=generator)
    dark_B = torch.randint(2, (rows,), generator=generator)
    for row in range(rows):
        at_y, at_x = divmod(int(cell_B[row]), _GRID)
        high, wide = height // _GRID, width // _GRID
        spot = drawn[row, :, at_y * high : (at_y + 1) * high, at_x * wide : (at_x + 1) * wide]
        spot += -_SPOT if dark_B[row] else _SPOT
    lower_B = (cell_B // _GRID >= _GRID // 2).long()
    right_B = (cell_B % _GRID >= _GRID // 2).long()
    if labels == 2:
        return drawn, lower_B ^ dark_B
    quarter_B = 2 * lower_B + right_B
    if labels == 4:
        return drawn, (quarter_B + 2 * dark_B) % 4
    return drawn, quarter_B + 4 * dark_B


def _patches(drawn: Tensor, patch: int) -> Tensor:
    """Cuts (B, channels, H, W) into (B, patches, channels · patch²)."""
    cut = nn.functional.unfold(drawn, kernel_size=patch, stride=patch)
    return cut.mT.contiguous()
