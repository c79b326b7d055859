"""A model under another placement, in place: planned, done, and read again by the doctor, or left
as it was.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Literal

import torch
from torch import Tensor, nn

from ..doctor.observe.examine import examined_for_drawing
from ..doctor.trace.forward import Inputs, joined
from ..errors import in_one_line, no_end
from ..model.stack import make_norm
from ..placement import AsBuilt, Placement, parted
from ..placement.reading import read
from ..placement.symbol import ParameterSpec, SymbolEnd, SymbolSublayer
from .done import Transplanted
from .following import TransplantRefused
from .later import Part
from .passes import Passes, change
from .placed import PLACED, READER, Added, Wiring, swap, swap_back
from .plan import BlockPlan, StackNames, StackPlan, chosen_stacks, plan
from .proof import prove
from .query_key import add_norms, take_norms
from .readers import readers
from .recipe import forget, note
from .seats import Seat, seats
from .trained import sign_of_training
from .weights import Drawing, DrawnMatrix, draw, drawings, kept_by, marked, reset, written_by

Initialise = Literal["draw", "keep"]


def transplant(
    model: nn.Module,
    target: type[Placement],
    inputs: Inputs,
    *,
    initialise: Initialise | None,
    stack: StackNames,
    trained: str = "",
    fill: Callable[[nn.Module], str] | None = None,
) -> Transplanted:
    """Puts a model under a placement, in place, with norms on queries and keys where it says so;
    `own` with such norms leaves all else as it is.

    initialise: None to draw the weights of a model that shows no sign of having been trained, and
    to keep those of others. trained: a sign of it that the caller knows of, in words. fill: writes
    all weights of the transplanted model, so that none are drawn, and returns where they are from.

    Raises TransplantRefused, with the reason and the place, where that cannot be done or where the
    doctor does not name the placement in every block afterwards; then the model is as it was.
    """
    if hasattr(model, "transplanted"):
        raise TransplantRefused(
            "the model is transplanted already: call untransplant(model) first, or give the model "
            "that it was made of"
        )
    with no_end(), ExitStack() as undo:
        operation = _Operation(model, target, inputs, stack, undo)
        done = operation.done(initialise, trained, fill)
        undo.pop_all()  # nothing has failed: it stays
        return done


class _Operation:
    """One transplant; `undo` takes back all of it."""

    def __init__(
        self,
        model: nn.Module,
        target: type[Placement],
        inputs: Inputs,
        stack: StackNames,
        undo: ExitStack,
    ) -> None:
        self.model = model
        self.target = target
        self.stack = stack
        self.undo = undo
        self.plain, self.query_key_norm = parted(target)
        """The target without norms on queries and keys, and these."""
        self.moves = not issubclass(self.plain, AsBuilt)
        """True where anything but norms of queries and keys changes."""
        if not self.moves and self.query_key_norm is None:
            raise TransplantRefused(
                "own is the placement that the model has: name another one, or own+qk-norm for "
                "norms on queries and keys"
            )
        self.passes = Passes(model, inputs)
        self.before = self.passes.outputs()
        try:
            self.stacks = examined_for_drawing(model, inputs)
        except ValueError as error:
            raise TransplantRefused(
                f"{type(model).__name__} cannot be looked at: {error}"
            ) from error

    def done(
        self,
        initialise: Initialise | None,
        trained: str,
        fill: Callable[[nn.Module], str] | None,
    ) -> Transplanted:
        """All of it."""
        plans = self._plans(reset=False)
        initialise, reason = self._decided(initialise, trained, plans)
        if initialise == "draw" and self.moves:
            plans = self._plans(reset=True)
        drawn_anew = initialise == "draw" and fill is None and self.moves
        wanted = [self._drawings(one) if drawn_anew else [] for one in plans]
        reading = self._place(plans) if plans else ()
        prove(self.passes, plans)
        if fill is None:
            self._refuse_changed(plans, initialise)
        normed = self._normed()
        moved = None
        if initialise == "keep" and fill is None:
            moved = change(self.before, self.passes.outputs())
        both = list(zip(plans, wanted, strict=True)) if drawn_anew else []
        kept = [name for one, some in both for name in kept_by(self.model, one, some)]
        drawn = self._draw(both)
        idle = [name for one in plans for name in _idle(self.model, one)]
        for name in idle:
            self._freeze(self.model.get_parameter(name))
        found = [self.stacks[number] for number in self.numbers]
        done = Transplanted(
            placement=self.target.name,
            before=found[0].placement,
            initialise=initialise,
            reason=reason,
            stack=self.stack if isinstance(self.stack, str | None) else tuple(self.stack),
            stacks=tuple(one.name for one in found),
            blocks=tuple(block.module for one in plans for block in one.blocks),
            norms=tuple(dict.fromkeys(name for one in plans for name in one.all_norms)),
            readers=tuple(reading),
            normed=tuple(normed),
            frozen=tuple(idle),
            added=tuple(_added_names(self.model, plans, normed)),
            drawn=tuple(drawn),
            kept=tuple(kept),
            change=moved,
            source="" if fill is None else fill(self.model),
        )
        self.model.transplanted = done  # type: ignore[assignment]
        self.undo.callback(delattr, self.model, "transplanted")
        self.undo.callback(note(self.model, done.recipe))
        return done

    @property
    def numbers(self) -> list[int]:
        """The numbers of the chosen stacks."""
        return chosen_stacks(self.stacks, self.stack)

    def _plans(self, *, reset: bool) -> list[StackPlan]:
        """Returns the plans of the chosen stacks; an empty list where only norms of queries and
        keys change.
        """
        return [
            plan(self.model, self.stacks, number, self.plain, reset=reset)
            for number in self.numbers
            if self.moves
        ]

    def _drawings(self, one: StackPlan) -> list[Drawing]:
        # Norms make queries and keys of one size, whatever makes them.
        return drawings(self.model, one, scaled=self.query_key_norm is None)

    def _normed(self) -> list[str]:
        """Norms queries and keys, where that was asked; returns whose outputs are normed."""
        if self.query_key_norm is None:
            return []
        found = [self.stacks[number] for number in self.numbers]
        return add_norms(self.passes, found, self.query_key_norm, self.undo.callback)

    def _decided(
        self, initialise: Initialise | None, trained: str, plans: Sequence[StackPlan]
    ) -> tuple[Initialise, str]:
        """Decides whether weights are drawn or kept, and returns the reason too."""
        if not self.moves:
            return "keep", "no sub-layer gets another part"
        if initialise is not None:
            return initialise, f"as initialise={initialise!r} asks"
        sign = trained or sign_of_training(self.model, plans)
        if not sign:
            return "draw", "nothing shows that the model has been trained"
        return "keep", f"{sign}; initialise='draw' (--initialise draw) re-initialises them"

    def _place(self, plans: Sequence[StackPlan]) -> Sequence[str]:
        """Swap the classes of all modules that take part; returns the names of those that are
        handed what they read.
        """
        entered = seats(self.passes, plans)
        for one in plans:
            _place(self.model, one, entered, self.undo)
        self.passes.is_placed = True
        found = readers(self.passes, plans)
        for name, places in found.items():
            module = self.model.get_submodule(name)
            swap(module, READER)
            module.stream_seats = places  # type: ignore[assignment]
            self.undo.callback(_unhand, module)
        return list(found)

    def _refuse_changed(self, plans: Sequence[StackPlan], initialise: Initialise) -> None:
        """Raise TransplantRefused where the outputs on the batch changed though the placement is
        the same.
        """
        if initialise == "keep" and plans and all(one.is_same for one in plans):
            found = change(self.before, self.passes.outputs())
            if found:
                raise TransplantRefused(
                    f"{type(self.model).__name__} is {self.plain.name} already, and would give "
                    f"other outputs (by {found:.1e})"
                )

    def _draw(self, both: Sequence[tuple[StackPlan, Sequence[Drawing]]]) -> list[DrawnMatrix]:
        if not both:
            return []
        self.undo.callback(torch.set_rng_state, torch.get_rng_state())
        for tensor in (
            tensor for one, some in both for tensor in written_by(self.model, one, some)
        ):
            self.undo.callback(_put_back, tensor, tensor.detach().clone())
        try:
            drawn = [found for one, some in both for found in draw(self.model, one, some)]
        except (RuntimeError, NotImplementedError) as error:
            raise TransplantRefused(
                f"{type(self.model).__name__}: its weights cannot be drawn ({in_one_line(error)}): "
                "take initialise='keep' (--initialise keep)"
            ) from error
        self.passes.outputs()  # raises where drawn weights give NaN
        return drawn

    def _freeze(self, parameter: nn.Parameter) -> None:
        self.undo.callback(parameter.requires_grad_, parameter.requires_grad)
        parameter.requires_grad_(False)


def untransplant(model: nn.Module) -> nn.Module:
    """Give a transplanted model its own placement again, with the weights that it has now; what was
    added is dropped.

    Raises TransplantRefused for a model that is not transplanted.
    """
    done = getattr(model, "transplanted", None)
    if not isinstance(done, Transplanted):
        raise TransplantRefused(f"{type(model).__name__} is not transplanted")
    for name in done.normed:
        take_norms(model.get_submodule(name))
    for name in done.readers:
        _unhand(model.get_submodule(name))
    for name in done.blocks:
        _unplace(model.get_submodule(name))
    for name in done.norms:
        swap_back(model.get_submodule(name))
    for name in done.frozen:
        model.get_parameter(name).requires_grad_(True)
    del model.transplanted
    forget(model)
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


def _unhand(reader: nn.Module) -> None:
    swap_back(reader)
    del reader.stream_seats


@torch.no_grad()
def _put_back(tensor: Tensor, value: Tensor) -> None:
    tensor.copy_(value)


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
    """Tells whether a norm that the formula asks for has to be added: it is neither one of the
    model's own nor left to the model.
    """
    return part not in block.reused and (part[0] not in ("start", "finish") or part in used)


def _template(model: nn.Module, one: StackPlan) -> Callable[[int], nn.Module]:
    """Makes a new norm as those of the model are, or as the placement has them where the model has
    none like that.
    """
    norms = [norm.module for block in one.blocks for norm in block.norms]
    own = norms[0] if norms else ""
    if own and one.norms_like_the_models:
        made = marked(copy.deepcopy(model.get_submodule(own)).requires_grad_(True))
        reset(made, one.found.width)
        return lambda width: copy.deepcopy(made)
    return lambda width: marked(make_norm(one.placement, "as-placement", "as-placement", width))


def _added_names(model: nn.Module, plans: Sequence[StackPlan], normed: Sequence[str]) -> list[str]:
    blocks = [block.module for one in plans for block in one.blocks]
    return [
        joined(path, name)
        for path in (*blocks, *normed)
        for name, _ in model.get_submodule(path).named_parameters()
        if name.startswith(f"{PLACED}.")
    ]


def _idle(model: nn.Module, one: StackPlan) -> list[str]:
    """Returns the parameters of norms that nothing applies, of those that are trained."""
    reused = {path for block in one.blocks for path in block.reused.values()}
    paths = dict.fromkeys(path for block in one.blocks for path in block.idle if path not in reused)
    return [
        f"{path}.{name}"
        for path in paths
        for name, parameter in model.get_submodule(path).named_parameters()
        if parameter.requires_grad
    ]
