"""Norms on the queries and keys of a model that exists, in what makes them: before rotary
positions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ...doctor.measured import MatrixUse
from ...doctor.record import Stack, Sublayer
from ...placement import QueryKeyNorm
from ..following import TransplantRefused
from ..passes import Passes
from ..placed import PLACED, PROJECTION, swap
from ..weights import part_of
from .attending import SIDES, Attending, plural, take_norms, understood
from .made import made_norm, sharpness


class NormedOutputs(nn.Module):
    """The norms of the queries and keys among the outputs of a module that makes them."""

    def __init__(self, norms: Mapping[str, nn.Module], places: Mapping[str, "_Rows"]) -> None:
        """norms, places: of query and key, those that the module makes."""
        super().__init__()
        self.norms = nn.ModuleDict(norms)
        self.places = dict(places)

    def normed(self, y: Tensor) -> Tensor:
        """(..., outputs) with its queries and keys normed; the others as they are."""
        if len(self.places) == 1:
            ((side, place),) = self.places.items()
            if place.is_all:
                return self._one(side, place, y)
        pieces = []
        rows: list[int] = []
        for side, place in self.places.items():
            pieces.append(self._one(side, place, _taken(y, place.rows)))
            rows += place.rows
        known = set(rows)
        rest = [row for row in range(y.shape[-1]) if row not in known]
        if rest:
            pieces.append(_taken(y, rest))
        together, order = torch.cat(pieces, -1), rows + rest
        if order == list(range(len(order))):
            return together
        back = sorted(range(len(order)), key=order.__getitem__)
        return _taken(together, back)

    def _one(self, side: str, place: "_Rows", x: Tensor) -> Tensor:
        norm = self.norms[side]
        if place.width == x.shape[-1]:
            return norm(x)  # type: ignore[no-any-return]
        heads = x.reshape(*x.shape[:-1], -1, place.width)
        return norm(heads).flatten(-2)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The outputs of a module that are queries or keys."""

    rows: list[int]
    width: int
    """The number of features that are normed together: those of a head, or all of them."""
    is_all: bool


@dataclass(slots=True, kw_only=True)
class _Projection:
    """A module that makes queries or keys, or both."""

    module: str
    places: dict[str, _Rows] = field(default_factory=dict)
    norms: dict[str, nn.Module] = field(default_factory=dict)


def put_before(
    passes: Passes, attending: Attending, norm: QueryKeyNorm, undo: Callable[..., object]
) -> list[str]:
    """Norm what makes queries and keys, before anything else reads it."""
    model = passes.model
    found: dict[str, _Projection] = {}
    for stack, sublayer in attending:
        _plan(model, stack, sublayer, norm, found)
    _refuse_unlike_outputs(passes, found)
    for one in found.values():
        module = model.get_submodule(one.module)
        if hasattr(module, PLACED):
            raise TransplantRefused(f"{one.module} has something called {PLACED!r} already")
        like = next(module.parameters())
        swap(module, PROJECTION)
        added = NormedOutputs(one.norms, one.places).to(like.device, like.dtype)
        module.add_module(PLACED, added)
        undo(take_norms, module)
    return list(found)


def _plan(
    model: nn.Module,
    stack: Stack,
    sublayer: Sublayer,
    norm: QueryKeyNorm,
    found: dict[str, _Projection],
) -> None:
    """Add what makes the queries and the keys of one attention. Raises TransplantRefused."""
    seen = understood(stack, sublayer)
    where = sublayer.name or stack.name or "the model"
    for side in SIDES:
        use = _made_by(model, sublayer, side, where)
        path = use.parameter.rpartition(".")[0]
        outputs = _outputs(model, use)
        rows = list(use.rows) or list(range(outputs))
        if len(rows) % seen.head_width:
            raise TransplantRefused(
                f"{use.parameter}: {len(rows)} of its outputs make {plural(side)}, which are not "
                f"whole heads of {seen.head_width}: a part of each comes from elsewhere, as in "
                "attention with latent vectors, which norms those"
            )
        width = len(rows) if norm.whole else seen.head_width
        place = _Rows(rows, width, is_all=len(rows) == outputs)
        one = found.setdefault(path, _Projection(module=path))
        if one.places.get(side, place) != place:
            raise TransplantRefused(f"{path} makes {plural(side)} of several attentions")
        if side not in one.places:
            # Logits vary as they do where attention multiplies them with 1/√d.
            factor = sharpness(seen.scale, seen.head_width) if side == "query" else 1.0
            one.places[side] = place
            one.norms[side] = made_norm(model, stack, norm, width, factor)


def _made_by(model: nn.Module, sublayer: Sublayer, side: str, where: str) -> MatrixUse:
    """Returns the one matrix that makes queries or keys, a module's own. Raises
    TransplantRefused.
    """
    mine = [use for use in sublayer.measured.uses if (use.part or part_of(use.parameter)) == side]
    if len(mine) != 1:
        made = "which matrix makes" if not mine else f"{len(mine)} matrices make"
        shown = " does not show" if not mine else ""
        raise TransplantRefused(
            f"{where}: {made} its {plural(side)}{shown}, so that no one module gives them: "
            "have one linear layer make queries and one make keys, or one for queries, keys and "
            "values together"
        )
    (use,) = mine
    path = use.parameter.rpartition(".")[0]
    owner = model.get_submodule(path)
    if isinstance(owner, nn.MultiheadAttention):
        raise TransplantRefused(
            f"{path}: torch.nn.MultiheadAttention makes its queries and keys in one call and "
            "shows them to nobody, so that no norm can come between: write attention with three "
            "nn.Linear and torch.nn.functional.scaled_dot_product_attention, to which its weights "
            "can be copied (in_proj_weight.chunk(3))"
        )
    if path.rpartition(".")[2] == "base_layer":
        raise TransplantRefused(
            f"{path}: LoRA adds to what it gives, behind the norm; add norms to the model first, "
            "and LoRA to other matrices than those of queries and keys"
        )
    return use


def _outputs(model: nn.Module, use: MatrixUse) -> int:
    return model.get_parameter(use.parameter).shape[-1 if use.outputs_last else -2]


def _refuse_unlike_outputs(passes: Passes, found: Mapping[str, _Projection]) -> None:
    """Raise TransplantRefused where a module that holds such a matrix does not return what the
    matrix makes.
    """
    outputs: dict[str, object] = {}
    handles = []
    for path in found:

        def note(module: nn.Module, args: object, output: object, path: str = path) -> None:
            outputs[path] = output

        handles.append(passes.model.get_submodule(path).register_forward_hook(note))
    try:
        passes.outputs()
    finally:
        for handle in handles:
            handle.remove()
    for path, one in found.items():
        module = passes.model.get_submodule(path)
        output = outputs.get(path)
        most = 1 + max(max(place.rows) for place in one.places.values())
        alone = {name for name, _ in module.named_parameters()} <= {"weight", "bias"}
        fits = isinstance(output, Tensor) and output.shape[-1] >= most and alone
        if not fits:
            raise TransplantRefused(
                f"{path or 'the model'}: a {type(module).__name__} holds the matrix of queries or "
                "keys and does more with it than to multiply, so that they are not what it "
                "returns: have a linear layer of its own make them (q_proj = nn.Linear(…))"
            )


def _taken(x: Tensor, rows: Sequence[int]) -> Tensor:
    """Returns these entries of the last dimension; where they follow each other, as a view."""
    if list(rows) == list(range(rows[0], rows[0] + len(rows))):
        return x.narrow(-1, rows[0], len(rows))
    return x.index_select(-1, torch.tensor(rows, device=x.device))
