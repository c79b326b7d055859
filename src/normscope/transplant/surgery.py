"""A model under another placement, in place: planned, done, and read again by the doctor, or left
as it was.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..doctor.identify.stacks import find_stacks
from ..doctor.observe.examine import examined_without_gradients
from ..doctor.record import Stack
from ..doctor.trace.forward import Inputs, call_with, tensors_in
from ..errors import UserError, in_one_line
from ..measure.unchanged import left_unchanged, looked_at
from ..model.stack import make_norm
from ..placement import Placement
from ..placement.reading import read
from ..placement.symbol import ParameterSpec, SymbolEnd, SymbolSublayer
from .following import TransplantRefused
from .placed import PLACED, Added, Wiring, handed_on, swap, swap_back
from .plan import BlockPlan, StackPlan, chosen_stacks, plan
from .program import Part
from .seats import Seat, seats
from .weights import draw, marked, matrices_in, reset

RECIPE = "transplanted"
"""The key of a model's configuration under which transformers keeps what was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transplanted:
    """What was done to a model; its `transplanted`."""

    placement: str
    before: str
    """Its placement until then; "" where that had no name."""
    initialise: Literal["draw", "keep"]
    stack: str | None
    """The one that was named."""
    stacks: tuple[str, ...]
    blocks: tuple[str, ...]
    norms: tuple[str, ...]
    """Modules that are passed over in the model's own forward."""
    frozen: tuple[str, ...]
    """Parameters that nothing reads any more, and that are not trained until `untransplant`."""
    change: float | None
    """How much the outputs on the batch changed, the root mean square of the difference over that
    of what they were: 0 where they are the same bits; None where weights were drawn."""

    @property
    def recipe(self) -> dict[str, Any]:
        """What does the same again."""
        return {"placement": self.placement, "initialise": self.initialise, "stack": self.stack}

    def lines(self) -> list[str]:
        """What was done, in words."""
        where = ", ".join(one or "the model" for one in self.stacks)
        known = self.before or "no placement that has a name"
        told = [
            f"{where}: from {known} to {self.placement}, named by the doctor in each of "
            f"{len(self.blocks)} blocks"
        ]
        if self.frozen:
            told.append(
                f"frozen, since nothing reads them any more: {len(self.frozen)} parameters of norms"
            )
        if self.change is None:
            told.append("weights of the sub-layers are drawn as the placement wants them")
        else:
            told.append(
                f"weights are kept; outputs on the batch change by {self.change:.2g} of their size"
            )
        return told


def transplant(
    model: nn.Module,
    target: type[Placement],
    inputs: Inputs,
    *,
    initialise: Literal["draw", "keep"],
    stack: str | None,
) -> _Transplanted:
    """Put a model under a placement, in place.

    Raises TransplantRefused, with the reason and the place, where that cannot be done or where the
    doctor does not name the placement in every block afterwards; then the model is as it was.
    """
    if hasattr(model, "transplanted"):
        raise TransplantRefused("the model is transplanted already: call untransplant(model) first")
    try:
        stacks, _ = examined_without_gradients(model, inputs)
    except ValueError as error:
        raise TransplantRefused(f"{type(model).__name__} cannot be looked at: {error}") from error
    numbers = chosen_stacks(stacks, stack)
    plans = [plan(model, stacks, number, target, reset=initialise == "draw") for number in numbers]
    matrices = [matrices_in(model, one) for one in plans] if initialise == "draw" else []
    before = _outputs(model, inputs)
    with ExitStack() as undo:
        entered = seats(model, inputs, plans)
        for one in plans:
            _place(model, one, entered, undo)
        _prove(model, inputs, stacks, plans)
        change = None if initialise == "draw" else _change(before, _outputs(model, inputs))
        if change and all(one.is_same for one in plans):
            raise TransplantRefused(
                f"{type(model).__name__} is {target.name} already, and would give other outputs "
                f"(by {change:.1e})"
            )
        undo.pop_all()  # nothing has failed: it stays
    for one, some in zip(plans, matrices, strict=False):
        draw(model, one, some)
    done = _Transplanted(
        placement=target.name,
        before=plans[0].found.placement,
        initialise=initialise,
        stack=stack,
        stacks=tuple(one.found.name for one in plans),
        blocks=tuple(block.module for one in plans for block in one.blocks),
        norms=tuple(dict.fromkeys(name for one in plans for name in one.all_norms)),
        frozen=tuple(name for one in plans for name in _idle(model, one)),
        change=change,
    )
    for name in done.frozen:
        model.get_parameter(name).requires_grad_(False)
    model.transplanted = done  # type: ignore[assignment]
    if hasattr(getattr(model, "config", None), "to_json_string"):
        setattr(
            model.config, RECIPE, done.recipe
        )  # `save_pretrained` of transformers writes it with the weights
    return done


