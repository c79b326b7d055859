"""Embeddings so large that they drown their blocks, or whatever else is added to them or made of them."""

from collections.abc import Iterator

from ...result import Finding, Severity
from ..gradient_reach import is_closed
from ..needs import initial_weights
from ..rules import Patient, Rule
from ..vectors import large_tables, listed

TINY_SHARE = 1e-3
LARGE_STREAM = 10.0
"""Mean square; embeddings of N(0, 1/d) times √d, and normed ones, have 1. Narrow models with weights of N(0, 0.02²)
have shares of 1e-4 (BERT of width 32) beside such a stream: there the weights are small, not the embedding large."""


def embedding_swamps_blocks(patient: Patient) -> Iterator[Finding]:
    """A stream that starts so large that nothing which blocks add to it changes what the next one reads."""
    for stack in patient.stacks:
        places = [(stack, sublayer) for sublayer in stack.sublayers]
        measured = [sublayer.measured for sublayer in stack.sublayers]
        # Branches that a gate or a factor holds down are held down on purpose.
        held = any(is_closed(place) or abs(place[1].branch_scale or 1.0) < 0.1 for place in places)
        most, least = max(one.share for one in measured), min(one.stream_square for one in measured)
        # Where norms stand on the stream, its size at the source is soon forgotten.
        if not held and most < TINY_SHARE and least > LARGE_STREAM:
            yield Finding(
                id="embedding-swamps-blocks",
                severity=Severity.WARNING,
                where=stack.name,
                message=f"the stream enters the first block at a mean square of {stack.source_square:.3g}, and no "
                f"sub-layer adds more than {most:.2g} of a sum's square: blocks barely change what the next one reads",
                fix="draw the embedding smaller (a deviation of 1/√width where it is multiplied by √width, 0.02 where "
                "not), or norm it",
            )


def embedding_too_large(patient: Patient) -> Iterator[Finding]:
    """A table drawn far larger than any that is in use, where its blocks do not suffer from it: behind a norm."""
    tables = large_tables(patient.model)
    if not tables or any(True for _ in embedding_swamps_blocks(patient)):
        return
    size = max(tables.values())
    tied = " The output matrix is the same table, so that logits are as much too large." * _is_output(patient, tables)
    yield Finding(
        id="embedding-too-large",
        severity=Severity.WARNING,
        where=listed(tables),
        message=f"an embedding starts with entries of root mean square {size:.3g}, where N(0, 1) is the largest that "
        f"libraries draw. What is added to it, such as positions, is lost in it, and behind a norm its gradient is "
        f"{size:.3g} times smaller.{tied}",
        fix="draw it at a deviation of 0.02, or of 1/√width where it is multiplied by √width",
    )


def _is_output(patient: Patient, tables: dict[str, float]) -> bool:
    weights = dict(patient.model.named_parameters())
    return any(len(weights[name]) == patient.observed.classes for name in tables if name in weights)


PLACE = 75
RULES: tuple[Rule, ...] = (
    Rule(
        id="embedding-swamps-blocks",
        severity=Severity.WARNING,
        title="an embedding so large that blocks barely act",
        explanation="In a stream without norms on it, what a block adds is as large as its weights make it, whatever "
        "the embedding is: a large embedding keeps every later norm from seeing the branches.",
        reference="Takase et al. 2023 (Spike No More), arXiv:2312.16903, for the other side; Xiong et al. 2020, "
        "arXiv:2002.04745, lemma 2: the sum grows by one branch at a time",
        check=embedding_swamps_blocks,
    ),
    Rule(
        id="embedding-too-large",
        severity=Severity.WARNING,
        title="an embedding drawn much too large",
        explanation="A norm behind it hides its size from the blocks, but not from its gradient, which is divided by "
        "it, nor from the positions that are added to it, nor from an output that is tied to it.",
        reference="Xiong et al. 2020, arXiv:2002.04745, lemma 3: the Jacobian of a norm falls with the size of its "
        "input; Takase et al. 2023 (Spike No More), arXiv:2312.16903, section 4, for embeddings of deviation 1",
        check=embedding_too_large,
        needs=(initial_weights,),
    ),
)
