"""Norms on the queries and keys of a model that exists: what makes these is a module, and what it
gives is normed before anything else reads it.

Which matrix makes queries and which makes keys is told by the doctor, of packed ones row by row;
and it reads the result, in which both have to be normed as was asked.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..doctor.find.terms import Term
from ..doctor.measured import MatrixUse
from ..doctor.observe.examine import examined_for_drawing
from ..doctor.record import Stack, Sublayer
from ..model.placed import NORMS
from ..placement import QueryKeyNorm
from .following import TransplantRefused
from .passes import Passes
from .placed import PLACED, PROJECTION, handed_on, swap, swap_back
from .weights import marked, part_of, reset

_SIDES = ("query", "key")
_ATTENDING = ("attention", "cross_attention")
_EPSILON = 1e-6
"""The epsilon of norms in a model that shows none of its own; Llama, Qwen 3 and OLMo 2 have it."""


class NormedOutputs(nn.Module):
    """The norms of the queries and keys among the outputs of a module that makes them."""

    def __init__(self, norms: Mapping[str, nn.Module], places: Mapping[str, "_Rows"]) -> None:
        """Takes the norms of queries and keys, those that the module makes, and where their rows
        stand among its outputs.
        """
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


def add_norms(
    passes: Passes,
    stacks: Sequence[Stack],
    norm: QueryKeyNorm,
    undo: Callable[..., object],
) -> list[str]:
    """Norm queries and keys of these stacks, as the doctor found them; returns the modules whose
    outputs are normed.

    undo: told of what takes each step back. Raises TransplantRefused, with the reason and the
    place, where what makes them is no module, or where the doctor does not read the norms
    afterwards.
    """
    model = passes.model
    found: dict[str, _Projection] = {}
    for stack in stacks:
        attending = [one for one in stack.sublayers if one.block and one.kind in _ATTENDING]
        for sublayer in attending:
            _plan(model, stack, sublayer, norm, found)
    if not found:
        raise TransplantRefused(
            f"{type(model).__name__} has no attention that is understood, whose queries and keys "
            "could get norms"
        )
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
    _prove(passes, stacks, norm)
    return list(found)


def take_norms(module: nn.Module) -> None:
    """Give a module whose outputs are normed its own class again."""
    swap_back(module)
    delattr(module, PLACED)


def _plan(
    model: nn.Module,
    stack: Stack,
    sublayer: Sublayer,
    norm: QueryKeyNorm,
    found: dict[str, _Projection],
) -> None:
    """Add what makes the queries and the keys of one attention. Raises TransplantRefused."""
    seen = sublayer.measured.attention
    where = sublayer.name or stack.name or "the model"
    if seen is None:
        raise TransplantRefused(
            f"{where}: where its queries and keys meet is not understood, so that nothing can be "
            "put before that"
        )
    if seen.normed:
        raise TransplantRefused(
            f"{where}: its {' and '.join(seen.normed)} are normalised already; the doctor reads "
            f"{sublayer.formula}"
        )
    for side in _SIDES:
        use = _made_by(model, sublayer, side, where)
        path = use.parameter.rpartition(".")[0]
        outputs = _outputs(model, use)
        rows = list(use.rows) or list(range(outputs))
        if len(rows) % seen.head_width:
            raise TransplantRefused(
                f"{use.parameter}: {len(rows)} of its outputs make {_plural(side)}, which are not "
                f"whole heads of {seen.head_width}: a part of each comes from elsewhere, as in "
                "attention with latent vectors, which norms those"
            )
        width = len(rows) if norm.whole else seen.head_width
        place = _Rows(rows, width, is_all=len(rows) == outputs)
        one = found.setdefault(path, _Projection(module=path))
        if one.places.get(side, place) != place:
            raise TransplantRefused(f"{path} makes {_plural(side)} of several attentions")
        if side not in one.places:
            # Logits vary as they do where attention multiplies them with 1/√d.
            factor = _sharpness(seen.scale, seen.head_width) if side == "query" else 1.0
            one.places[side] = place
            one.norms[side] = _made_norm(model, stack, norm, width, factor)


def _sharpness(scale: float | None, head_width: int) -> float:
    return 1 / (abs(scale) * math.sqrt(head_width)) if scale else 1.0


def _made_by(model: nn.Module, sublayer: Sublayer, side: str, where: str) -> MatrixUse:
    """Returns the one matrix that makes queries or keys, a module's own. Raises
    TransplantRefused.
    """
    mine = [use for use in sublayer.measured.uses if (use.part or part_of(use.parameter)) == side]
    if len(mine) != 1:
        made = "which matrix makes" if not mine else f"{len(mine)} matrices make"
        shown = " does not show" if not mine else ""
        raise TransplantRefused(
            f"{where}: {made} its {_plural(side)}{shown}, so that no one module gives them: "
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


def _made_norm(
    model: nn.Module, stack: Stack, norm: QueryKeyNorm, width: int, factor: float
) -> nn.Module:
    """Returns a norm of the kind that was asked for, the model's own class where it has it;
    `factor` is what it multiplies at first.
    """
    own = _own_norm(model, stack)
    kind = {"rms": "rms-norm", "layer": "layer-norm", "unit": "scale-norm"}.get(norm.kind)
    if own is not None and kind in (None, stack.norm):
        made = _resized(own, stack.width, width)
        if made is not None:
            return _multiplying(marked(made), width, factor)
    epsilon = stack.norm_epsilon or _EPSILON
    usual = stack.norm if stack.norm in ("layer-norm", "rms-norm") else "rms-norm"
    return _multiplying(marked(NORMS[kind or usual](width, epsilon)), width, factor, fresh=True)


def _own_norm(model: nn.Module, stack: Stack) -> nn.Module | None:
    """Returns a norm of the stack that is a module and nothing else."""
    for use in stack.norm_uses:
        module = model.get_submodule(use.module) if use.parameters else None
        if module is not None and not any(module.children()):
            own = {f"{use.module}.{name}" for name, _ in module.named_parameters()}
            if own <= set(use.parameters):
                return module
    return None


def _resized(own: nn.Module, before: int, width: int) -> nn.Module | None:
    """Returns a new norm of a module's class for another width; None where that does not work."""
    made = copy.deepcopy(own)
    if hasattr(type(made), "swapped_kind"):
        swap_back(made)
    for name, parameter in made.named_parameters():
        if parameter.shape != (before,):
            return None
        setattr(made, name, nn.Parameter(parameter.new_zeros(width)))
    for name, value in vars(made).items():
        if value == before and isinstance(value, int):
            setattr(made, name, width)
        elif value == (before,):
            setattr(made, name, (width,))
    reset(made, width)
    try:
        x = torch.randn(2, width, generator=torch.Generator().manual_seed(0))
        like = next(made.parameters(), x)
        with torch.no_grad():
            size = float(made(x.to(like)).double().square().mean())
    except (RuntimeError, ValueError, TypeError):
        return None
    return made if abs(size - 1) < 0.01 else None


