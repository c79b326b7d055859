"""Modules of the caller's own, joined by a placement's formula."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor, nn

from ...placement import Placement, Site, StackShape, SublayerKind
from ...placement.reading import read
from ...settings.tables import check_choice
from ...settings.validation import checked
from ..initialisation import SCHEMES, initialise
from ..stack import Stack, StackConfig
from .foreign import Foreign, MatricesOf
from .modules import Placed, PlacementName, placement_class

_BlockModules = Mapping[SublayerKind, nn.Module] | Sequence[nn.Module]
_KINDS: dict[int, tuple[SublayerKind, ...]] = {
    2: ("attention", "feed_forward"),
    3: ("attention", "cross_attention", "feed_forward"),
}
KEEP = "keep"
"""The value in place of an initialisation that keeps the weights that the modules have."""


class PlacedBlocks(Placed):
    """The caller's modules as the sub-layers of a placement's blocks; `place` makes it."""

    def __init__(self, stack: Stack, width: int) -> None:
        super().__init__()
        self.stack, self.width = stack, width
        self.watch()

    def forward(self, x: Tensor, **context: Any) -> Tensor:
        """x of any shape (…, width) -> the same shape.

        context: handed to every module whose forward names it, such as masks or a memory. Raises
        TypeError for what no module takes, ValueError for another width, RuntimeError where
        `profile` or `attach` has to come first.
        """
        self.check()
        if x.shape[-1] != self.width:
            raise ValueError(
                f"x must have a last dimension of {self.width}, got the shape {tuple(x.shape)}"
            )
        modules = [sublayer.f for sublayer in self.stack.sublayers()]
        for name in context:
            if not any(isinstance(module, Foreign) and module.accepts(name) for module in modules):
                raise TypeError(f"no module takes the keyword {name!r}")
        return self.stack(x, context)  # type: ignore[no-any-return]


@checked
def place(
    placement: PlacementName,
    sublayers: Sequence[_BlockModules],
    *,
    width: int,
    heads: int | None = None,
    stack: Literal["encoder", "decoder"] | None = None,
    other_blocks: int = 0,
    initialisation: str = "as-placement",
    matrices: MatricesOf | None = None,
    norm: str = "as-placement",
    norm_epsilon: float | Literal["as-placement"] = "as-placement",
    dropout: float = 0.0,
) -> PlacedBlocks:
    """Your own modules joined by a placement's formula, with its norms, its parameters and its
    initial weights.

    The blocks:
        placement: a name, or a class of your own.
        sublayers: for each block its modules by kind, {"attention": …, "feed_forward": …}, or in a
            row; a decoder that attends to an encoder has "cross_attention" between. Each takes x
            first and gives a tensor of its shape, before any residual sum or norm. One with
            `inside` among its keywords gets the functions that a formula applies within it (query,
            key and value on the projections, hidden after the first matrix, output before the
            last); placements that need such functions are refused without.
        width: of the stream.
        heads: of the attention, where a placement norms each; told of modules with `num_heads` or
            `heads`.
        stack: "encoder" or "decoder", the latter where there is cross-attention.
        other_blocks: blocks of the other stack of an encoder-decoder, by which some placements
            weigh theirs.

    Their weights:
        initialisation: as-placement, a name of `normscope.model.SCHEMES`, or "keep" for the weights
            that the modules have.
        matrices: (kind, module) -> pairs of a name and a linear layer, where they cannot be told
            from the modules.

    What is added:
        norm, norm_epsilon, dropout: as an `Encoder`'s; dropout is on x and on what each module
            gives.

    Raises ValueError for blocks, matrices or settings that do not fit the placement.
    """
    check_choice("initialisation", initialisation, ("as-placement", KEEP, *SCHEMES))
    of = placement_class(placement)
    kinds, rows = _rows(sublayers, matrices)
    known_heads = heads or _heads_of(rows)
    keep = initialisation == KEEP
    if stack is None:
        stack = "decoder" if "cross_attention" in kinds else "encoder"
    shape = replace(
        _shape(stack, len(rows), other_blocks),
        width=width,
        heads=known_heads or 1,
        ffn_width=0 if keep and not of.unit_vectors else _ffn_width(rows, width),
    )
    placed = of(shape)
    _refuse_kinds(placed.stack, kinds, other_blocks)
    _refuse_unfit(placed, rows, heads_known=known_heads is not None)

    def module_at(site: Site) -> Foreign:
        return rows[site.block - 1][kinds.index(site.kind)]

    config = StackConfig(dropout=dropout, norm=norm, norm_epsilon=norm_epsilon)
    made = Stack(placed, config, initialisation=None, f=module_at)
    if not keep:
        initialise(made, initialisation, of)
    return PlacedBlocks(made, width)


def _rows(
    sublayers: Sequence[_BlockModules], told: MatricesOf | None
) -> tuple[tuple[SublayerKind, ...], list[list[Foreign]]]:
    """Returns the kinds of a block in order, and the modules of every block. Raises ValueError for
    blocks that are none.
    """
    if not sublayers:
        raise ValueError("give at least one block of modules")
    blocks = [_by_kind(block) for block in sublayers]
    kinds = tuple(blocks[0])
    if kinds not in _KINDS.values() or any(tuple(block) != kinds for block in blocks):
        every = "; ".join(dict.fromkeys(", ".join(block) for block in blocks))
        raise ValueError(
            "every block has the same modules, in the order attention, feed_forward or attention, "
            "cross_attention, feed_forward, for which placements state their constants; these "
            f"blocks have {every}"
        )
    modules = [module for block in blocks for module in block.values()]
    if len({id(module) for module in modules}) < len(modules):
        raise ValueError(
            "the same module stands in two places, and its weights can be drawn for one alone: "
            "copy it"
        )
    foreign = []
    for block in blocks:
        foreign.append([Foreign(kind, module, told) for kind, module in block.items()])
    return kinds, foreign


def _by_kind(block: _BlockModules) -> Mapping[SublayerKind, nn.Module]:
    if isinstance(block, Mapping):
        return block
    if len(block) not in _KINDS:
        raise ValueError(f"a block in a row has 2 or 3 modules, got {len(block)}")
    return dict(zip(_KINDS[len(block)], block, strict=True))


def _shape(kind: Literal["encoder", "decoder"], blocks: int, other_blocks: int) -> StackShape:
    check_choice("stack", kind, ("encoder", "decoder"))
    encoder, decoder = (blocks, other_blocks) if kind == "encoder" else (other_blocks, blocks)
    return StackShape(kind=kind, width=1, encoder_blocks=encoder, decoder_blocks=decoder)


def _heads_of(rows: list[list[Foreign]]) -> int | None:
    """Returns the number that the first module which says one says."""
    for row in rows:
        for module in row:
            if found := _heads(module.module):
                return found
    return None


def _heads(module: nn.Module) -> int | None:
    """Returns the number of heads, as the module or the attention in it gives it."""
    for part in module.modules():
        for name in ("num_heads", "heads", "n_heads"):
            if isinstance(found := getattr(part, name, None), int):
                return found
    return None


def _ffn_width(rows: list[list[Foreign]], width: int) -> int:
    """Returns the inner width of the feed-forwards, once every matrix is known to fit. Raises
    ValueError where one does not.
    """
    inner = set()
    for module in (module for row in rows for module in row):
        for name, matrix in module.matrices():
            into, out_of = matrix.weight.shape
            if name == "ffn_in":
                inner.add(into)
            if (into if name in ("output", "ffn_out") else out_of) != width:
                raise ValueError(
                    f"matrix {name} of shape {(into, out_of)} (out, in) does not fit width={width}"
                )
    if len(inner) != 1:
        raise ValueError(f"all feed-forwards must have one inner width, got {sorted(inner)}")
    return inner.pop()


def _refuse_kinds(stack: StackShape, kinds: tuple[SublayerKind, ...], other_blocks: int) -> None:
    """Checks that a stack of such blocks has the sub-layers that the modules are. Raises ValueError
    where it has others.
    """
    if stack.kinds != kinds:
        raise ValueError(
            f"a {stack.kind} with other_blocks={other_blocks} has blocks of "
            f"{', '.join(stack.kinds)}; the modules are {', '.join(kinds)}"
        )


def _refuse_unfit(placed: Placement, rows: list[list[Foreign]], *, heads_known: bool) -> None:
    """Raise ValueError where the formula asks for what a module does not take or nobody said."""
    for specs, row in zip(read(placed).blocks, rows, strict=True):
        for spec, module in zip(specs, row, strict=True):
            if spec.used_places and not module.takes_inside:
                where = f"{module.kind} ({', '.join(sorted(spec.used_places))})"
                raise ValueError(
                    f"placement {placed.name!r} applies functions within {where}: "
                    f"{type(module.module).__name__} must take them, by a keyword `inside`, a "
                    "mapping of functions"
                )
            if spec.norm.grouped and not heads_known:
                raise ValueError(
                    f"placement {placed.name!r} norms each head on its own: give heads="
                )