def untransplant(model: nn.Module) -> nn.Module:
    """Give a transplanted model its own placement again, with the weights that it has now; what was
    added is dropped.

    Raises TransplantRefused for a model that is not transplanted.
    """
    done = getattr(model, "transplanted", None)
    if not isinstance(done, _Transplanted):
        raise TransplantRefused(f"{type(model).__name__} is not transplanted")
    for name in done.blocks:
        _unplace(model.get_submodule(name))
    for name in done.norms:
        swap_back(model.get_submodule(name))
    for name in done.frozen:
        model.get_parameter(name).requires_grad_(True)
    del model.transplanted
    if hasattr(getattr(model, "config", None), RECIPE):
        delattr(model.config, RECIPE)
    return model


def _place(model: nn.Module, one: StackPlan, entered: Mapping[str, Seat], undo: ExitStack) -> None:
    reading = read(one.placement, one.kinds)
    template = _template(model, one)
    for number, (block, specs) in enumerate(zip(one.blocks, reading.blocks, strict=True)):
        module = model.get_submodule(block.module)
        if hasattr(module, PLACED) or hasattr(module, "wiring"):
            raise TransplantRefused(
                f"{block.module} has something called {PLACED!r} or 'wiring' already"
            )
        asked: dict[str, SymbolEnd | SymbolSublayer] = {spec.site.kind: spec for spec in specs}
        asked |= {"start": reading.start} if number == 0 else {}
        asked |= {"finish": reading.finish} if number == len(one.blocks) - 1 else {}
        like = next(iter(module.parameters()))
        added = _added(one, block, asked, template).to(like.device, like.dtype)
        wiring = Wiring(
            name=block.module,
            seat=entered[block.module],
            program=block.program,
            reused={part: model.get_submodule(path) for part, path in block.reused.items()},
            passes_norms=block.functional,
        )
        swap(module, "block")
        module.add_module(PLACED, added)
        module.wiring = wiring  # type: ignore[assignment]
        undo.callback(_unplace, module)
    for name in dict.fromkeys(one.all_norms):
        norm = model.get_submodule(name)
        swap(norm, "inner norm" if one.is_inner(name) else "norm")
        undo.callback(swap_back, norm)


def _unplace(block: nn.Module) -> None:
    swap_back(block)
    delattr(block, PLACED)
    del block.wiring


def _added(
    one: StackPlan,
    block: BlockPlan,
    asked: Mapping[str, SymbolEnd | SymbolSublayer],
    template: Callable[[int], nn.Module],
) -> Added:
    used = dict(block.program.norms)
    norms: dict[str, dict[str, nn.Module]] = {}
    numbers = defaultdict[str, dict[str, ParameterSpec]](dict)
    for place, spec in asked.items():
        added = {
            name: width
            for name, width in spec.norm.widths.items()
            if _is_added((place, name), used, block)
        }
        norms[place] = {name: template(width) for name, width in added.items()}
        for name, number in spec.parameters.items():
            numbers["block" if number.shared_by_block else place][name] = number
    schedules = {name: value for spec in asked.values() for name, value in spec.schedules.items()}
    return Added({**norms, "block": {}}, numbers, schedules)


def _is_added(part: Part, used: Mapping[Part, str], block: BlockPlan) -> bool:
    """Whether a norm that the formula asks for is neither the model's own nor left to it."""
    return part not in block.reused and (part[0] not in ("start", "finish") or part in used)


def _template(model: nn.Module, one: StackPlan) -> Callable[[int], nn.Module]:
    """Makes a new norm as those of the model are, or as the placement has them where the model has
    none like that.
    """
    own = next((name for block in one.blocks for name in (norm.module for norm in block.norms)), "")
    if own and one.norms_like_the_models:
        made = copy.deepcopy(model.get_submodule(own))
        reset(made, one.found.width)
        return lambda width: copy.deepcopy(made)
    return lambda width: marked(make_norm(one.placement, "as-placement", "as-placement", width))


