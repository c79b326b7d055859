"""A model run on one batch, time and again, and each time left as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..doctor.trace.forward import Inputs, amiss_with, call_with, tensors_in
from ..errors import UserError, in_one_line, no_end
from ..measure.unchanged import left_unchanged, looked_at
from .following import TransplantRefused


class Passes:
    """Runs of a model. Its buffers are put back after each, and the parameters that it writes into
    itself.
    """

    def __init__(self, model: nn.Module, inputs: Inputs) -> None:
        self.model, self.inputs = model, inputs
        self._parameters: list[Tensor] = [*model.parameters()]
        """The parameters whose changes are undone: all of them until the first pass has shown which
        ones it writes into.
        """
        self.is_placed = False
        """True once the model has been put under its placement."""

    def outputs(self) -> list[Tensor]:
        """Returns all tensors that it returns, in evaluation mode and without gradients.

        Raises TransplantRefused where it raises, or gives NaN.
        """
        with looked_at(self.model), self._put_back():
            found = [one.clone() for one in tensors_in(self._run(), inside_objects=False)]
        # A loss of no targets is NaN, and says nothing of the rest.
        told = [one for one in found if one.is_floating_point() and one.ndim] or found
        wrong = sum(int(torch.isnan(one).sum()) for one in told)
        if wrong:
            raise TransplantRefused(
                f"{type(self.model).__name__} gives NaN on this batch, in {wrong} of "
                f"{sum(one.numel() for one in told)} entries: nothing can be proven on it; give a "
                "batch of numbers (inputs= in Python), or fix the weights"
            )
        return found

    def with_gradients(self) -> None:
        """One pass in evaluation mode. Raises TransplantRefused where it raises."""
        with left_unchanged(self.model), self._put_back(), torch.enable_grad():
            self._run()

    @contextmanager
    def as_in_training(self) -> Iterator[None]:
        """Everything within finds the model in training, with gradients."""
        with left_unchanged(self.model), self._put_back(), torch.enable_grad():
            for module in self.model.modules():
                module.training = True
            yield

    @contextmanager
    def _put_back(self) -> Iterator[None]:
        """Restores, at the end, the numbers that were written into meanwhile."""
        tensors = [*self.model.buffers(), *self._parameters]
        before = [(one, _version(one), one.detach().clone()) for one in tensors]
        try:
            yield
        finally:
            written = [kept for kept in before if kept[1] < 0 or _version(kept[0]) != kept[1]]
            with torch.no_grad():
                for tensor, _, value in written:
                    tensor.copy_(value)
        changed = {id(tensor) for tensor, _, _ in written}
        self._parameters = [one for one in self._parameters if id(one) in changed]

    def _run(self) -> Any:
        try:
            with no_end():
                return call_with(self.model, self.inputs)
        except UserError:  # says already what to do
            raise
        except Exception as error:
            if self.is_placed:
                said = "the transplanted model cannot be run:"
            else:
                said = f"{type(self.model).__name__} cannot be looked at: the forward pass raised"
            told = [f"{said} {in_one_line(error)}", amiss_with(self.model, self.inputs)]
            raise TransplantRefused("; ".join(filter(None, told))) from error


def _version(x: Tensor) -> int:
    """Returns how often a tensor has been written into; -1 where that is not counted."""
    return -1 if x.is_inference() else x._version


def change(before: list[Tensor], after: list[Tensor]) -> float:
    """Returns the change of outputs: the root mean square of the difference over that of the
    outputs before; 0 where they are the same bits.
    """
    moved, size = 0.0, 0.0
    for a, b in zip(before, after, strict=False):
        if a.is_floating_point() and a.shape == b.shape:
            apart = (a != b) & ~(torch.isnan(a) & torch.isnan(b))
            moved += float((a[apart].double() - b[apart].double()).square().sum())
            size += float(a[torch.isfinite(a)].double().square().sum())
    return float((moved / max(size, 1e-300)) ** 0.5) if moved else 0.0
