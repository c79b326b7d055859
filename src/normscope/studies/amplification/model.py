"""One drawn stack with its loss, and updates of it."""

# N = packed tokens, D = width, V = vocabulary
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...measure import weights_after
from ...model import Context, Layout, Stack, StackConfig, profile
from ...model.initialisation import initialise
from ...optim import OptimizerConfig, make_optimizer, roles
from ...placement import named
from ...theory.model_setting import ModelSetting
from ...train.seeds import seed_weights

_THEORY_TRAINS = ("value", "ffn_in", "ffn_out")
"""In theory's setting, whose W_Q = W_K = 0 get no gradient and whose W_O is not there."""


class DrawnStack:
    """An encoder in float64 with inputs from N(0, 1), random targets and output rows of mean squared length 1.

    In theory's setting what an update moves are the matrices that theory has, and the placement's own numbers, such as
    ReZero's gates; in other settings all weights of the stack.
    """

    def __init__(self, placement: str, model: ModelSetting, seed: int) -> None:
        seed_weights(seed)
        kind = named(placement)
        self.stack = Stack(kind(model.shape("encoder")), StackConfig(), initialisation=None)
        initialise(self.stack, model.setting, kind)
        self.stack.double()
        if model.setting == "theory":
            of = roles(self.stack)
            for name, weight in self.stack.named_parameters():
                weight.requires_grad_(of[name] == "gate")
            for sublayer in self.stack.sublayers():
                for name, matrix in sublayer.f.matrices():
                    matrix.weight.requires_grad_(name in _THEORY_TRAINS)
        self.layout = Layout(torch.full((model.sequences,), model.tokens))
        self.width, self.vocabulary = model.width, model.vocabulary
        self.rows_VD = torch.randn(model.vocabulary, model.width, dtype=torch.float64) / model.width**0.5
        self._batches: dict[int, tuple[Tensor, Tensor]] = {}
        for number in range(2):
            self.batch(number)
        profile(self.stack, lambda: self.output(0))

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Inputs (N, D) and targets (N,) of that number, the same each time."""
        if number not in self._batches:
            tokens = self.layout.tokens
            inputs_ND = torch.randn(tokens, self.width, dtype=torch.float64)
            self._batches[number] = inputs_ND, torch.randint(self.vocabulary, (tokens,))
        return self._batches[number]

    def output(self, number: int = 0) -> Tensor:
        """(N, D) on the batch of that number."""
        hidden_ND: Tensor = self.stack(self.batch(number)[0], Context(layout=self.layout, causal=False))
        return hidden_ND

    def loss(self, update: int) -> Tensor:
        """Mean cross-entropy per token in nats on the batch of an update, which are counted from 1."""
        number = update - 1
        return functional.cross_entropy(self.output(number) @ self.rows_VD.T, self.batch(number)[1])

    def sublayers(self) -> dict[str, nn.Module]:
        """Every F by name, in order."""
        return {
            f"{place}/{kind}": getattr(block, kind)
            for place, block in enumerate(self.stack.blocks, 1)
            for kind in block.kinds  # type: ignore[union-attr]
        }

    def blocks(self) -> dict[str, nn.Module]:
        """Every block by its number from 1."""
        return {str(place): block for place, block in enumerate(self.stack.blocks, 1)}

    def hidden(self, value: object) -> Tensor:
        """The residual stream of a block's output, or the stack's output itself."""
        return value if isinstance(value, Tensor) else self.stack.placement.hidden(value)  # type: ignore[no-any-return, arg-type]

    def updated(self, kind: str, rate: float, updates: tuple[int, ...] = (1,)) -> dict[int, dict[str, Tensor]]:
        """The weights after each of these updates of an optimiser."""
        return weights_after(self.stack, _maker(kind, rate), self.loss, updates)

    def moved_at_random(self, rate: float, seed: int) -> dict[str, Tensor]:
        """Weights to each of which N(0, rate²) has been added."""
        generator = torch.Generator().manual_seed(seed)
        return {
            name: weight.detach() + rate * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            for name, weight in self.stack.named_parameters()
            if weight.requires_grad
        }


def _maker(kind: str, rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: make_optimizer(model, OptimizerConfig(name=kind, peak_lr=rate))
