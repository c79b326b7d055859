"""The proof of a transplant: the doctor reads the result, and it is run as a training runs it."""

from collections.abc import Sequence

from ..doctor.identify.stacks import find_stacks
from ..doctor.record import Stack, Sublayer
from ..doctor.trace.forward import call_with
from ..errors import UserError, in_one_line
from .following import TransplantRefused
from .passes import Passes
from .placed import handed_on
from .plan import StackPlan


def prove(passes: Passes, plans: Sequence[StackPlan]) -> None:
    """Let the doctor read the result. Raises TransplantRefused where it does not name the target in
    every block.
    """
    try:
        with handed_on():
            after = find_stacks(passes.model, passes.inputs)
    except ValueError as error:
        cause = error.__cause__
        if isinstance(cause, TransplantRefused):
            raise cause from None
        raise TransplantRefused(
            f"the transplanted model cannot be run: {in_one_line(cause or error)}"
        ) from error
    # The doctor looks without gradients and at evaluation: what a training does otherwise must be
    # followed too.
    passes.with_gradients()
    _prove_training(passes, [block.module for one in plans for block in one.blocks])
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


def _prove_training(passes: Passes, blocks: Sequence[str]) -> None:
    """Run the model as in training. Raises TransplantRefused where that cannot be followed."""
    ran: set[str] = set()
    with passes.as_in_training():
        for name in blocks:
            passes.model.get_submodule(name).register_forward_pre_hook(
                lambda block, args, name=name: ran.add(name)
            )
        try:
            call_with(passes.model, passes.inputs)
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
                f"{one.placement.name}{_own_norms(old)}"
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


def _own_norms(old: Sublayer) -> str:
    """Returns what to do where the sub-layer has a norm of its own inside, which is one too many;
    "" where it has none.
    """
    inside = str(old.formula).partition("(")[2]
    if "norm(output" not in inside and "norm(hidden" not in inside:
        return ""
    return (
        ". The sub-layer has a norm of its own inside, in front of its last matrix, which a "
        f"transplant keeps (it was {old.formula} before). Replace that norm by nn.Identity() in "
        "the function that builds the model, and the rest can be moved"
    )


def _kinds_of_norms(stack: Stack) -> set[tuple[str, str]]:
    norms = (term.norm for one in stack.sublayers for term in one.formula.segment.terms)
    return {(norm.kind, f"{norm.epsilon:.6g}") for norm in norms if norm is not None}
