"""Placements that do not agree: of the blocks of one stack with each other, or of a model with its configuration."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from ....placement import named, registered
from ....placement.printing import ranges
from ...record import Sublayer
from ...result import Finding, Severity
from ..constants import near
from ..matrices import parameters_by_name
from ..needs import a_configured_placement
from ..rules import Patient, Rule
from ..structure import carries_norm, explained, in_blocks, wanted
from ..vectors import listed


def mixed_placements(patient: Patient) -> Iterator[Finding]:
    """Blocks of one stack with different formulas that no registered placement has together."""
    for number, stack in enumerate(patient.stacks):
        inside = in_blocks(stack)
        if explained(inside) or near(patient, number) or carries_norm(stack, wanted(patient, number)):
            continue
        # Of a mean over depth every sub-layer reads one value more than the one before.
        if any(sublayer.formula.over_depth for sublayer in inside):
            continue
        blocks = _by_formulas(inside)
        if len(blocks) > 1:
            parts = [
                f"block{'s' if len(numbers) > 1 else ''} {ranges(numbers)}: {', '.join(words)}"
                for words, numbers in blocks.items()
            ]
            few = min(blocks.values(), key=len)
            yield Finding(
                id="mixed-placements",
                severity=Severity.WARNING if _is_a_slip(patient, number, few) else Severity.INFO,
                where=listed(sublayer.name for sublayer in inside if sublayer.block in few),
                message="the blocks of one stack are wired differently, as no registered placement has them: "
                + "; ".join(parts),
                fix="wire all blocks alike, or by the rule of a placement that mixes them, such as Mix-LN's first "
                f"⌊L/4⌋ = {stack.blocks // 4} of {stack.blocks} blocks",
            )


def _is_a_slip(patient: Patient, number: int, few: list[int]) -> bool:
    """Whether the blocks that differ are in no place where a design would have them, and built like the others.

    Designs have them at the beginning (ModernBERT, Mix-LN), at the end, or every so often (Gemma 4, OLMo hybrid), and
    often with other matrices or with formulas of their own.
    """
    stack = patient.stacks[number]
    at_an_end = few in (list(range(1, len(few) + 1)), list(range(stack.blocks - len(few) + 1, stack.blocks + 1)))
    steps = {b - a for a, b in pairwise(few)}
    every_so_often = len(steps) == 1 and (stack.blocks - len(few)) // max(steps) <= len(few)
    if at_an_end or every_so_often or any(not sublayer.placement for sublayer in in_blocks(stack)):
        return False
    weights = parameters_by_name(patient)
    shapes: dict[int, list[tuple[int, ...]]] = {}
    for sublayer in stack.sublayers:
        names = sublayer.measured.matrices
        shapes.setdefault(sublayer.block, []).extend(tuple(weights[n].shape) for n in names if n in weights)
    return all(shapes[block] in [shapes[other] for other in shapes if other not in few] for block in few)


def _by_formulas(inside: list[Sublayer]) -> dict[tuple[str, ...], list[int]]:
    """Blocks by the formulas of their sub-layers, numbers and kinds left out; the commonest first."""
    blocks: dict[int, list[str]] = {}
    for sublayer in inside:
        shown = sublayer.formula.outlined(numbers=bool(sublayer.placement))
        blocks.setdefault(sublayer.block, []).append(str(shown))
    found: dict[tuple[str, ...], list[int]] = {}
    for number, texts in blocks.items():
        found.setdefault(tuple(texts), []).append(number)
    order = Counter({key: len(numbers) for key, numbers in found.items()}).most_common()
    # What every sub-layer of a block has is said once.
    return {tuple(dict.fromkeys(key)): found[key] for key, _ in order}


def flag_contradicts(patient: Patient) -> Iterator[Finding]:
    """A configuration that names another placement than the model computes.

    Of one sub-layer alone it says nothing: that is a part of a backbone, or a network beside the blocks. What it cannot
    name may be the configured placement, in a form that was not understood: that contradicts nothing.
    """
    name = patient.wanted_placement
    if name is None or name not in registered():
        return
    for stack in patient.stacks:
        inside = in_blocks(stack)
        other = [sublayer for sublayer in inside if name not in (sublayer.placement, *sublayer.also)]
        if other and len(inside) > 1:
            found = Counter(sublayer.placement or str(sublayer.formula) for sublayer in other).most_common(1)[0][0]
            says = f"the configuration says {named(name).title} ({name})"
            of = f"{len(other)} of {len(inside)} sub-layers"
            if found in registered():
                yield Finding(
                    id="placement-flag-contradicts",
                    severity=Severity.ERROR,
                    where=stack.name,
                    message=f"{says}, but {of} are not: most of these compute {found}",
                    fix="correct the configuration, or whatever reads it: weights trained under one placement are of "
                    "no use under another",
                )
            else:
                yield Finding(
                    id="placement-flag-contradicts",
                    severity=Severity.INFO,
                    where=stack.name,
                    message=f"{says}; {of} were not recognised as it, nor as another: most are read as {found}",
                    fix="compare that formula with the placement's own: either they differ, or the doctor does not "
                    "follow it in this model",
                )


PLACE = 30
RULES: tuple[Rule, ...] = (
    Rule(
        id="mixed-placements",
        severity=Severity.WARNING,
        title="Blocks of one stack are wired differently",
        explanation="Where depth-wise mixtures are meant they follow a rule; a block that differs for no reason is "
        "mostly a flag that did not reach it.",
        reference="Li et al. 2024 (Mix-LN), arXiv:2412.13795, section 3, for a mixture that is meant",
        check=mixed_placements,
    ),
    Rule(
        id="placement-flag-contradicts",
        severity=Severity.ERROR,
        title="The model is not wired as its configuration says",
        explanation="Pre-LN and Post-LN have weights of the same names and shapes, so that nothing fails to load when "
        "a flag is wrong or ignored.",
        reference="github.com/facebookresearch/multimodal issue 317; github.com/NVIDIA/NeMo pull request 4350",
        check=flag_contradicts,
        of_structure=True,
        needs=(a_configured_placement,),
    ),
)
