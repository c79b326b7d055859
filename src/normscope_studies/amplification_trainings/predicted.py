"""The change of the output by the first update, from a case's formula alone."""

import math
from typing import Literal

from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, Update, predict

from ..advice.cases.case import HEAD_WIDTH, Case


def predicted_change(case: Case, *, vocabulary: int) -> float | None:
    """E‖δy‖² / d of the stack's output at a rate of 1, to first order; None where theory does not follow.

    The change goes as the square of the rate. One sequence of tokens that all differ, random targets. Theory follows
    one stack: an encoder-decoder is read as an encoder of as many blocks as both of its stacks have.
    """
    stack: Literal["encoder", "decoder"] = "decoder" if case.architecture == "decoder" else "encoder"
    model = ModelSetting(
        stack=stack,
        blocks=case.blocks * (2 if case.architecture == "encoder-decoder" else 1),
        width=case.width,
        ffn_width=2 * case.width,
        heads=case.width // HEAD_WIDTH,
        tokens=case.length,
        vocabulary=vocabulary,
        setting=case.initialisation,
    )
    try:
        change = predict(case.placement, model, update=Update(optimizer=case.optimizer, rate=1.0))[stack].change
    except Unpredictable:
        return None
    return change.output if change is not None and 0 < change.output < math.inf else None