@torch.no_grad()
def _multiplying(norm: nn.Module, width: int, factor: float, *, fresh: bool = False) -> nn.Module:
    """Returns the norm with gains by which what it gives has the size `factor`."""
    if not fresh:
        reset(norm, width)
    if abs(factor - 1) > 1e-3:
        for name, parameter in norm.named_parameters():
            if "bias" in name:
                continue
            if bool(parameter.any()):
                parameter.mul_(factor)
            else:  # gains that a norm adds to 1
                parameter.fill_(factor - 1.0)
    return norm


def _prove(passes: Passes, stacks: Sequence[Stack], norm: QueryKeyNorm) -> None:
    """Let the doctor read the result. Raises TransplantRefused where it does not read these norms
    in every attention.
    """
    try:
        with handed_on():
            after = examined_for_drawing(passes.model, passes.inputs)
    except ValueError as error:
        raise TransplantRefused(
            f"with norms on queries and keys the model cannot be looked at: {error}"
        ) from error
    passes.with_gradients()
    by_name = {(one.name, len(one.sublayers)): one for one in after}
    for stack in stacks:
        now = by_name.get((stack.name, len(stack.sublayers)))
        if now is None:
            raise TransplantRefused(
                f"{stack.name or 'the model'}: the doctor finds no such stack any more with norms "
                "on queries and keys"
            )
        for sublayer in now.sublayers:
            if sublayer.block and sublayer.kind in _ATTENDING:
                _prove_one(sublayer, norm)


def _norms_of_scores(branch: Term) -> int:
    """Returns how many of the two sides of a product of scores a branch norms."""
    return sum(place.name == "score" for place in branch.inside)


def _prove_one(sublayer: Sublayer, norm: QueryKeyNorm) -> None:
    seen = sublayer.measured.attention
    # Where blocks have several streams, one formula may hold the branches of several blocks.
    norms = [_norms_of_scores(branch) for branch in sublayer.formula.segment.branches]
    in_formula = {count for count in norms if count} == {len(_SIDES)}
    both = seen is not None and len(seen.normed) == len(_SIDES) and in_formula
    wrong = seen is not None and bool(seen.normed_wrong or seen.of_many_lengths)
    if not both or (wrong and not norm.whole):
        raise TransplantRefused(
            f"{sublayer.name}: with norms on queries and keys the doctor reads {sublayer.formula}, "
            "and not a norm of each over the features of a head: its heads may lie otherwise among "
            "the outputs than one after the other"
        )


def _plural(side: str) -> str:
    return {"query": "queries", "key": "keys"}[side]


def _taken(x: Tensor, rows: Sequence[int]) -> Tensor:
    """Returns these entries of the last dimension; where they follow each other, as a view."""
    if list(rows) == list(range(rows[0], rows[0] + len(rows))):
        return x.narrow(-1, rows[0], len(rows))
    return x.index_select(-1, torch.tensor(rows, device=x.device))
