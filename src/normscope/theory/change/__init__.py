"""The change of a stack's values by one update, predicted: how far every block's output moves.

The equations are T19 and T20 of docs/theory.md.
"""

import math
from dataclasses import dataclass

import numpy as np

from ...placement import Placement
from ..backward import backward
from ..loss import loss_gradient
from ..mixing import Array
from ..moments import Unpredictable
from ..places import MOST
from ..settings import InitialState, ModelSetting
from ..stream import MomentStack, StreamSetting
from .carried import Carried
from .rules import UPDATES
from .tokens import over_tokens

ONE_STACK = "theory follows an update through one stack, encoder or decoder, and not through both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The first update of a training: an optimiser and its rate."""

    optimizer: str = "adam"
    """A key of `UPDATES`. Momentum is at its first step, and nothing decays."""
    rate: float = 1e-3

    def __post_init__(self) -> None:
        if self.optimizer not in UPDATES:
            raise ValueError(f"update must be one of {', '.join(UPDATES)}, got {self.optimizer!r}")
        if not 0 < self.rate < math.inf:
            raise ValueError(f"rate must be positive and finite, got {self.rate}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateChange:
    """Holds what one update moves, to first order in its rate: mean squares over tokens, features
    and draws of the model.

    Curves are (L+1,) by completed blocks for the stream, whose embedding stays, and (L,) by block
    for sub-layers.
    """

    update: str
    rate: float
    stream: Array
    """E‖δx_l‖² / d, of the stream that `q` is of."""
    own: dict[str, Array]
    """E‖δF(x)‖² / d by the update of F's own matrices, its input as it was; by kind of
    sub-layer.
    """
    amplified: dict[str, Array]
    """The same of what F makes of the change at its input."""
    total: dict[str, Array]
    """The same of both together, which are not independent: both go down the loss."""
    output: float
    """E‖δy‖² / d of the stack's output."""
    output_two: float
    """E⟨δy_s, δy_t⟩ / d of two tokens."""
    loss: float
    """The change of the loss to first order, in nats: Σ_t E⟨g_t, δy_t⟩, which is negative."""


def change_of(
    placement: Placement, model: ModelSetting, setting: StreamSetting, update: Update
) -> UpdateChange:
    """Returns the change of one stack, which is read anew with updates of the formula's own
    numbers.

    Raises Unpredictable where theory does not follow.

    Equations T19 and T20.
    """
    _refuse(model)
    # Read anew, since numbers that a formula trains bring parts of their own.
    stack = MomentStack(placement, setting, follows=True)
    initial = InitialState(model.setting, placement)
    sinusoidal = model.position_encoding == "sinusoidal"
    stack.forward(initial.parts(stack.tokens, model.source, sinusoidal=sinusoidal))
    if stack.atoms.remainders:
        raise Unpredictable(
            "theory follows an update through layer-norm and rms-norm, and not through dyt and derf"
        )
    # The gradient first: a step is made of it.
    at_output, along = loss_gradient(stack, model)
    rule, gradients = UPDATES[update.optimizer], backward(stack, at_output, along)
    carried = Carried(stack, gradients, at_output, rule, last_is_drawn=initial.output_is_drawn)
    square, output = update.rate**2, carried.gram(stack.output)
    return UpdateChange(
        update=update.optimizer,
        rate=update.rate,
        stream=square * np.array([carried.gram(state).one for state in stack.states]),
        own=_by_kind(stack, [moved.own.one * square for moved in carried.moved]),
        amplified=_by_kind(stack, [moved.amplified.one * square for moved in carried.moved]),
        total=_by_kind(stack, [moved.total.one * square for moved in carried.moved]),
        output=square * output.one,
        output_two=square * output.two,
        loss=-update.rate * carried.downhill(over_tokens(at_output)),
    )


def _refuse(model: ModelSetting) -> None:
    """Raises Unpredictable for a model through which no update is followed. Equation T19."""
    if model.sequences > 1:
        raise Unpredictable(f"theory follows an update by one sequence, not by {model.sequences}")
    if model.stack == "decoder" and model.tokens > MOST:
        raise Unpredictable(
            f"theory follows an update through a causal stack token by token, up to {MOST}, got "
            f"{model.tokens}: what each moves by the sign of a sum over all is not known of "
            "neighbours taken together"
        )
    grouped = model.key_value_heads not in (None, model.heads)
    if grouped or model.position_encoding == "rotary":
        raise Unpredictable(
            "theory follows an update through queries that have heads of keys and values of their "
            "own, and without rotary positions"
        )
    if model.dropout:
        raise Unpredictable(f"theory follows an update without dropout, not with {model.dropout:g}")


def _by_kind(stack: MomentStack, values: list[float]) -> dict[str, Array]:
    """Sorts values of sub-layers by their kind."""
    found: dict[str, list[float]] = {}
    for applied, value in zip(stack.applied, values, strict=True):
        found.setdefault(applied.site.kind, []).append(value)
    return {kind: np.array(curve) for kind, curve in found.items()}
