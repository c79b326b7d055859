"""Norms: missing at the end of a stack, unlike for queries and keys, or with an unfit ε."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import torch

from ....measure.passes import mean_square
from ...record import Stack, Sublayer
from ...result import Severity
from ..patient import Patient
from ..rule import Fault, rule, stack_rule
from ..structure import carries_norm, ends_in_norm, in_blocks, is_normed, number_of, wanted

CLOSED_SHARE = 0.1
"""Sum of the branches' shares of a stack up to which its branches count as closed at the start."""


@stack_rule("missing-final-norm", of_structure=True)
def missing_final_norm(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """A stack whose placement ends in a norm, read as its last sum leaves it."""
    title = ends_in_norm(patient, stack)
    # A stack without any norm, an encoder's memory and a stream that is cut in two have rules of
    # their own.
    number = number_of(patient.stacks, stack)
    memory = any(other.memory == number and not other.memory_normed for other in patient.stacks)
    cut = any(other.continues == number for other in patient.stacks)
    known = stack.end_read_by == "norm" or memory or cut or not stack.norm
    if known or title is None or carries_norm(patient, stack):
        return
    last = stack.sublayers[-1].measured.sum_square if stack.sublayers else stack.end_square
    reader = "weights read" if stack.end_read_by == "weights" else "the model returns"
    rule = (
        f"{title} ends in one"
        if title
        else "its blocks leave the stream without a norm, and it has norms elsewhere"
    )
    # A single block beside a deeper stack is a head or a reader of it.
    beside = stack.blocks == 1 and any(other.blocks > 1 for other in patient.stacks)
    # What hands on to another stack, as stages and skips that are put side by side do, is no end of
    # the model.
    beside = beside or stack.feeds_later
    # A tower that returns its stream leaves the norm to what reads it, as a projector may begin
    # with one; where a loss is taken of the stream itself, nothing comes after.
    handed_on = (
        stack.end_read_by == "output" and patient.measured and patient.observed.loss_is_stand_in
    )
    beside = beside or handed_on
    yield Fault(
        severity=Severity.INFO if beside or _is_doubtful(stack, title) else Severity.WARNING,
        where=stack.name,
        message=f"no norm after the last of {stack.blocks} blocks, though {rule}: {reader} a "
        f"stream {_as_large_as(last) if patient.measured else 'that grows with depth'}",
        fix=f"put a {stack.norm or 'norm'} of width {stack.width} after the last block"
        + (", unless what reads the stream begins with one" if handed_on else ""),
    )


def _as_large_as(square: float) -> str:
    """Returns a clause on a stream that ends with this mean square, as three digits of it are
    read.
    """
    shown = f"{square:.3g}"
    if shown == "1":
        return "of mean square 1, as a norm would give, and nothing keeps it there in training"
    return f"of mean square {shown}, where a norm gives 1"


def _is_doubtful(stack: Stack, title: str) -> bool:
    """Tells whether no confident reading in a stack shows that a norm belongs at its end."""
    sure = [one for one in in_blocks(stack) if one.confidence == "sure"]
    return not any(one.placement for one in sure) if title else not sure


@stack_rule("unnormed-memory")
def unnormed_memory(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Cross-attention that reads an encoder's residual sum as it is."""
    if stack.memory is None or stack.memory_normed:
        return
    encoder = patient.stacks[stack.memory]
    formula = wanted(patient, encoder)
    # Values that are carried from block to block, or states of an encoder that some blocks look at,
    # are no memory.
    crossing = {
        sublayer.block for sublayer in stack.sublayers if sublayer.kind == "cross_attention"
    }
    if not crossing or not encoder.norm or formula is None or not is_normed(formula.whole[-1].end):
        return
    square = encoder.sublayers[-1].measured.sum_square
    yield Fault(
        severity=Severity.ERROR if len(crossing) == stack.blocks else Severity.INFO,
        where=stack.name,
        message=f"cross-attention of {stack.blocks} blocks reads the sum that "
        f"{encoder.name or 'the encoder'} ends in, of mean square {square:.3g}, with no norm "
        "between; a norm gives 1",
        fix=f"put a {encoder.norm} of width {encoder.width} after the encoder, and give its output "
        "to the decoder",
    )


@stack_rule("no-norm")
def no_norm(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """A stack without norms that is no placement made for that."""
    # Norms of queries and keys do not bound what a branch adds; others within F do.
    inside = {
        place.name for sublayer in stack.sublayers for place in sublayer.formula.branch.inside
    }
    if stack.norm or inside - {"score"}:
        return
    formula = wanted(patient, stack)
    unsure = any(
        sublayer.placement and sublayer.confidence == "unsure" for sublayer in stack.sublayers
    )
    if formula is not None and not unsure and not formula.has_norms:
        return
    share = sum(sublayer.measured.share for sublayer in stack.sublayers)
    growth = stack.end_square / stack.source_square if stack.source_square else float("inf")
    closed = share <= CLOSED_SHARE
    # Norms of batches are fixed numbers in evaluation mode, and convolutions have them.
    convolves = {sublayer.kind for sublayer in stack.sublayers} == {"convolution"}
    convolves = convolves or _norms_over_batches(patient.model, stack)
    yield Fault(
        severity=Severity.INFO if closed or convolves else Severity.WARNING,
        where=stack.name,
        message=f"no norm in {stack.blocks} blocks, and no registered placement without norms; the "
        f"stream's mean square grows {growth:.3g}-fold over the stack"
        + (", its branches starting closed" if closed else ""),
    )


def _norms_over_batches(model: torch.nn.Module, stack: Stack) -> bool:
    """Whether every sub-layer with weights holds a norm over the batch, which only training
    shows.
    """
    kept = tuple(
        f"{path}."
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
    )
    weighed = [one.measured.parameters for one in stack.sublayers if one.measured.matrices]
    return bool(weighed) and all(
        any(name.startswith(kept) for name in parameters) for parameters in weighed
    )


_SIDES = 2
"""Queries and keys."""


@stack_rule("query-key-norms", of_structure=True)
def query_key_norms(patient: Patient, stack: Stack) -> Iterator[Fault]:
    """Attention whose queries and keys are normed in different ways, or in other ways than those of
    other blocks.
    """
    attending = [
        s for s in stack.sublayers if s.kind in ("attention", "cross_attention") and s.block > 0
    ]
    yield from _unnormed(attending)
    yield from _over_others(attending)
    # Where the stream was not understood, its own norms may look like those of queries and keys.
    attending = [s for s in attending if stack.placement or s.placement or s.confidence == "sure"]
    normed = [sublayer for sublayer in attending if _head_norms(sublayer)]
    if not normed:
        return
    one_sided = [sublayer for sublayer in normed if len(_head_norms(sublayer)) == 1]
    # With more norms than two, some are of what queries or keys are made from, as DeepSeek's latent
    # vectors.
    unlike = [s for s in normed if len(_head_norms(s)) == _SIDES and len(set(_head_norms(s))) > 1]
    by_head = "one of queries and keys is normalised head by head, and the other over all heads"
    for some, told in ((one_sided, _one_side(one_sided)), (unlike, by_head)):
        if some:
            yield Fault(
                where=some,
                message=(
                    f"{told}: {len(some)} of the sub-layers. Attention logits are bounded where "
                    "both are normalised"
                ),
                fix="norm queries and keys in the same way",
            )
    yield from _from_block_to_block(attending)
    if all(set(_head_norms(sublayer)) == {False} for sublayer in normed):
        yield Fault(
            severity=Severity.INFO,
            where=normed,
            message=(
                "queries and keys are normalised over all heads together, so that a head with "
                "large queries makes those of the others small, and a split of heads over "
                "processes changes the function"
            ),
            fix="nothing, where this is meant, as in OLMo 2; else norm each head on its own, as "
            "Gemma 3 and Qwen3",
        )


def _over_others(attending: list[Sublayer]) -> Iterator[Fault]:
    found = [one for one in attending if (seen := one.measured.attention) and seen.normed_wrong]
    if found:
        yield Fault(
            where=found,
            message=(
                "norms of queries and keys take their statistics over other dimensions than the "
                f"features of a head, in {len(found)} of {len(attending)} attentions: over heads "
                "or tokens they bound no logit"
            ),
            fix="norm the last dimension of (B, H, T, D), the width of a head",
        )


def _unnormed(attending: list[Sublayer]) -> Iterator[Fault]:
    by_sides: defaultdict[tuple[str, ...], list[Sublayer]] = defaultdict(list)
    for one in attending:
        if (seen := one.measured.attention) and seen.unnormed:
            by_sides[seen.unnormed].append(one)
    for sides, some in by_sides.items():
        yield Fault(
            where=some,
            message=(
                f"{' and '.join(sides)} are made from the stream as it is, the others of queries, "
                f"keys and values from a norm of it, in {len(some)} of {len(attending)} attentions"
            ),
            fix="make queries, keys and values from the same normalised stream: y = norm(x), "
            "attention(y, y, y)",
        )


def _one_side(sublayers: list[Sublayer]) -> str:
    """Returns which of queries and keys is normed, where that was measured, and whether values are
    normed in place of the other.
    """
    sides = {seen.normed for sublayer in sublayers if (seen := sublayer.measured.attention)}
    ((side,),) = sides if sides in ({("keys",)}, {("queries",)}) else (("queries or the keys",),)
    values = all(
        "value" in {place.name for place in one.formula.branch.inside} for one in sublayers
    )
    said = f"the {side} are normalised, and the other of the two is not"
    return said + ", but the values are" if values else said


def _head_norms(sublayer: Sublayer) -> tuple[bool, ...]:
    """For each norm of its queries and keys, whether it norms every head on its own."""
    seen = sublayer.measured.attention
    if seen is not None and not seen.normed:
        # What norms stand before their matrices, as behind a reduction of keys and values, does not
        # bound logits.
        return ()
    return tuple(place.by_head for place in sublayer.formula.branch.inside if place.name == "score")


def _from_block_to_block(attending: list[Sublayer]) -> Iterator[Fault]:
    """Blocks that differ may be meant, as where some of them have no positions; a single one hardly
    is.
    """
    for kind in ("attention", "cross_attention"):
        likes = [sublayer for sublayer in attending if sublayer.kind == kind]
        ways = Counter(_head_norms(sublayer) for sublayer in likes)
        if len(ways) < _SIDES:
            continue
        usual = ways.most_common(1)[0][0]
        others = [sublayer for sublayer in likes if _head_norms(sublayer) != usual]
        yield Fault(
            severity=Severity.INFO,
            where=others,
            message=f"queries and keys are normalised otherwise than in most blocks: {len(others)} "
            f"of {len(likes)}",
            fix="nothing, where blocks have different kinds of attention; else give all of them "
            "the same norms",
        )


@rule("norm-epsilon")
def norm_epsilon(patient: Patient) -> Iterator[Fault]:
    """Finds an ε of norms that is too small to guard them, or so large that they hardly
    normalise.
    """
    for stack in patient.stacks:
        yield from _lost(patient, stack.name, stack.norm_epsilon or 0.0)
    yield from _swamping(patient)


def _lost(patient: Patient, where: str, epsilon: float) -> Iterator[Fault]:
    least = torch.finfo(patient.dtype).smallest_normal * torch.finfo(patient.dtype).eps
    if not 0 < epsilon < least:
        return
    dtype = str(patient.dtype).removeprefix("torch.")
    norms = [
        m for m in patient.model.modules() if isinstance(m, torch.nn.LayerNorm | torch.nn.RMSNorm)
    ]
    inside = any(m.eps is not None and abs(m.eps / epsilon - 1) < 0.2 for m in norms)
    yield Fault(
        severity=Severity.INFO if inside else Severity.WARNING,
        where=where,
        message=f"ε is {epsilon:.2g}, and the least number above 0 in {dtype} is {least:.1g}: "
        + (
            "torch's own norms add it in float32, but one that is written out, or exported, adds 0"
            if inside
            else "added in that arithmetic it is 0, and a token of zeros becomes NaN"
        ),
        fix=f"take an ε of 1e-5 for {dtype}, or compute norms in float32",
    )


SWAMPED = 1.0
"""ε over the mean square that it is added to; at 1 the norm's output is 1/√2 of what it should be.
GPT-2 starts at
0.012: embeddings and positions of N(0, 0.02²) under an ε of 1e-5."""


def _swamping(patient: Patient) -> Iterator[Fault]:
    for stack in patient.stacks:
        # Of the norm in front of the first block: a gain that shuts it, or none, counts as 1.
        names = stack.norm_uses[0].parameters if stack.norm_uses else ()
        gain = (
            next((gain.total for gain in patient.observed.norm_gains if gain.name in names), 1.0)
            or 1.0
        )
        module = patient.model.get_submodule(names[0].rpartition(".")[0] if names else "")
        own = [getattr(module, name, None) for name in ("eps", "variance_epsilon")]
        epsilon = next((one for one in own if isinstance(one, float)), stack.norm_epsilon)
        # Divided by √(s + ε), a mean square of s becomes s / (s + ε), times the square of the gain.
        square = stack.source_square / gain**2
        if stack.embedding_norm and epsilon and 0 < square <= 1 / (1 + SWAMPED):
            read = epsilon * square / (1 - square)
            # A sum of few embeddings has about that mean square; else a factor behind the norm
            # makes it as small.
            tables = [
                one.weight for one in patient.model.modules() if isinstance(one, torch.nn.Embedding)
            ]
            if not any(read / 4 <= mean_square(one.detach()) <= 4 * read for one in tables):
                continue
            yield Fault(
                where=names if stack.norm_uses else stack.name,
                message=f"the norm of the embedding adds ε = {epsilon:.2g} to a mean square of "
                f"{read:.2g}, so that the stream starts at {square**0.5:.2g} times what a norm "
                "gives",
                fix=_LARGER,
            )
    for stack in patient.stacks:
        epsilon, squares = (
            stack.norm_epsilon or 0.0,
            [(_normed_square(one), one) for one in stack.sublayers],
        )
        small = [(square, one) for square, one in squares if square and epsilon / square >= SWAMPED]
        if small:
            square, sublayer = min(small, key=lambda pair: pair[0])
            yield Fault(
                where=[one for _, one in small],
                message=f"the norm at {sublayer.name} adds ε = {epsilon:.2g} to a mean square of "
                f"{square:.2g}, so that its output is {(1 + epsilon / square) ** -0.5:.2g} "
                "times what a norm gives",
                fix=_LARGER,
            )


_LARGER = (
    "draw the embedding, or the weights before this norm, larger, or take a smaller ε (1e-12 holds "
    "in float32 and bfloat16)"
)


def _normed_square(sublayer: Sublayer) -> float | None:
    """Returns the mean square of what the sub-layer's norm on the stream reads; None where none is
    certain to read the stream.
    """
    if sublayer.formula.sum_is_normed:
        return sublayer.measured.sum_square
    return sublayer.measured.stream_square if sublayer.formula.reads_norm else None
