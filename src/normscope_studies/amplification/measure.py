"""Drawn stacks, updates of them, and how far a first update of each kind moves the output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.measure import amplification, changes_alone, weights_after
from normscope.model import Context, Layout, Stack, StackConfig, profile
from normscope.model.initialisation import initialise
from normscope.optim import OptimizerConfig, make_optimizer, roles
from normscope.placement import named
from normscope.theory.settings import ModelSetting
from normscope.train.device import seed_weights

from ..engine.checks import check_choices, check_different, check_least, check_positive

PLACEMENTS = ("post-ln", "pre-ln", "deepnorm", "admin", "rezero", "peri-ln", "sub-ln", "residual")

RANDOM = "random"
"""An update that is drawn independently of the weights, as Liu et al. 2020 take all to be in theorem 2."""

SMALL_RATES: Mapping[str, float] = MappingProxyType(
    {RANDOM: 1e-7, "sgd": 1e-5, "adam": 1e-7, "lion": 1e-7, "muon": 1e-7}
)
"""At which the change in float64 goes as the square of the rate, which numbers are over. SGD's is larger, because its
gradients are small; of all others the entries of an update are about the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmplificationConfig:
    """Encoders, alike but for placement, depth and update. Raises ValueError for what cannot be measured."""

    placements: tuple[str, ...] = PLACEMENTS
    updates: tuple[str, ...] = (RANDOM, "sgd", "adam", "muon")
    """Lion's first is the gradient's sign, as Adam's is."""
    depths: tuple[int, ...] = (6, 12, 24, 48)
    """In blocks of two sub-layers."""
    width: int = 64
    seeds: int = 3
    tokens: int = 16
    sequences: int = 4
    vocabulary: int = 256
    setting: str = "theory"
    """Initial weights, as `normscope predict` has them; theory: one head, W_Q = W_K = 0, no W_O, N(0, 1 / fan-in)."""
    alone_of: tuple[str, ...] = (RANDOM, "adam")
    """Updates of which every block's change alone is measured, a pass for each ..."""
    alone_blocks: int = 12
    """... in stacks of so many blocks, one of `depths`."""
    edge: float = 0.2
    """An exponent agrees with an order where its interval lies within so much of the order's."""
    sum_edge: float = 0.25
    """The change is the sum of what each block's does alone where the interval of their ratio lies within so much of
    1."""

    def __post_init__(self) -> None:
        check_different(self, "placements", "updates", "depths")
        check_choices(self, "updates", tuple(SMALL_RATES))
        if unknown := [name for name in self.alone_of if name not in self.updates]:
            raise ValueError(f"alone_of: {', '.join(unknown)} is not among the updates {', '.join(self.updates)}")
        if self.alone_of and self.alone_blocks not in self.depths:
            raise ValueError(f"alone_blocks={self.alone_blocks} must be one of depths={self.depths}")
        if list(self.depths) != sorted(self.depths) or self.depths[0] < 2 or len(self.depths) < 2:
            raise ValueError(f"depths: give at least two in rising order, of 2 blocks and more, got {self.depths}")
        check_least(self, seeds=2, sequences=1)
        check_positive(self, "edge", "sum_edge")
        for name in self.placements:
            named(name)(self.model(self.depths[0]).shape("encoder"))

    def model(self, blocks: int) -> ModelSetting:
        """The setting of a stack of so many blocks."""
        return ModelSetting(
            blocks=blocks,
            width=self.width,
            ffn_width=self.width,
            tokens=self.tokens,
            sequences=self.sequences,
            vocabulary=self.vocabulary,
            setting=self.setting,
        )


# N = packed tokens, D = width, V = vocabulary


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


ChangesBySize = Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]
"""By placement and blocks, of each seed what `changes` gives."""
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
