"""The base of modules on (batch, time, width) tensors: their options, and the way to a stack's
tokens and back.

None can train by mistake without what its placement asks of training.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from ...placement import Placement, StackShape, named
from ...settings.tables import check_choice
from ..context import Context
from ..initialisation import SCHEMES, initialise
from ..layout import AttentionConfig, Layout, PaddedLayout, with_heads
from ..stack import Stack, StackConfig

PlacementName = str | type[Placement]
"""A registered name, such as pre-ln, or a class of your own."""


class StackOptions(TypedDict, total=False):
    """Keywords that every stack takes; what is left out is as `StackConfig` has it."""

    dropout: float
    """The dropout on the input and on every sub-layer's output; 0 by default."""
    attention_dropout: float
    activation_dropout: float
    norm: str
    """as-placement (LayerNorm, unless the norm is the placement's very idea), layer-norm, rms-norm,
    scale-norm, sphere-norm, dyt or derf."""
    norm_epsilon: float | Literal["as-placement"]
    activation: str
    """relu, gelu, gelu-tanh, swiglu, geglu or geglu-tanh."""
    biases: Literal["all", "query-key-value", "none"]
    position_encoding: Literal["none", "rotary", "alibi"]
    """The positions that attention itself uses; other positions are added to the input by the
    caller.
    """
    attention: AttentionConfig
    """Heads of keys and values, norms, caps and windows."""
    activation_checkpointing: bool
    """Compute every block again in the backward pass instead of keeping its activations."""
    initialisation: str
    """as-placement (the scheme of the placement's source), or one of `normscope.model.SCHEMES`."""


def placement_class(placement: PlacementName) -> type[Placement]:
    """Returns a placement's class. Raises ValueError for an unknown name."""
    return named(placement) if isinstance(placement, str) else placement


def made_stack(
    placement: PlacementName,
    sizes: StackShape,
    ffn_width: int | None,
    **options: Unpack[StackOptions],
) -> Stack:
    """Returns a stack with its initial weights, 4 · width wide inside where nobody says. Raises
    ValueError for a bad option.

    No other number is drawn from torch's generator than these weights, in the order of the forward
    pass.
    """
    shape = replace(sizes, ffn_width=ffn_width or 4 * sizes.width)
    values: dict[str, Any] = {"initialisation": "as-placement", **options}
    initialisation = values.pop("initialisation")
    _check(shape, initialisation, values)
    config = StackConfig(**values)
    if config.position_encoding in ("learned", "sinusoidal"):
        raise ValueError(
            f"position_encoding={config.position_encoding!r} is added to the input, which is "
            "yours; a stack has rotary, alibi or none"
        )
    stack_of = placement_class(placement)(with_heads(shape, config.attention))
    with torch.random.fork_rng():
        # torch's own layers draw weights as they are made, which `initialise` then draws anew.
        stack = Stack(stack_of, config, initialisation=None)
    initialise(stack, initialisation, type(stack_of))
    return stack


def _check(shape: StackShape, initialisation: str, values: dict[str, Any]) -> None:
    unknown = sorted(set(values) - {field.name for field in fields(StackConfig)})
    if unknown:
        raise TypeError(
            f"unknown keyword {', '.join(unknown)}; known are "
            f"{', '.join(StackOptions.__annotations__)}"
        )
    for name in ("width", "ffn_width", "heads", "blocks"):
        if getattr(shape, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(shape, name)}")
    if shape.width % shape.heads:
        raise ValueError(f"width={shape.width} must be a multiple of heads={shape.heads}")
    check_choice("initialisation", initialisation, ("as-placement", *SCHEMES))
    if initialisation == "theory" and (shape.heads != 1 or shape.ffn_width != shape.width):
        raise ValueError("initialisation='theory' is stated for heads=1 and ffn_width=width")


