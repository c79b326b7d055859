"""What is measured of one drawn stack: its change by a first update of each kind, and by later ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...measure import amplification, changes_alone
from ...theory.model_setting import ModelSetting
from .config import RANDOM, SMALL_RATES, TRAINING_RATES
from .model import DrawnStack

PARTS = ("total", "own", "amplified")


def changes(
    placement: str, model: ModelSetting, kinds: Sequence[str], alone_of: Sequence[str], later: int, seed: int
) -> dict[str, Any]:
    """By kind of update, changes E(y* - y)² of a stack of that seed, over the square of the rate.

    `output` of the stack on the update's own batch, over E f², and `elsewhere` the same on another; `stream` of every
    block's output over its square; `sublayers` total, own and amplified of every F, over F's square. For the kinds of
    `alone_of` also `alone`: the sum of what each block's change does to the output alone, over the output's change. For
    optimisers also `trained`: the output's change over E f² at a training's rate, not divided by that, after the first
    update and after update `later`.
    """
    drawn = DrawnStack(placement, model, seed)
    found = {}
    for kind in kinds:
        rate = SMALL_RATES[kind]
        after = drawn.moved_at_random(rate, seed) if kind == RANDOM else drawn.updated(kind, rate)[1]
        found[kind] = _first(drawn, after, rate, alone=kind in alone_of)
        if kind in TRAINING_RATES:
            trained = drawn.updated(kind, TRAINING_RATES[kind], (1, later))
            found[kind]["trained"] = [_output(drawn, trained[update], 0) for update in (1, later)]
    return found


def _first(drawn: DrawnStack, after: Mapping[str, Tensor], rate: float, *, alone: bool) -> dict[str, Any]:
    blocks, sublayers = drawn.blocks(), drawn.sublayers()
    seen = amplification(drawn.stack, drawn.output, after, {**blocks, **sublayers}, pick=drawn.hidden)
    square = rate**2
    found: dict[str, Any] = {
        "output": seen.relative / square,
        "elsewhere": _output(drawn, after, 1) / square,
        "stream": [seen.sublayers[name].relative / square for name in blocks],
        "sublayers": {
            part: [getattr(one, part) / one.square / square for one in map(seen.sublayers.__getitem__, sublayers)]
            for part in PARTS
        },
    }
    if alone:
        each = changes_alone(drawn.stack, drawn.output, after, blocks, pick=drawn.hidden)
        found["alone"] = sum(each.values()) / seen.total
    return found


def _output(drawn: DrawnStack, after: Mapping[str, Tensor], number: int) -> float:
    """The change of the stack's output on a batch, over E f²."""
    with torch.no_grad():
        square = float(drawn.output(number).square().mean())
    whole = {"stack": drawn.stack}
    return changes_alone(drawn.stack, lambda: drawn.output(number), after, whole)["stack"] / square
