"""Spectral norms of the Jacobians of Pre-LN's sub-layers, by autograd of a stack as it is drawn."""

# T = tokens of the one sequence, D = width

from dataclasses import dataclass

import torch
from torch import Tensor

from normscope.model import Context, Layout
from normscope.model.stack import Block

from ..engine.checks import check_different, check_least, check_rising
from ..theory.simulation import drawn, square_encoder

SUBLAYERS = ("attention", "feed_forward")
"""The sub-layers in the order of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerJacobianConfig:
    """The settings of the study. Raises ValueError for what cannot be drawn."""

    blocks: tuple[int, ...] = (6, 12, 24, 48, 96, 192)
    """The blocks whose Jacobians are taken, of one stack as deep as the last of them."""
    width: int = 128
    tokens: int = 4
    """The tokens of the one sequence of a draw; a Jacobian has tokens · width rows."""
    seeds: int = 16
    """Each draws its own weights and tokens."""

    def __post_init__(self) -> None:
        check_different(self, "blocks")
        check_rising(self, "blocks")
        check_least(self, width=4, tokens=1, seeds=2)


def sublayer_jacobians(config: LayerJacobianConfig, seed: int) -> dict[str, dict[str, list[float]]]:
    """Measures, by sub-layer, a number for each of the blocks: power, ‖x‖² / d of what it reads;
    norm, ‖J‖₂; gain, ‖J‖_F / √(tokens · width), by which J makes a random vector longer.
    """
    shape = square_encoder(config.blocks[-1], config.width)
    # In float64, as the Jacobian of a late block is close to the identity.
    stack = drawn("pre-ln", shape, "theory", seed).double()
    state = torch.randn(config.tokens, config.width, dtype=torch.float64)
    context = Context(layout=Layout(torch.tensor([config.tokens])))
    found: dict[str, dict[str, list[float]]] = {
        name: {"power": [], "norm": [], "gain": []} for name in SUBLAYERS
    }
    for number, block in enumerate(stack.blocks, 1):
        assert isinstance(block, Block)
        read_TD, between_TD, given_TD = _states(block, state, context)
        state = given_TD.detach()
        if number not in config.blocks:
            continue
        ends = {"attention": (read_TD, between_TD), "feed_forward": (between_TD, given_TD)}
        for name, (before_TD, after_TD) in ends.items():
            values = torch.linalg.svdvals(_jacobian(before_TD, after_TD))
            found[name]["power"].append(float(before_TD.detach().square().mean()))
            found[name]["norm"].append(float(values[0]))
            found[name]["gain"].append(float(values.square().mean().sqrt()))
    return found


def _states(block: Block, x_TD: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
    """Returns a block's input, the state between its sub-layers, which the second norm reads, and
    its output; the graph begins at the first.
    """
    _, feed_forward = block.sublayers()
    between: list[Tensor] = []
    handle = feed_forward.norm.register_forward_pre_hook(
        lambda _, inputs: between.append(inputs[0])
    )
    read_TD = x_TD.requires_grad_()
    try:
        given_TD = block(read_TD, context)
    finally:
        handle.remove()
    return read_TD, between[0], given_TD


def _jacobian(before_TD: Tensor, after_TD: Tensor) -> Tensor:
    """∂after / ∂before, (T·D, T·D), a row for each of what is after."""
    size = after_TD.numel()
    each = torch.eye(size, dtype=after_TD.dtype).view(size, *after_TD.shape)
    (rows,) = torch.autograd.grad(
        after_TD, before_TD, each, is_grads_batched=True, retain_graph=True
    )
    return rows.view(size, size)