def _prove(model: nn.Module, inputs: Inputs, stacks: Any, plans: list[StackPlan]) -> None:
    """Let the doctor read the result. Raises TransplantRefused where it does not name the target in
    every block.
    """
    try:
        with handed_on():
            after = find_stacks(model, inputs)
    except ValueError as error:
        cause = error.__cause__
        if isinstance(cause, TransplantRefused):
            raise cause from None
        raise TransplantRefused(
            f"the transplanted model cannot be run: {in_one_line(cause or error)}"
        ) from error
    # The doctor looks without gradients and at evaluation: what a training does otherwise must be
    # followed too.
    with left_unchanged(model), torch.enable_grad():
        call_with(model, inputs)
    _prove_training(model, inputs, [block.module for one in plans for block in one.blocks])
    for one in plans:
        was = one.found
        alike = (
            now
            for now in after
            if now.name == was.name and len(now.sublayers) == len(was.sublayers)
        )
        found = next(alike, None)
        if found is None:
            raise TransplantRefused(
                f"{one.found.name}: the doctor finds no such stack after the transplant"
            )
        _prove_stack(found, one)


def _prove_training(model: nn.Module, inputs: Inputs, blocks: Sequence[str]) -> None:
    """Run the model as in training. Raises TransplantRefused where that cannot be followed."""
    ran: set[str] = set()
    with left_unchanged(model, [*model.buffers()]), torch.enable_grad():
        for name in blocks:
            model.get_submodule(name).register_forward_pre_hook(
                lambda block, args, name=name: ran.add(name)
            )
        for module in model.modules():
            module.training = True
        try:
            call_with(model, inputs)
        except UserError:
            raise
        except Exception:
            return  # of a training, a model may ask for more than these inputs
    if left := [name for name in blocks if name not in ran]:
        raise TransplantRefused(
            f"{left[0]}: a training leaves it out, at random or always, as LayerDrop does"
        )


def _prove_stack(found: Stack, one: StackPlan) -> None:
    for sublayer, old in zip(found.sublayers, one.found.sublayers, strict=True):
        names = (sublayer.placement, *sublayer.also)
        if sublayer.block and (one.placement.name not in names or sublayer.kind != old.kind):
            raise TransplantRefused(
                f"{sublayer.name or found.name}: after the transplant the doctor reads "
                f"{sublayer.formula} in block {sublayer.block}, which is "
                f"{sublayer.placement or 'no placement that has a name'} and not "
                f"{one.placement.name}"
            )
    where, name = found.name or "the model", one.placement.name
    if one.norms_embedding and not found.embedding_norm:
        raise TransplantRefused(
            f"{where}: after the transplant nothing norms what enters it, as {name} does"
        )
    if one.norms_end not in (None, found.final_norm):
        raise TransplantRefused(
            f"{where}: after the transplant {'a' if found.final_norm else 'no'} norm follows its "
            f"last block, and {name} has {'none' if found.final_norm else 'one'} there"
        )
    if (
        one.norms_like_the_models
        and _kinds_of_norms(one.found)
        and _kinds_of_norms(found) - _kinds_of_norms(one.found)
    ):
        raise TransplantRefused(
            f"{where}: after the transplant it has norms of another kind or ε than the model's"
        )


def _kinds_of_norms(stack: Stack) -> set[tuple[str, str]]:
    norms = (term.norm for one in stack.sublayers for term in one.formula.segment.terms)
    return {(norm.kind, f"{norm.epsilon:.6g}") for norm in norms if norm is not None}


@torch.no_grad()
def _outputs(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    with looked_at(model):
        return [one.clone() for one in tensors_in(call_with(model, inputs), inside_objects=False)]


def _change(before: list[Tensor], after: list[Tensor]) -> float:
    pairs = [
        (a.double(), b.double())
        for a, b in zip(before, after, strict=False)
        if a.is_floating_point()
    ]
    if all(torch.equal(a, b) for a, b in pairs):
        return 0.0
    moved = sum(float((a - b).square().sum()) for a, b in pairs if a.shape == b.shape)
    return float((moved / max(sum(float(a.square().sum()) for a, _ in pairs), 1e-300)) ** 0.5)


def _idle(model: nn.Module, one: StackPlan) -> list[str]:
    """Parameters of norms that nothing applies, of those that are trained."""
    reused = {path for block in one.blocks for path in block.reused.values()}
    paths = dict.fromkeys(path for block in one.blocks for path in block.idle if path not in reused)
    return [
        f"{path}.{name}"
        for path in paths
        for name, parameter in model.get_submodule(path).named_parameters()
        if parameter.requires_grad
    ]
