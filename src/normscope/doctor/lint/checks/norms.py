"""Norms at the ends of stacks: missing, doubled, not where an encoder's memory is read, or nowhere at all."""

from collections.abc import Iterator

from ....placement import named
from ...find.terms import ordered
from ...identify.candidates import Candidate
from ...identify.matching import matches
from ...result import Finding, Severity
from ..rules import Patient, Rule
from ..structure import blocks_end_normed, carries_norm, ends_in_norm, is_normed, wanted

CLOSED_SHARE = 0.1
"""Sum of the branches' shares of a stack up to which its branches count as closed at the start."""


def missing_final_norm(patient: Patient) -> Iterator[Finding]:
    """A stack whose placement ends in a norm, read as its last sum leaves it."""
    for number, stack in enumerate(patient.stacks):
        title = ends_in_norm(patient, number)
        # A stack without any norm, an encoder's memory and a stream that is cut in two have rules of their own.
        memory = any(other.memory == number and not other.memory_normed for other in patient.stacks)
        cut = any(other.continues == number for other in patient.stacks)
        if stack.end_read_by == "norm" or memory or cut or not stack.norm:
            continue
        if title is None or carries_norm(stack, wanted(patient, number)):
            continue
        last = stack.sublayers[-1].measured.sum_square if stack.sublayers else stack.end_square
        reader = "weights read" if stack.end_read_by == "weights" else "the model returns"
        rule = f"{title} ends in one" if title else "its blocks leave the stream un-normed, and it has norms elsewhere"
        # A single block beside a deeper stack is a head or a reader of it.
        beside = stack.blocks == 1 and any(other.blocks > 1 for other in patient.stacks)
        yield Finding(
            id="missing-final-norm",
            severity=Severity.INFO if beside else Severity.WARNING,
            where=stack.name,
            message=f"no norm after the last of {stack.blocks} blocks, though {rule}: {reader} a stream"
            + (f" of mean square {last:.3g}, where a norm gives 1" if patient.measured else " that grows with depth"),
            fix=f"put a {stack.norm or 'norm'} of width {stack.width} after the last block",
        )


def double_final_norm(patient: Patient) -> Iterator[Finding]:
    """A norm after a stack whose last block ends in one already."""
    for number, stack in enumerate(patient.stacks):
        formula = wanted(patient, number)
        if formula is None or not stack.final_norm or not blocks_end_normed(formula):
            continue
        # A placement may have a further norm at its end itself.
        if matches(formula.whole[-1], formula.blocks[-1]):
            yield Finding(
                id="double-final-norm",
                severity=Severity.INFO,
                where=stack.name,
                message=f"a norm follows the stack, though each of the {stack.blocks} {named(stack.placement).title} "
                "blocks ends in one: what is normed is normed again, which changes nothing but gains and shifts",
                fix="leave the norm after the stack out",
            )


def unnormed_memory(patient: Patient) -> Iterator[Finding]:
    """Cross-attention that reads an encoder's residual sum as it is."""
    for stack in patient.stacks:
        if stack.memory is None or stack.memory_normed:
            continue
        encoder = patient.stacks[stack.memory]
        formula = wanted(patient, stack.memory)
        # Values that are carried from block to block, or states of an encoder that some blocks look at, are no memory.
        crossing = {sublayer.block for sublayer in stack.sublayers if sublayer.kind == "cross_attention"}
        if not crossing or not encoder.norm or formula is None or not is_normed(formula.whole[-1].end):
            continue
        square = encoder.sublayers[-1].measured.sum_square
        yield Finding(
            id="unnormed-memory",
            severity=Severity.ERROR if len(crossing) == stack.blocks else Severity.INFO,
            where=stack.name,
            message=f"cross-attention of {stack.blocks} blocks reads the sum that {encoder.name or 'the encoder'} ends "
            f"in, of mean square {square:.3g}, with no norm between; a norm gives 1",
            fix=f"put a {encoder.norm} of width {encoder.width} after the encoder, and give its output to the decoder",
        )


def no_norm(patient: Patient) -> Iterator[Finding]:
    """A stack without norms that is no placement made for that."""
    for number, stack in enumerate(patient.stacks):
        # Norms of queries and keys do not bound what a branch adds; others within F do.
        inside = {place.name for sublayer in stack.sublayers for place in sublayer.formula.branch.inside}
        if stack.norm or inside - {"score"}:
            continue
        formula = wanted(patient, number)
        unsure = any(sublayer.placement and sublayer.confidence == "unsure" for sublayer in stack.sublayers)
        if formula is not None and not unsure and not _has_norms(formula):
            continue
        share = sum(sublayer.measured.share for sublayer in stack.sublayers)
        growth = stack.end_square / stack.source_square if stack.source_square else float("inf")
        closed = share <= CLOSED_SHARE
        yield Finding(
            id="no-norm",
            severity=Severity.INFO if closed else Severity.WARNING,
            where=stack.name,
            message=f"no norm in {stack.blocks} blocks, and no registered placement without norms; the stream's mean "
            f"square grows {growth:.3g}-fold over the stack" + (", its branches starting closed" if closed else ""),
            fix="add norms, or choose a placement and an initialisation made to go without: ReZero, T-Fixup",
        )


def _has_norms(formula: Candidate) -> bool:
    return any(term.kind == "norm" or term.inside for term in ordered(formula.whole[-1].end))


PLACE = 20
RULES: tuple[Rule, ...] = (
    Rule(
        id="missing-final-norm",
        severity=Severity.WARNING,
        title="No norm after the stack",
        explanation="Blocks that leave the stream un-normed hand on a sum that grows with depth: logits start too "
        "large and gradients of the top blocks lose the factor 1/√L that the norm gives them.",
        reference="Xiong et al. 2020, arXiv:2002.04745, table 1 and section 3.3; joeynmt, encoders.py: layer_norm's "
        "default differs between layers and stack",
        check=missing_final_norm,
        of_structure=True,
    ),
    Rule(
        id="double-final-norm",
        severity=Severity.INFO,
        title="A norm directly after a norm",
        explanation="The second norm has nothing to do but to add a gain and a shift; torch.nn.Transformer keeps it "
        "for backward compatibility.",
        reference="github.com/pytorch/pytorch issues 24930 and 50086",
        check=double_final_norm,
        of_structure=True,
    ),
    Rule(
        id="unnormed-memory",
        severity=Severity.ERROR,
        title="Cross-attention reads an encoder without a final norm",
        explanation="Keys and values of every decoder block then grow with the encoder's depth, and their gradients "
        "with them: training ends in huge gradients or NaN.",
        reference="github.com/marian-nmt/marian-dev issue 699 and pull request 719",
        check=unnormed_memory,
    ),
    Rule(
        id="no-norm",
        severity=Severity.WARNING,
        title="A stack without norms",
        explanation="Plain residual sums without norms train only from weights or gates that keep the branches small "
        "at the start.",
        reference="Zhang et al. 2019 (Fixup), arXiv:1901.09321; Bachlechner et al. 2020, arXiv:2003.04887",
        check=no_norm,
    ),
)
