"""From (batch, time, width) tensors to a stack's tokens and back."""

# B = sentences, T = longest sentence, D = width, N = tokens
from dataclasses import dataclass

import torch
from torch import Tensor

from ..attention import Context, Grid, Layout
from ..stack import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """What a sequence's tensor becomes for a stack."""

    x_ND: Tensor
    layout: Grid | Layout
    padding_BT: Tensor | None

    def back(self, y_ND: Tensor) -> Tensor:
        """A stack's output as (B, T, D), padding 0."""
        padding_BT, grid = self.padding_BT, (self.layout.sentences, -1, y_ND.shape[1])
        if padding_BT is None:
            return y_ND.view(grid)
        if isinstance(self.layout, Grid):
            return y_ND.view(grid).masked_fill(padding_BT[:, :, None], 0.0)
        filled = y_ND.new_zeros(*padding_BT.shape, y_ND.shape[1])
        filled[~padding_BT] = y_ND
        return filled


def cells(name: str, x_BTD: Tensor, padding_BT: Tensor | None, width: int, *, packed: bool) -> Cells:
    """The tokens of a sequence: every cell of its tensor, or, packed, those that are not padding.

    name: what errors call it. Raises ValueError for another shape, or a mask that is none.
    """
    if x_BTD.dim() != 3 or x_BTD.shape[2] != width:
        raise ValueError(f"{name} must be (batch, time, {width}), got a tensor of shape {tuple(x_BTD.shape)}")
    sentences, longest = x_BTD.shape[:2]
    if padding_BT is None:
        return Cells(x_ND=x_BTD.reshape(-1, width), layout=Grid(sentences, longest), padding_BT=None)
    _check_mask(name, padding_BT, (sentences, longest))
    if packed:
        # Without its padding a sentence is the same sentence: nothing in a stack knows positions.
        lengths_B = (~padding_BT).sum(1).cpu()
        return Cells(x_ND=x_BTD[~padding_BT], layout=Layout(lengths_B, x_BTD.device), padding_BT=padding_BT)
    x_ND = x_BTD.masked_fill(padding_BT[:, :, None], 0.0).view(-1, width)
    return Cells(x_ND=x_ND, layout=Grid(sentences, longest, padding_BT), padding_BT=padding_BT)


def run_stack(stack: Stack, x: Cells, *, causal: bool, memory: Cells | None = None) -> Tensor:
    """The stack's output, (B, T, D). Raises ValueError where a memory is missing, too many or of other sentences."""
    crosses = "cross_attention" in stack.placement.stack.kinds
    if crosses and memory is None:
        raise ValueError("this decoder attends to an encoder (encoder_blocks was given): pass memory")
    if memory is None:
        return x.back(stack(x.x_ND, Context(layout=x.layout, causal=causal)))
    if not crosses:
        raise ValueError("this stack has no cross-attention and takes no memory; a decoder has it with encoder_blocks")
    if memory.layout.sentences != x.layout.sentences:
        raise ValueError(f"{x.layout.sentences} sequences came with the memory of {memory.layout.sentences}")
    context = Context(layout=x.layout, causal=causal, memory_MD=memory.x_ND, memory_layout=memory.layout)
    return x.back(stack(x.x_ND, context))


def _check_mask(name: str, mask: Tensor, shape: tuple[int, int]) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"the padding mask of {name} must be a bool tensor that is True at padding, got {mask.dtype}; "
            "of transformers' attention_mask it is attention_mask == 0"
        )
    if tuple(mask.shape) != shape:
        raise ValueError(f"the padding mask of {name} must be (batch, time) = {shape}, got {tuple(mask.shape)}")
