"""How several streams are connected with a sub-layer, as plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWeights:
    """Weights between streams."""

    made: str
    """constant, trained, or token where they are made anew for every token."""
    total: float | None
    """What streams that are all equal are multiplied with, the mean over tokens; None where nothing was computed."""
    by_feature: bool
    """Whether every feature has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Of a sub-layer with several streams that are kept in one tensor."""

    read: StreamWeights | None
    """What they are multiplied with in what the sub-layer reads; None where it reads no sum of them."""
    mixing: StreamWeights | None
    """What they are mixed with; None where each goes on as it is."""
    write: StreamWeights
    """What the sub-layer's output is multiplied with where it is added to each."""
    from_doubly_stochastic: float | None
    """The largest difference of a sum of the mixing's rows or columns from 1, or its largest negative weight."""
    one_side_alone: float | None
    """How far rows' sums are from 1 where all columns' are 1, or the other way round; None of any other mixing."""
    unwritten: tuple[int, ...]
    """Which streams, counted from 1, get none of the sub-layer's output."""