class Placed(nn.Module):
    """Stacks that refuse a forward pass which would not be their placement's.

    Three things that some placements ask for happen outside of any forward pass: initial values
    from one batch (Admin), weights put back to length 1 after every update (nGPT), and numbers that
    follow a schedule over updates (branch-norm, pre-to-post). `normscope.profile` sees to the first
    and `normscope.attach` to the others; a pass that comes before them raises RuntimeError, in
    training mode alone for what `attach` sees to.
    """

    profiled: Tensor
    """True where initial values were taken from a batch, for a placement that asks for it; a
    checkpoint keeps it.
    """
    updates: Tensor
    """Updates so far, where numbers follow a schedule; a checkpoint keeps them."""

    def watch(self) -> None:
        """Begin to watch over the stacks; at the end of a constructor."""
        self.unready = self.profiling = self.attached = False
        self.unattended = self._unattended()
        self.register_buffer("profiled", None)
        self.register_buffer("updates", None)
        if any(stack.placement.is_profiled() for stack in self.stacks()):
            self.profiled, self.unready = torch.tensor(False), True
        if self.scheduled:
            self.updates = torch.tensor(0)
        self.register_load_state_dict_post_hook(_loaded)  # type: ignore[no-untyped-call]

    def stacks(self) -> Iterator[Stack]:
        """Yields the stacks in the order of the forward pass."""
        yield from (module for module in self.modules() if isinstance(module, Stack))

    @property
    def scheduled(self) -> tuple[str, ...]:
        """Names of the numbers that follow a schedule."""
        return tuple(
            sorted({name for stack in self.stacks() for name, _ in stack.schedules.named_buffers()})
        )

    def set_profiled(self) -> None:
        """Initial values are taken."""
        if self.profiled is not None:
            self.profiled.fill_(True)
        self.unready = False

    def check(self) -> None:
        """Raise RuntimeError for a forward pass that would not be the placement's."""
        if self.unready and not self.profiling:
            raise RuntimeError(
                f"placement {self._name()} takes initial values from one batch: call "
                "normscope.profile(model, lambda: model(batch)) once before anything else, or load "
                "the weights of a model for which that was done"
            )
        trains = self.training and torch.is_grad_enabled()
        if trains and self.unattended and not self.attached:
            raise RuntimeError(
                f"placement {self._name()} {self.unattended}: call normscope.attach(model, "
                "optimizer) when the optimiser is made, or model.eval() where nothing is to be "
                "trained"
            )

    def _unattended(self) -> str:
        """Returns what has to happen at every update, in words; "" where nothing has to."""
        if self.scheduled:
            return f"has numbers that follow a schedule over updates ({', '.join(self.scheduled)})"
        if any(stack.placement.unit_vectors for stack in self.stacks()):
            return "puts weights back to length 1 after every update"
        return ""

    def _name(self) -> str:
        return repr(next(self.stacks()).placement.name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy has no optimiser of its own.
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.attached = False


def _loaded(module: Any, incompatible_keys: Any) -> None:
    if module.profiled is not None:
        module.unready = not bool(module.profiled)


# B = sentences, T = longest sentence, D = width, N = tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The form of a sequence's tensor that a stack takes."""

    x_ND: Tensor
    layout: PaddedLayout | Layout
    padding_BT: Tensor | None

    def back(self, y_ND: Tensor) -> Tensor:
        """Returns a stack's output as (B, T, D), padding 0."""
        padding_BT, grid = self.padding_BT, (self.layout.sentences, -1, y_ND.shape[1])
        if padding_BT is None:
            return y_ND.view(grid)
        if isinstance(self.layout, PaddedLayout):
            return y_ND.view(grid).masked_fill(padding_BT[:, :, None], 0.0)
        filled = y_ND.new_zeros(*padding_BT.shape, y_ND.shape[1])
        filled[~padding_BT] = y_ND
        return filled


def cells(
    name: str, x_BTD: Tensor, padding_BT: Tensor | None, width: int, *, packed: bool
) -> Cells:
    """Returns the tokens of a sequence: every cell of its tensor, or, packed, those that are not
    padding.

    name: what errors call it. Raises ValueError for another shape, or a mask that is none.
    """
    if x_BTD.dim() != 3 or x_BTD.shape[2] != width:
        raise ValueError(
            f"{name} must be (batch, time, {width}), got a tensor of shape {tuple(x_BTD.shape)}"
        )
    sentences, longest = x_BTD.shape[:2]
    if padding_BT is None:
        return Cells(
            x_ND=x_BTD.reshape(-1, width), layout=PaddedLayout(sentences, longest), padding_BT=None
        )
    _check_mask(name, padding_BT, (sentences, longest))
    if packed:
        # Without its padding a sentence is the same sentence: nothing in a stack knows positions.
        lengths_B = (~padding_BT).sum(1).cpu()
        return Cells(
            x_ND=x_BTD[~padding_BT], layout=Layout(lengths_B, x_BTD.device), padding_BT=padding_BT
        )
    x_ND = x_BTD.masked_fill(padding_BT[:, :, None], 0.0).view(-1, width)
    return Cells(
        x_ND=x_ND, layout=PaddedLayout(sentences, longest, padding_BT), padding_BT=padding_BT
    )


def run_stack(stack: Stack, x: Cells, *, causal: bool, memory: Cells | None = None) -> Tensor:
    """Returns the stack's output, (B, T, D). Raises ValueError where a memory is missing, too many
    or of other sentences.
    """
    crosses = "cross_attention" in stack.placement.stack.kinds
    if crosses and memory is None:
        raise ValueError(
            "this decoder attends to an encoder (encoder_blocks was given): pass memory"
        )
    if memory is None:
        return x.back(stack(x.x_ND, Context(layout=x.layout, causal=causal)))
    if not crosses:
        raise ValueError(
            "this stack has no cross-attention and takes no memory; a decoder has it with "
            "encoder_blocks"
        )
    if memory.layout.sentences != x.layout.sentences:
        raise ValueError(
            f"{x.layout.sentences} sequences came with the memory of {memory.layout.sentences}"
        )
    context = Context(
        layout=x.layout, causal=causal, memory_MD=memory.x_ND, memory_layout=memory.layout
    )
    return x.back(stack(x.x_ND, context))


def _check_mask(name: str, mask: Tensor, shape: tuple[int, int]) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"the padding mask of {name} must be a bool tensor that is True at padding, got "
            f"{mask.dtype}; of transformers' attention_mask it is attention_mask == 0"
        )
    if tuple(mask.shape) != shape:
        raise ValueError(
            f"the padding mask of {name} must be (batch, time) = {shape}, got {tuple(mask.shape)}"
        )
