"""Norms of queries and keys that do not agree: with each other, or from block to block."""

from collections import Counter
from collections.abc import Iterator

from ...record import Sublayer
from ...result import Finding, Severity
from ..rules import Patient, Rule
from ..vectors import listed

_SIDES = 2
"""Queries and keys."""


def query_key_norms(patient: Patient) -> Iterator[Finding]:
    """Attention whose queries and keys are normed in different ways, or in other ways than those of other blocks."""
    for stack in patient.stacks:
        attending = [s for s in stack.sublayers if s.kind in ("attention", "cross_attention") and s.block > 0]
        # Where the stream was not understood, its own norms may look like those of queries and keys.
        attending = [s for s in attending if s.placement or s.confidence == "sure"]
        normed = [sublayer for sublayer in attending if _norms(sublayer)]
        if not normed:
            continue
        one_sided = [sublayer for sublayer in normed if len(_norms(sublayer)) == 1]
        # With more norms than two, some are of what queries or keys are made from, as DeepSeek's latent vectors.
        unlike = [s for s in normed if len(_norms(s)) == _SIDES and len(set(_norms(s))) > 1]
        yield from _between_the_two(one_sided, "the queries or the keys are normed, and the other of the two is not")
        yield from _between_the_two(
            unlike, "one of queries and keys is normed head by head, and the other over all heads"
        )
        yield from _from_block_to_block(attending)
        if all(set(_norms(sublayer)) == {False} for sublayer in normed):
            yield Finding(
                id="query-key-norms",
                severity=Severity.INFO,
                where=listed(sublayer.name for sublayer in normed),
                message="queries and keys are normed over all heads together, so that a head with large queries makes "
                "those of the others small, and a split of heads over processes changes the function",
                fix="nothing, where this is meant, as in OLMo 2; else norm each head on its own, as Gemma 3 and Qwen3",
            )


def _norms(sublayer: Sublayer) -> tuple[bool, ...]:
    """For each norm of its queries and keys, whether it norms every head on its own."""
    return tuple(place.by_head for place in sublayer.formula.branch.inside if place.name == "score")


def _between_the_two(places: list[Sublayer], told: str) -> Iterator[Finding]:
    if places:
        yield Finding(
            id="query-key-norms",
            severity=Severity.WARNING,
            where=listed(sublayer.name for sublayer in places),
            message=f"{told}: {len(places)} of the sub-layers. Attention logits are bounded where both are normed",
            fix="norm queries and keys in the same way",
        )


def _from_block_to_block(attending: list[Sublayer]) -> Iterator[Finding]:
    """Blocks that differ may be meant, as where some of them have no positions; a single one hardly is."""
    for kind in ("attention", "cross_attention"):
        likes = [sublayer for sublayer in attending if sublayer.kind == kind]
        ways = Counter(_norms(sublayer) for sublayer in likes)
        if len(ways) < _SIDES:
            continue
        usual = ways.most_common(1)[0][0]
        others = [sublayer for sublayer in likes if _norms(sublayer) != usual]
        yield Finding(
            id="query-key-norms",
            severity=Severity.INFO,
            where=listed(sublayer.name for sublayer in others),
            message=f"queries and keys are normed otherwise than in most blocks: {len(others)} of {len(likes)}",
            fix="nothing, where blocks have different kinds of attention; else give all of them the same norms",
        )


PLACE = 35
RULES: tuple[Rule, ...] = (
    Rule(
        id="query-key-norms",
        severity=Severity.WARNING,
        title="Queries and keys are normed in different ways",
        explanation="Norms bound the logits of attention only where both have them; over all heads together they do "
        "something else than head by head, and weights trained with the one are of no use with the other.",
        reference="github.com/EleutherAI/gpt-neox pull request 1367; github.com/vllm-project/vllm pull request 16311; "
        "Henry et al. 2020, arXiv:2010.04245",
        check=query_key_norms,
        of_structure=True,
    ),
)
