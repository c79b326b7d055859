"""Constants of a formula that are not those of the stack's depth."""

from collections.abc import Iterator, Sequence

from ...result import Finding, Severity
from ..constants import is_same, near
from ..rules import Patient, Rule
from ..structure import in_blocks


def wrong_constants(patient: Patient) -> Iterator[Finding]:
    """A placement's formula with constants of another depth, or of none."""
    for number, stack in enumerate(patient.stacks):
        several = near(patient, number)
        if not several:
            continue
        right = [one for one in several if one.source] or list(several)
        first = right[0]
        formula = in_blocks(stack)[0].formula
        wanted = "; ".join(f"{one.placement.title} has {_said(one.wanted)}" for one in right)
        sources = [f"{one.placement.title}'s {one.source}" for one in right if one.source]
        source = " and ".join(sources) or "of no registered placement at any depth"
        by_block = len(set(first.wanted)) > 1
        yield Finding(
            id="wrong-constants",
            severity=Severity.WARNING if first.source else Severity.INFO,
            where=stack.name,
            message=f"{formula}: the constant is {_said(first.found)}, {source}; with {stack.blocks} blocks {wanted}",
            fix="compute it from the number of " + ("the block, counted from 1" if by_block else "blocks"),
        )


def _said(numbers: Sequence[float]) -> str:
    if all(is_same(number, numbers[0]) for number in numbers):
        return f"{numbers[0]:.4g}"
    shown = ", ".join(f"{number:.3g}" for number in numbers[:6])
    return shown + (", …" if len(numbers) > 6 else "")


PLACE = 50
RULES: tuple[Rule, ...] = (
    Rule(
        id="wrong-constants",
        severity=Severity.WARNING,
        title="A constant of another depth",
        explanation="Scales such as DeepNorm's are functions of the number of blocks, and differ between the stacks of "
        "an encoder-decoder; written as a number they are right for one model only.",
        reference="Wang et al. 2022, arXiv:2203.00555, figure 2; github.com/pixeli99/MixLN: 2.8284 at every depth; "
        "Sun et al. 2025, arXiv:2502.05795, section 3: blocks counted from 1",
        check=wrong_constants,
        of_structure=True,
    ),
)
