"""The sub-layers of a stream in blocks, from their kinds alone."""

from collections.abc import Sequence
from itertools import pairwise

from .branches import BranchKind

Blocks = tuple[tuple[BranchKind, ...], ...]
"""The kinds of every block's sub-layers, in order."""

_MIXING = ("attention", "convolution", "mixer")


def cut_in_blocks(kinds: Sequence[BranchKind]) -> Blocks:
    """Blocks that are all alike where there are such: attention, convolutions and mixers may take each other's places.

    Otherwise a block ends where a feed-forward does and something else follows. One block where nothing repeats.
    """
    places = ["mixing" if kind in _MIXING else kind for kind in kinds]
    # Stacks without feed-forwards alternate between ways of mixing: what they have in common says nothing of blocks.
    length = _period(places if "feed_forward" in places else kinds)
    if length < len(kinds):
        starts = list(range(0, len(kinds), length))
    else:
        after = pairwise(places)
        starts = [0, *(n for n, (one, two) in enumerate(after, 1) if one == "feed_forward" != two)]
    ends = [*starts[1:], len(kinds)]
    return tuple(tuple(kinds[start:end]) for start, end in zip(starts, ends, strict=True))


def _period(some: Sequence[str]) -> int:
    """Length of the shortest run whose repetition is the whole."""
    every = range(1, len(some) + 1)
    return next(n for n in every if len(some) % n == 0 and list(some[:n]) * (len(some) // n) == list(some))
