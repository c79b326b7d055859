"""The measurements of attention at work."""

import math
from dataclasses import dataclass
from typing import Literal

PlaceLogits = Literal[
    "",
    "none",
    "queries",
    "keys",
    "sums",
    "farther",
    "heads",
    "unmatched",
    "uneven",
    "one turn",
    "one pair",
    "apart",
]
"""The dependence of logits on places: on nothing, the query's place alone, the key's alone, the sum
of both places, the distance, with which they grow, no place but the head, by which queries are
turned, the place where queries and keys have the same one, in which both are turned differently,
steps between neighbours that are not equal, one angle that all channels are turned by, one pair of
channels that turns alone, places in any other way; "" where that is not known.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMeasurements:
    """Attention of one sub-layer at work; means are over queries, those with few keys apart."""

    head_width: int
    keys: float = math.nan
    """The mean number of keys that a query may look at."""
    all_keys: int = 0
    """The number of keys, those that masks hide included."""
    deviation: float = math.nan
    """The standard deviation of a query's logits over its keys, without biases and masks."""
    entropy: float = math.nan
    """The entropy of its weights over ln(keys): 1 is a plain mean, near 0 it copies one token."""
    largest: float = math.nan
    """The largest of its weights."""
    scale: float | None = None
    """The number that products of queries and keys are multiplied with; None where it is trained,
    or not known.
    """
    normed: tuple[str, ...] = ()
    """The ones of queries and keys that have a norm after the matrix that makes them."""
    normed_wrong: tuple[str, ...] = ()
    """The ones of queries and keys whose norm takes its statistics over other dimensions than a
    head's features.
    """
    of_many_lengths: tuple[str, ...] = ()
    """The ones of queries and keys that have no common length: more than half of their vectors, one
    for each token and head, are off the median by 1 % or more. A norm of each head gives them one.
    """
    unnormed: tuple[str, ...] = ()
    """The ones of queries, keys and values that are made from a value whose norm others of them are
    made from.
    """
    query_size: float = math.nan
    """Root mean square of an entry, without what `scale` holds."""
    key_size: float = math.nan
    drawn: float | None = None
    """The size of a logit as the matrices of queries and keys make it, over its size with two
    matrices like that of values; None where these are not known.
    """
    wrong_axis: str = ""
    """Along which dimension its softmax sums to 1, where that is not the one that values are
    weighed along.
    """
    sees_later: float | None = None
    """Share of the queries that look at a later token, of those that have one; None where keys are
    no such tokens.
    """
    sees_earlier: float | None = None
    sees_itself: float | None = None
    hides_as_later: bool = False
    """True for cross-attention in which a query looks at keys up to its own place alone, as tokens
    look at their own sequence.
    """
    on_padding: float | None = None
    """Mean weight on tokens that the batch's mask says are none; None without a mask with any such
    token.
    """
    farthest: int | None = None
    """Places between a token and the farthest that it looks at; None where not known."""
    place_logits: PlaceLogits | None = None
    """The dependence of logits on places, measured with identical tokens; None where it was not
    measured, or is not understood.
    """
    places_in_values: bool = False
    """True where a value that is weighted depends on its place."""
    unread_groups: int = 0
    """The number of groups that no head reads, where several heads share keys and values."""
    groups_apart: bool = False
    """True where heads that share their keys share their values with other heads."""
