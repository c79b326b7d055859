"""What is measured of one drawn stack: how far a first update of each kind moves it."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from normscope.measure import amplification, changes_alone
from normscope.theory.settings import ModelSetting

from .config import RANDOM, SMALL_RATES
from .model import DrawnStack

PARTS = ("total", "own", "amplified")


def changes(
    placement: str, model: ModelSetting, kinds: Sequence[str], alone_of: Sequence[str], seed: int
) -> dict[str, Any]:
    """By kind of update, changes E(y* - y)² of a stack of that seed on the update's batch, over the rate's square.

    `output` of the stack over E f²; `stream` of every block's output over its square; `sublayers` total, own and
    amplified of every F, over F's square. For the kinds of `alone_of` also `alone`: the sum of what each block's change
    does to the output alone, over the output's change.
    """
    drawn = DrawnStack(placement, model, seed)
    found = {}
    for kind in kinds:
        rate = SMALL_RATES[kind]
        after = drawn.moved_at_random(rate, seed) if kind == RANDOM else drawn.updated(kind, rate)
        found[kind] = _change(drawn, after, rate, alone=kind in alone_of)
    return found


def _change(drawn: DrawnStack, after: Mapping[str, Tensor], rate: float, *, alone: bool) -> dict[str, Any]:
    blocks, sublayers = drawn.blocks(), drawn.sublayers()
    seen = amplification(drawn.stack, drawn.output, after, {**blocks, **sublayers}, pick=drawn.hidden)
    square = rate**2
    found: dict[str, Any] = {
        "output": seen.relative / square,
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
