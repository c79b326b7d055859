"""Stacks as they are drawn, run on sequences: what the theory's predictions are compared with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from normscope.model import Context, Layout, Stack, StackConfig, profile
from normscope.model.embedding import Embedding
from normscope.model.initialisation import initialise
from normscope.model.stack import PlacedEnd, norm_maker
from normscope.placement import named
from normscope.placement.reading import read_head
from normscope.theory.predict import ModelSetting

SEQUENCES = 6
"""Of each draw; their gradients are told apart."""


@dataclass(frozen=True)
class Simulated:
    """Means over draws and sequences, of one stack."""

    q: NDArray[np.float64]
    """E‖x_l‖² / d."""
    p: NDArray[np.float64]
    gradient_norm: dict[str, NDArray[np.float64]]
    """Roots of the mean squared Frobenius norms, block by block."""


def simulate(placement: str, model: ModelSetting, draws: int, seed: int = 0) -> dict[str, Simulated]:
    """Over `draws` models of float32, each with sequences, targets and an output projection of its own."""
    torch.manual_seed(seed)
    drawn_again = _Model(placement, model)
    drawn = [drawn_again.run() for _ in range(draws)]
    return {kind: _mean([draw[kind] for draw in drawn]) for kind in drawn[0]}


class _Model:
    def __init__(self, placement: str, model: ModelSetting) -> None:
        self.model, self.placement = model, named(placement)
        kinds = ("encoder", "decoder") if model.stack == "encoder-decoder" else (model.stack,)
        placements = {kind: self.placement(model.shape(kind)) for kind in kinds}
        norm = "as-placement" if model.norm == "layer-norm" else model.norm
        self.stacks = {kind: Stack(placed, StackConfig(norm=norm)) for kind, placed in placements.items()}
        self.layout = Layout(torch.full((SEQUENCES,), model.tokens))
        self.embedding = Embedding(model.vocabulary, model.width, placements[kinds[-1]])
        last = self.stacks[kinds[-1]]
        asked, make = read_head(last.placement, model.vocabulary), norm_maker(last.placement, norm)
        self.head = PlacedEnd(asked, make, last.schedules.value)
        # Gradients of weights are made of those of activations, so that sequences can be told apart.
        self.modules = nn.ModuleList([*self.stacks.values(), self.embedding]).requires_grad_(False)
        self._forget()
        for kind, stack in self.stacks.items():
            _record_stream(stack, lambda moments, k=kind: self.found[k][0].append(moments))
            for sublayer in stack.sublayers():
                crosses = "cross_" if sublayer.site.kind == "cross_attention" else ""
                for name, linear in sublayer.f.matrices():
                    _record_gradient(
                        linear, lambda norm, k=kind, n=crosses + name: self.found[k][1].setdefault(n, []).append(norm)
                    )

    def run(self) -> dict[str, list[Any]]:
        initialise(self.modules, self.model.setting, self.placement)
        inputs = [self._input() for _ in self.stacks]
        self._forget()
        profile(self.modules, lambda: self._output(inputs))
        self._forget()
        vocabulary, width = self.model.vocabulary, self.model.width
        own = self.model.setting == "theory" or not self.model.tied
        rows = torch.randn(vocabulary, width) / width**0.5 if own else self.embedding.weight
        rows = self.embedding.placement.output_rows(rows, self.head, vocabulary)
        targets = torch.randint(vocabulary, (self.layout.tokens,))
        logits = self._output(inputs) @ rows.T
        (nn.functional.cross_entropy(logits, targets, reduction="sum") / self.model.tokens).backward()
        return self.found

    def _forget(self) -> None:
        self.found = {kind: [[], {}] for kind in self.stacks}

    def _input(self) -> Tensor:
        """In the theory's setting independent tokens; in the paper's no token twice in a sequence, and positions."""
        if self.model.setting == "theory":
            return torch.randn(self.layout.tokens, self.model.width, requires_grad=True)
        ids = [2 + torch.randperm(self.model.vocabulary - 2)[: self.model.tokens] for _ in range(SEQUENCES)]
        embedded = self.embedding(torch.cat(ids), self.layout.positions_N, self.layout.longest)
        return embedded.requires_grad_()

    def _output(self, inputs: list[Tensor]) -> Tensor:
        x, memory = inputs[0], {}
        for (kind, stack), embedded in zip(self.stacks.items(), inputs, strict=True):
            x = stack(embedded, Context(layout=self.layout, causal=kind == "decoder", **memory))
            memory = {"memory_MD": x, "memory_layout": self.layout}
        return x


def _record_stream(stack: Stack, record: Callable[[tuple[float, float]], None]) -> None:
    hidden = stack.placement.hidden
    stack.blocks[0].register_forward_pre_hook(lambda _, inputs: record(_moments(hidden(inputs[0]))))
    for block in stack.blocks:
        block.register_forward_hook(lambda _, __, state: record(_moments(hidden(state))))


def _record_gradient(linear: nn.Linear, record: Callable[[float], None]) -> None:
    """Its mean squared Frobenius norm for one sequence: of Σ_i g_i x_iᵀ that is Σ_ij ⟨g_i, g_j⟩ ⟨x_i, x_j⟩."""

    def forward(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x = _products(inputs[0].detach())
        if output.requires_grad:  # not while a placement takes its profile
            output.register_hook(lambda g: record(float((_products(g) * x).sum()) / SEQUENCES))

    linear.register_forward_hook(forward)


def _products(x_ND: Tensor) -> Tensor:
    """Of all pairs of tokens, sequence by sequence."""
    x_BTD = x_ND.view(SEQUENCES, -1, x_ND.shape[-1])
    return x_BTD @ x_BTD.mT


@torch.no_grad()
def _moments(x_ND: Tensor) -> tuple[float, float]:
    products = _products(x_ND).mean(0).double() / x_ND.shape[1]
    one, tokens = float(products.trace()), len(products)
    return one / tokens, (float(products.sum()) - one) / (tokens * (tokens - 1))


def _mean(draws: list[list[Any]]) -> Simulated:
    moments = np.mean([stream for stream, _ in draws], axis=0)
    # Gradients were recorded from the last block to the first.
    squares = {name: np.mean([found[name][::-1] for _, found in draws], axis=0) for name in draws[0][1]}
    return Simulated(moments[:, 0], moments[:, 1], {name: np.sqrt(square) for name, square in squares.items()})
