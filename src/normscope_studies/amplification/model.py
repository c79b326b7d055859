"""One drawn stack with its loss on a batch, and updates of it."""

# N = packed tokens, D = width, V = vocabulary
import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.measure import weights_after
from normscope.model import Context, Layout, Stack, StackConfig, profile
from normscope.model.initialisation import initialise
from normscope.optim import OptimizerConfig, make_optimizer, roles
from normscope.placement import named
from normscope.theory.settings import ModelSetting
from normscope.train.device import seed_weights

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
        self.rows_VD = torch.randn(model.vocabulary, model.width, dtype=torch.float64) / model.width**0.5
        tokens = self.layout.tokens
        self.inputs_ND = torch.randn(tokens, model.width, dtype=torch.float64)
        self.targets_N = torch.randint(model.vocabulary, (tokens,))
        profile(self.stack, self.output)

    def output(self) -> Tensor:
        """(N, D)."""
        hidden_ND: Tensor = self.stack(self.inputs_ND, Context(layout=self.layout, causal=False))
        return hidden_ND

    def loss(self) -> Tensor:
        """Mean cross-entropy per token in nats."""
        return functional.cross_entropy(self.output() @ self.rows_VD.T, self.targets_N)

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
        return value if isinstance(value, Tensor) else self.stack.placement.hidden(value)

    def updated(self, kind: str, rate: float) -> dict[str, Tensor]:
        """The weights after the first update of an optimiser."""
        config = OptimizerConfig(name=kind, peak_lr=rate)
        return weights_after(self.stack, lambda stack: make_optimizer(stack, config), lambda _: self.loss())[1]

    def moved_at_random(self, rate: float, seed: int) -> dict[str, Tensor]:
        """Weights to each of which N(0, rate²) has been added."""
        generator = torch.Generator().manual_seed(seed)
        return {
            name: weight.detach() + rate * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            for name, weight in self.stack.named_parameters()
            if weight.requires_grad
        }
