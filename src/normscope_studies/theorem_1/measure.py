"""The gradient of a stack's last W₂, one sequence at a time, in the setting of Xiong et al. 2020,
section 3.3.
"""

# S = sequences, T = tokens of each, N = S·T packed tokens, D = width, F = inner width (here D), V =
# vocabulary

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from normscope.model import Context, Layout, Stack
from normscope.model.sublayers import FeedForward

from ..engine.checks import check_least
from ..theory.simulation import drawn, square_encoder

ROWS = {"N(0, 1/d)": -0.5, "N(0, 1)": 0.0}
"""The distribution that rows of the output projection are drawn from: their elements have the
standard deviation d to this power.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theorem1Config:
    """Encoders in the setting of section 3.3. Raises ValueError for what cannot be drawn or
    fitted.
    """

    depths: tuple[int, ...] = (2, 4, 6, 8, 12, 16, 24, 32, 48)
    """Blocks, at `width`."""
    width: int = 512
    widths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    """The widths at `blocks` blocks."""
    blocks: int = 6
    seeds: int = 32
    tokens: int = 16
    """Tokens of the longer sequences; the others have one."""
    sequences: int = 8
    """Sequences of each draw of the weights, each with a loss of its own."""
    vocabulary: int = 4096

    def __post_init__(self) -> None:
        for name in ("depths", "widths"):
            values = getattr(self, name)
            if len(values) < 3 or values[0] < 1 or any(a >= b for a, b in pairwise(values)):
                raise ValueError(
                    f"{name} must be three or more rising numbers from 1 on, got {values}"
                )
        check_least(self, width=4, blocks=1, seeds=2, tokens=2, sequences=1, vocabulary=2)
        if odd := [width for width in (self.width, *self.widths) if width % 2 or width < 4]:
            raise ValueError(f"widths must be even and at least 4, got {odd[0]}")

    def shapes(self, over: Literal["blocks", "width"]) -> list[tuple[int, int]]:
        """(blocks, width) of every place of a sweep."""
        if over == "blocks":
            return [(depth, self.width) for depth in self.depths]
        return [(self.blocks, width) for width in self.widths]


def sweeps_of_seed(
    placement: str, shapes: Mapping[str, Sequence[tuple[int, int]]], seed: int, **sizes: Any
) -> dict[str, list[dict[str, Any]]]:
    """`last_layer_gradients` of one seed at every (blocks, width) of each sweep, by the name of the
    sweep.
    """
    sweeps = {}
    for over, places in shapes.items():
        sweeps[over] = [
            last_layer_gradients(placement, blocks=blocks, width=width, seed=seed, **sizes)
            for blocks, width in places
        ]
    return sweeps


def last_layer_gradients(
    placement: str,
    *,
    blocks: int,
    width: int,
    tokens: Sequence[int],
    sequences: int,
    vocabulary: int,
    seed: int,
) -> dict[str, dict[str, Any]]:
    """Returns one draw of an encoder's weights, by number of tokens and kind of output rows, such
    as "16, N(0, 1)".

    Each entry holds `gradient_norms`, (S,): ‖∂L̃/∂W^{2,L}‖_F of the mean cross-entropy in nats over
    one sequence's positions, at random targets; `greatest_elements`, (S,): the largest size of an
    element of that gradient; `loss_gradient_norms`, (S,): the greatest ‖∂L/∂x‖ of a position of
    it, x the stack's output; `least_powers` and `mean_powers`, (S,): ‖x‖² / d of what the last norm
    reads, at the position where it is least and as a mean over positions. Raises ValueError for an
    unknown placement, or one without encoders.
    """
    stack = drawn(placement, square_encoder(blocks, width), "theory", seed).requires_grad_(False)
    rows_VD = torch.randn(vocabulary, width)
    found = {}
    for count in tokens:
        layout = Layout(torch.full((sequences,), count))
        seen = _forward(stack, torch.randn(layout.tokens, width), Context(layout=layout))
        powers_ST = seen.normed_ND.square().mean(1).view(-1, count)
        targets_N = torch.randint(vocabulary, (layout.tokens,))
        for name, power in ROWS.items():
            logits_NV = seen.output_ND @ rows_VD.T * width**power
            loss = nn.functional.cross_entropy(logits_NV, targets_N, reduction="sum")
            added, output = torch.autograd.grad(
                loss, [seen.added_ND, seen.output_ND], retain_graph=True
            )
            found[f"{count}, {name}"] = {
                "gradient_norms": _frobenius(seen.hidden_NF, added, count) / count,
                "greatest_elements": _greatest_element(seen.hidden_NF, added, count) / count,
                "loss_gradient_norms": output.norm(dim=1).view(-1, count).amax(1),
                "least_powers": powers_ST.amin(1),
                "mean_powers": powers_ST.mean(1),
            }
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenForward:
    """Holds what was seen of one forward pass; the graph begins at `added_ND`."""

    hidden_NF: Tensor
    """The input of the last W₂."""
    added_ND: Tensor
    """The output of the last W₂."""
    normed_ND: Tensor
    """The input of the last norm, detached."""
    output_ND: Tensor
    """The output of the stack."""


def _forward(stack: Stack, x_ND: Tensor, context: Context) -> _SeenForward:
    *_, last = stack.sublayers()
    assert isinstance(last.f, FeedForward)
    seen: dict[str, Tensor] = {}

    def cut(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        seen["hidden_NF"], seen["added_ND"] = inputs[0], output.requires_grad_()
        return output

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        # Every norm in its turn, so that the last one's stays.
        seen["normed_ND"] = inputs[0].detach()

    norms = [module for module in stack.modules() if isinstance(module, nn.LayerNorm)]
    handles = [norm.register_forward_pre_hook(keep) for norm in norms]
    handles.append(last.f.ffn_out.register_forward_hook(cut))
    try:
        output_ND = stack(x_ND, context)
    finally:
        for handle in handles:
            handle.remove()
    return _SeenForward(**seen, output_ND=output_ND)


def _frobenius(hidden_NF: Tensor, gradient_ND: Tensor, tokens: int) -> Tensor:
    """‖Σ_t h_tᵀ g_t‖ over the tokens of each sequence, (S,)."""
    h_STF, g_STD = (x.view(-1, tokens, x.shape[-1]) for x in (hidden_NF, gradient_ND))
    squares = ((h_STF @ h_STF.mT) * (g_STD @ g_STD.mT)).sum((1, 2))
    return squares.clamp(min=0).sqrt()


def _greatest_element(hidden_NF: Tensor, gradient_ND: Tensor, tokens: int) -> Tensor:
    """max |Σ_t h_tᵀ g_t| over the elements of each sequence's sum, (S,)."""
    h_STF, g_STD = (x.view(-1, tokens, x.shape[-1]) for x in (hidden_NF, gradient_ND))
    greatest: Tensor = (h_STF.mT @ g_STD).abs().amax((1, 2))
    return greatest
