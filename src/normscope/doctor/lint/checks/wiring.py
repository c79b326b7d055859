"""Formulas that no registered placement has: what they are nearest to."""

from collections.abc import Iterator

from ...result import UNKNOWN_WIRING, Severity
from ..nearest import FormulaEdits, NearestPlacement, nearest
from ..patient import Patient, listed
from ..rule import Fault, rule
from ..structure import in_blocks, shape_of


@rule(
    UNKNOWN_WIRING,
    Severity.INFO,
    title="A formula that no registered placement has",
    why="Rules, theory and results are of placements that are known; of a formula that none has they say little, and "
    "that nothing was found is no sign of health. It may be new and meant, or one step away from what was meant.",
    reference="docs/own-placements.md, for a formula of one's own",
    of_structure=True,
    bears_nonfinite=True,
)
def unknown_wiring(patient: Patient) -> Iterator[Fault]:
    """Stacks with sub-layers that are joined to the stream as in no registered placement, and the nearest one."""
    deep = any(stack.blocks > 1 for stack in patient.stacks)
    for number, stack in enumerate(patient.stacks):
        inside = in_blocks(stack)
        unknown = [sublayer for sublayer in inside if not sublayer.placement]
        # A single sum beside whole blocks is part of a head, of an embedding or of a convolution.
        if not unknown or (len(inside) == 1 and deep):
            continue
        formulas = list(dict.fromkeys(str(sublayer.formula) for sublayer in unknown))
        near = nearest(stack, shape_of(patient.stacks, number))
        yield Fault(
            where=listed(sublayer.name for sublayer in unknown),
            message=f"{len(unknown)} of {len(inside)} sub-layers are joined to the stream as no registered placement "
            f"has it: {listed(formulas)}" + (f". {_compared(near)}" if near and near.differences else ""),
            fix="compare the two formulas; register one of your own as docs/own-placements.md says"
            if near and near.differences
            else "register a formula of your own as docs/own-placements.md says",
        )


def _compared(near: NearestPlacement) -> str:
    """As "Nearest is Pre-LN, but ...", with both formulas of the first difference."""
    first = near.differences[0]
    words = "; ".join(f"{_spoken(one)} {', '.join(dict.fromkeys(one.edits))}" for one in near.differences[:2])
    title = near.placement.title
    return f"Nearest is {title}, but {words}. Here {first.observed}, in {title} {first.expected}"


def _spoken(one: FormulaEdits) -> str:
    return one.kind.replace("_", "-")
