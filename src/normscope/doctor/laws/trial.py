"""The trial of a model: one copy of it, a slice of its batch, and what both may cost.

The user's model is read and never written: what is updated, put into modes, or asked with other
weights is the copy, which goes when the trial ends.
"""

import contextlib
import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...limits.memory import available_bytes
from ...measure.unchanged import random_state_kept, uncompiled
from ..observe.gradients import loss_of
from ..trace.forward import Inputs, call_with, loss_of_output, main_tensor, tensors_in
from .slicing import slices

LossFunction = Callable[..., Tensor]


class Untried(ValueError):
    """A law that cannot be asked; the message says why, as a clause."""


class OutOfTime(Untried):
    """The laws have used up what they may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits:
    """The limits on the cost of all laws together."""

    seconds: float = 30.0
    """The processor's seconds, whatever the batch."""
    passes: float = 3.0
    """The passes over the whole batch, forward and backward; a law that takes less than
    `LITTLE_SECONDS` is tried on a smaller batch too.
    """
    most_bytes: int | None = None
    """The largest memory beside the user's model, in bytes; None for as many as are free."""


WEIGHTS_BESIDE = 4
"""Times the weights that a trial takes beside them: a copy, its gradient, and Adam's two means."""
PASSES = 40.0
"""The largest number of passes over the slice by all laws, in forward passes; one update counts for
three.
"""
LITTLE_SECONDS = 5.0
_FORWARD = 3.0
"""Forward passes that one with its backward pass takes as long as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A copy of a model on a slice of its batch."""

    original: nn.Module
    model: nn.Module
    """The copy. It starts in evaluation mode; the law that updates it comes last."""
    copies: dict[int, Any]
    """The copies by the `id` of their originals, as `copy.deepcopy` keeps them."""
    inputs: Inputs
    loss: Callable[[Any], Tensor] | None
    """The loss of an output on this slice."""
    output: Any
    """The output in evaluation mode, before any law touched the copy."""
    seconds: float
    """The processor's seconds that a forward pass takes: a busy machine then tries what an idle one
    does.
    """
    until: float = math.inf
    """The thread's processor time after which no pass begins."""
    budget: float = math.inf
    """Seconds from the first law to then."""

    @property
    def expected(self) -> str:
        """The longest time that the laws are expected to take, in words."""
        return f"about {max(1, math.ceil(min(self.budget, self.seconds * PASSES)))} s"

    def run(self, inputs: Inputs | None = None) -> Any:
        """Returns the copy's output on the slice, or on other inputs. Raises OutOfTime."""
        self.refuse_beyond(1)
        # Under the caller's own autocast torch keeps the cast of a weight, and a law has changed
        # the weight since.
        torch.clear_autocast_cache()
        if not self.model.training:
            # What evaluation draws, as a mask over pieces of a picture, is the same in every pass:
            # two passes then differ by what was changed alone.
            torch.manual_seed(0)
        return call_with(self.model, self.inputs if inputs is None else inputs)

    def refuse_beyond(self, passes: float) -> None:
        """Checks that so many more forward passes stay within the time of all laws. Raises
        OutOfTime where they do not.
        """
        if time.thread_time() + self.seconds * passes > self.until:
            raise OutOfTime(
                f"the trial may take {self.budget:.2g} s here, three passes of the whole batch and "
                "30 s at most, and this one would take more"
            )

    @torch.no_grad()
    def scores(self, inputs: Inputs | None = None) -> Tensor | None:
        """Returns the logits, or the first tensor, of that output; None where there is none."""
        return main_tensor(self.run(inputs))


@contextlib.contextmanager
def trial_of(
    model: nn.Module, inputs: Inputs, loss: LossFunction | None, limits: TrialLimits
) -> Iterator[Trial]:
    """A trial; random generators are at the end what they were. Raises Untried where there is no
    room or no time, and where the model cannot be copied or its copy not be run.
    """
    _refuse_without_room(model, limits)
    with random_state_kept(), uncompiled(), _step_by_step():
        copies: dict[int, Any] = {}
        try:
            twin = copy.deepcopy(model, copies)
        except Exception as error:
            raise Untried(f"the model cannot be copied ({said(error)})") from error
        twin.eval()
        trial = Trial(
            original=model,
            model=twin,
            copies=copies,
            inputs=inputs,
            loss=None,
            output=None,
            seconds=0.0,
        )
        found = _on_a_slice(trial, inputs, loss)
        budget = _budget(found, inputs, limits)
        yield replace(found, budget=budget, until=time.thread_time() + budget)


def _budget(trial: Trial, inputs: Inputs, limits: TrialLimits) -> float:
    """Returns the seconds that all laws may take together: what passes of the whole batch take,
    from what one of its slice took.
    """
    whole = trial.seconds * max(1.0, _size(inputs) / max(1, _size(trial.inputs)))
    return min(limits.seconds, max(limits.passes * _FORWARD * whole, LITTLE_SECONDS))


def _size(inputs: Inputs) -> int:
    """Entries of the largest tensor."""
    given = [] if callable(inputs) else [*tensors_in(inputs)]
    return max((one.numel() for one in given), default=1)


@contextlib.contextmanager
def _step_by_step() -> Iterator[None]:
    """torch's encoder layers compute in evaluation as in training: their short cut leaves out
    padding.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _refuse_without_room(model: nn.Module, limits: TrialLimits) -> None:
    needed = WEIGHTS_BESIDE * sum(
        weight.numel() * weight.element_size() for weight in model.parameters()
    )
    room = limits.most_bytes
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    if room is None and device.type == "cuda":
        room = int(torch.cuda.mem_get_info(device)[0])
    elif room is None:
        room = available_bytes()
    if room is not None and needed > room:
        raise Untried(
            f"a copy of the model that is updated takes {needed / 1e9:.3g} GB, and "
            f"{room / 1e9:.3g} are free"
        )


def _on_a_slice(trial: Trial, inputs: Inputs, loss: LossFunction | None) -> Trial:
    """Returns the trial on the smallest slice on which the copy runs and its loss is finite. Raises
    Untried.
    """
    why = ""
    for given in slices(trial.model, inputs):
        of_output = loss_of_output(loss, given)
        began = time.thread_time()
        try:
            with torch.no_grad():
                output = call_with(trial.model, given)
                took = time.thread_time() - began
                value = _loss_of_these(output, of_output)
        except Exception as error:
            why = f"a copy of the model does not run on a part of the batch ({said(error)})"
            continue
        if bool(value.isfinite()):
            return replace(trial, inputs=given, loss=of_output, output=output, seconds=took)
        why = "the loss on a part of the batch is not finite"
    raise Untried(why)


def _loss_of_these(output: Any, loss: Callable[[Any], Tensor] | None) -> Tensor:
    """Returns the loss of an output. Raises UserWarning where its targets are those of the whole
    batch, along which torch would repeat an output of a part of it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Using a target size")
        return loss_of(output, loss)[0]


def said(error: Exception) -> str:
    """Returns an error's name and message, in a line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:120]}" if text else type(error).__name__
