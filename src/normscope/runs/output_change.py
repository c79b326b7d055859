"""How far an update moves a model's output: what the controller of a scheduled number goes by."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..model import Stack
from ..model.modes import in_mode


class OutputChange:
    """The output of a model's last stack on one batch, before an update and after it: ‖f(θ + δ) - f(θ)‖ / ‖f(θ)‖.

    The change of the output by a change δ of the weights is what Liu et al. 2020 (arXiv:2004.08249, section 4.2) call
    amplification where it grows with depth. Two forward passes in evaluation mode, which draw no random numbers and
    leave the model as it was; norms over all features of all tokens.
    """

    def __init__(self, model: nn.Module, forward: Callable[[], object]) -> None:
        """forward: passes the batch through the model. Raises ValueError for a model without a stack."""
        stacks = [module for module in model.modules() if isinstance(module, Stack)]
        if not stacks:
            raise ValueError("the model has no stack of blocks, whose output could be measured")
        self.model, self.forward, self.last_stack = model, forward, stacks[-1]
        self._before = torch.empty(0)

    def before_step(self) -> None:
        """Keep the output as it is."""
        self._before = self._output()

    def after_step(self) -> float:
        """By how much it has changed, as a share of its own size; NaN where one of them is not finite."""
        before = self._before.double()
        change = torch.linalg.vector_norm(self._output().double() - before) / torch.linalg.vector_norm(before)
        return float(change)

    @torch.no_grad()
    def _output(self) -> Tensor:
        seen: list[Tensor] = []
        watched = self.last_stack.register_forward_hook(lambda stack, inputs, output: seen.append(output))
        try:
            with in_mode(self.model, training=False):
                self.forward()
        finally:
            watched.remove()
        return seen[-1]
