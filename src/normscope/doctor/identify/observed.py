"""A stream's formula as it was observed, before any placement is looked for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..find.branches import Branch
from ..find.formulas import Formula
from ..find.segments import Segment, scales
from ..find.streams import Stream
from ..find.terms import Term, ordered
from ..record import Sublayer
from .lanes import is_doubly_stochastic
from .matching import matches


@dataclass(frozen=True, kw_only=True)
class StreamFormula:
    """A stream's formula in segments, with what else is known of it."""

    stream: Stream
    segments: list[Segment]
    lanes: list[Segment] = field(default_factory=list)
    """The blocks of a model that keeps several streams in one value, each with a formula for every
    stream.
    """

    @cached_property
    def branches(self) -> Mapping[int, Branch]:
        """The branches by their numbers in the formula."""
        return dict(enumerate(self.stream.branches, -self.stream.before))

    @cached_property
    def norm(self) -> str:
        """The commonest of the stream; "" without any."""
        return commonest([name for name, _ in self.stream.norms])

    @property
    def embedding_norm(self) -> bool:
        return self.segments[0].start.kind == "norm"

    @cached_property
    def doubly_stochastic(self) -> bool | None:
        """True where streams are mixed by matrices whose rows and columns sum to 1; None where that
        is not known.
        """
        found = set()
        for term in ordered(self.stream.formula):
            if term.kind == "connect" and term.weights:
                found.add(is_doubly_stochastic(term.weights))
        if False in found:
            return False
        return True if found == {True} else None

    @property
    def last(self) -> Segment:
        return self.segments[-1]

    @cached_property
    def ends_as_before(self) -> bool:
        """True where the last segment matches earlier ones, so that a norm at its end belongs to
        the block.

        Not where more of them are as it is without that norm: one block whose skip is normed has
        the same end.
        """

        def as_earlier(last: Segment) -> int:
            return sum(matches(last, earlier, qk_norms=False) for earlier in self.segments[:-1])

        bare = self.last.end.kind == "norm" and self.last.end.arguments[0] is not self.last.start
        without = as_earlier(replace(self.last, end=self.last.end.arguments[0])) if bare else 0
        return as_earlier(self.last) > without

    @cached_property
    def one_norm(self) -> frozenset[bool]:
        """The answers found in the blocks: whether branches side by side read one norm, which is
        known by its gain; both answers where norms have no gain.

        Empty where no branches stand side by side.
        """
        found: set[bool] = set()
        for segment in self.segments:
            if segment.side_by_side:
                gains = [self.branches[branch.branch].gains for branch in segment.branches]
                found |= {len(set(gains)) == 1} if all(gains) else {True, False}
        return frozenset(found)

    def endings(self) -> list[Segment]:
        """Returns the last segment as it is, and without the norms at its end, unless these belong
        to the block.

        What makes one value of several streams goes with them.
        """
        found = [self.last]
        while (
            not self.ends_as_before
            and found[-1].end.kind in ("norm", "collapse")
            and found[-1].end.arguments[0] is not self.last.start
        ):
            found.append(replace(self.last, end=found[-1].end.arguments[0]))
        return found


def observed_sublayer(
    segment: Segment, term: Term, branch: Branch, *, shown: Segment, block: int
) -> Sublayer:
    """Returns a sub-layer as it stands in its stream, before any placement is looked for."""
    skip, scale = scales(segment, term)
    return Sublayer(
        name=branch.name,
        kind=branch.kind,
        block=block,
        placement="",
        also=(),
        confidence="unsure",
        formula=Formula(shown, term),
        skip_scale=skip,
        branch_scale=scale,
        parallel=False,
    )


def without_end(segment: Segment, *, final_norm: bool) -> Segment:
    """Returns a segment without the norm at its end, and without the step that makes one value of
    several streams there.
    """
    around, end = [], segment.end
    while end is not segment.start and end.kind in ("norm", "collapse"):
        around.append(end.kind)
        end = end.arguments[0]
    if "collapse" in around:
        return replace(segment, end=end)
    return replace(segment, end=segment.end.arguments[0]) if final_norm and around else segment


def commonest(names: Sequence[str]) -> str:
    """Returns the one that comes most often, the first of equals; "" of none."""
    return Counter(names).most_common(1)[0][0] if names else ""
