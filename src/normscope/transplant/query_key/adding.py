"""Puts norms on the queries and keys of a model that exists, and has the doctor read them."""

from collections.abc import Callable, Sequence

from ...doctor.find.terms import Term
from ...doctor.observe.examine import examined_for_drawing
from ...doctor.record import Stack, Sublayer
from ...placement import QueryKeyNorm
from ..following import TransplantRefused
from ..passes import Passes
from ..placed import handed_on
from .after import put_after
from .attending import ATTENDING, SIDES
from .before import put_before


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
    attending = [
        (stack, sublayer)
        for stack in stacks
        for sublayer in stack.sublayers
        if sublayer.block and sublayer.kind in ATTENDING
    ]
    if not attending:
        raise TransplantRefused(
            f"{type(passes.model).__name__} has no attention that is understood, whose queries and "
            "keys could get norms"
        )
    put = put_after if norm.after else put_before
    found = put(passes, attending, norm, undo)
    _prove(passes, stacks, norm)
    return found


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
            if sublayer.block and sublayer.kind in ATTENDING:
                _prove_one(sublayer, norm)


def _norms_of_scores(branch: Term) -> int:
    """Returns how many of the two sides of a product of scores a branch norms."""
    return sum(place.name == "score" for place in branch.inside)


def _prove_one(sublayer: Sublayer, norm: QueryKeyNorm) -> None:
    seen = sublayer.measured.attention
    # Where blocks have several streams, one formula may hold the branches of several blocks.
    norms = [_norms_of_scores(branch) for branch in sublayer.formula.segment.branches]
    in_formula = {count for count in norms if count} == {len(SIDES)}
    both = seen is not None and len(seen.normed) == len(SIDES) and in_formula
    wrong = seen is not None and bool(seen.normed_wrong or seen.of_many_lengths)
    if not both or (wrong and not norm.whole):
        raise TransplantRefused(
            f"{sublayer.name}: with norms on queries and keys the doctor reads {sublayer.formula}, "
            "and not a norm of each over the features of a head: its heads may lie otherwise among "
            "the outputs than one after the other"
        )
