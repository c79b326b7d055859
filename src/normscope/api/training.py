"""The parts of a placement for a training loop of the caller's own: a schedule, first values, work
after every update.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.hooks import RemovableHandle

from ..measure.unchanged import uncompiled
from ..model import (
    profile as profile_stacks,
    renormalise,
    scheduled_numbers,
    set_scheduled,
    unit_vectors,
)
from ..model.padded.modules import Placed
from ..optim import AdaptiveConfig, ScheduleConfig, adaptive_value, factor
from ..optim.schedules import WITH_AN_END, Decay
from ..settings.validation import checked


@checked
def schedule(
    optimizer: Optimizer,
    *,
    decay: Decay = "constant",
    warmup_updates: int = 0,
    horizon_updates: int | None = None,
    decay_from_updates: int = 0,
    decay_at: Sequence[int] = (),
    decay_factor: float = 0.1,
    floor: float = 0.0,
    cooldown_share: float = 0.2,
) -> LambdaLR:
    """Returns the optimiser's rates as peak rates, with a warm-up and a decay: a scheduler of
    torch's.

    Call `.step()` after each `optimizer.step()`; update n then has the rate that a run of NormScope
    has at update n.

    The optimiser:
        optimizer: one of torch's, with the peak rates as its rates.

    The warm-up:
        warmup_updates: over how many updates the rate rises; 0 for none.

    The decay:
        decay: constant, linear, inverse-sqrt, steps, cosine or wsd (controlled), or
            coupled-inverse-sqrt (fairseq's).
        horizon_updates: the length of the training, which linear, cosine and wsd decay need.
        decay_from_updates: linear, inverse-sqrt, cosine: full rate up to here, whatever the
            warm-up.
        decay_at: steps: where the rate drops, in updates.
        decay_factor: steps: what the rate is multiplied with at each drop.
        floor: linear, cosine, wsd: the factor at the horizon.
        cooldown_share: wsd: the share of the training, its last part, in which the rate falls.

    The settings are those of `ScheduleConfig`, and a scheduler's `state_dict` has none of them.
    Raises ValueError for a decay that there is not, or settings that do not go together.
    """
    config = ScheduleConfig(
        decay=decay,
        warmup_updates=warmup_updates,
        decay_from_updates=decay_from_updates,
        decay_at=tuple(decay_at),
        decay_factor=decay_factor,
        floor=floor,
        cooldown_share=cooldown_share,
    )
    if horizon_updates is None and decay in WITH_AN_END:
        raise ValueError(f"decay = {decay!r} ends with the training: give horizon_updates")
    if horizon_updates is not None and horizon_updates < 1:
        raise ValueError(f"horizon_updates must be at least 1, got {horizon_updates}")
    # torch counts from 0, and sets the first rate when a scheduler is made.
    return LambdaLR(
        optimizer, lambda done: factor(config, done + 1, horizon_updates=horizon_updates or 1)
    )


_ATTACHED: "WeakKeyDictionary[nn.Module, RemovableHandle]" = WeakKeyDictionary()


@checked
def profile(model: nn.Module, run: Callable[[], object]) -> None:
    """Take the initial values that placements such as Admin want from one batch; others are left as
    they are.

    What is profiled:
        model: a placed module, or any model that holds some.
        run: one forward pass of the model on a batch of its training, such as `lambda:
            model(batch)`; it is called as often as the placement needs it, without gradients, and
            modes and random generators are as before. Call it on initial weights, with the same
            batch in every process; a module for which it was done, such as one with the weights of
            a checkpoint, is left as it is.

    Raises ValueError where `run` does not reach a stack that asks for it.
    """
    placed = [module for module in model.modules() if isinstance(module, Placed)]
    with ExitStack() as undone:
        for module in placed:
            module.profiling = True
            undone.callback(setattr, module, "profiling", False)
        undone.enter_context(uncompiled())
        finished = [stack for module in placed if not module.unready for stack in module.stacks()]
        profile_stacks(model, run, finished=finished)
    for module in placed:
        module.set_profiled()


@checked
def attach(
    model: nn.Module, optimizer: Optimizer, *, adaptive: AdaptiveConfig | None = None
) -> None:
    """Has the optimiser do after each of its steps what the model's placements ask for; other
    placements ask for nothing.

    nGPT's matrices are put back to length 1, and numbers that follow a schedule move along it.
    Attaching a model again replaces what was attached before. A checkpoint of the model keeps how
    many updates it has seen, so that a resumed training goes on from there.

    What is followed:
        model: a placed module, or any model that holds some.
        optimizer: of several, the one that steps last.
        adaptive: what numbers that follow a schedule move along; its length `over` is in updates.

    Raises ValueError where numbers follow a schedule and none is given, or the other way round.
    """
    numbers = scheduled_numbers(model)
    if numbers and adaptive is None:
        raise ValueError(
            f"{', '.join(numbers)} follows a schedule over updates: say how, such as "
            "adaptive=AdaptiveConfig(over=4000)"
        )
    if adaptive is not None and not numbers:
        raise ValueError("adaptive was given, and no number of the model follows a schedule")
    if adaptive is not None and not isinstance(adaptive.over, int):
        raise ValueError(f"adaptive.over must be a number of updates here, got {adaptive.over!r}")
    if model in _ATTACHED:
        _ATTACHED.pop(model).remove()
    follower = _Follower(model, adaptive)
    _ATTACHED[model] = optimizer.register_step_post_hook(follower)
    for module in model.modules():
        if isinstance(module, Placed):
            module.attached = True


class _Follower:
    """The work that follows every step of an optimiser."""

    def __init__(self, model: nn.Module, adaptive: AdaptiveConfig | None) -> None:
        self.model, self.adaptive = model, adaptive
        self.counting = [
            m for m in model.modules() if isinstance(m, Placed) and m.updates is not None
        ]
        self.updates = 0
        """The updates so far, where no part of the model counts them."""
        self._move()

    def __call__(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        # Anew each time: a model may have been moved to another device in between.
        renormalise(unit_vectors(self.model))
        self.updates += 1
        for module in self.counting:
            module.updates += 1
        self._move()

    def _move(self) -> None:
        """Sets the scheduled numbers to their values at the coming update."""
        if self.adaptive is not None:
            updates = int(self.counting[0].updates) if self.counting else self.updates
            set_scheduled(scheduled_numbers(self.model), adaptive_value(self.adaptive, updates + 1))
