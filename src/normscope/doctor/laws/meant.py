"""The knowledge of places that a model is meant to have, read from how places enter it and how far
its attention looks.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from ..attended import AttentionMeasurements
from ..measured import ModelMeasurements
from ..record import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesMeant:
    """The places that a model is meant to know; no field is filled where that is not known."""

    absolute: bool = False
    """True where places are added to the stream, or rows of a table are called after them."""
    only_by_table: bool = False
    """True where these are the only source of places: attention is known to know nothing of
    them.
    """
    relative: bool = False
    """True where attention of every block knows the distance of tokens, and nothing else knows of
    places: then identical tokens give identical outputs, wherever they stand.
    """
    keys: int = 0
    """Tokens that each attention has for keys; 0 where that is not one number, or where anything
    but attention and feed-forwards is joined to the stream."""
    farthest: int = 0
    """Places that a chain of all blocks' attention looks, from the last block to the first."""
    looks: bool = False
    """True where every attention looks at other tokens than its own."""


def places_meant(model: nn.Module, stacks: Sequence[Stack], seen: ModelMeasurements) -> PlacesMeant:
    """Reads the places that a model is meant to know; of a model with several stacks, only whether
    it has absolute places.
    """
    absolute = seen.positions_along is not None or has_table(model)
    known = _attentions(stacks)
    if not known:
        return PlacesMeant(absolute=absolute)
    keys = {one.all_keys for one in known}
    logits = [one.place_logits for one in known if one.place_logits is not None]
    by_distance = [one in _BY_DISTANCE for one in logits]
    return PlacesMeant(
        absolute=absolute,
        only_by_table=absolute and bool(logits) and {*logits} == {"none"},
        relative=not absolute and bool(by_distance) and all(by_distance),
        keys=keys.pop() if len(keys) == 1 else 0,
        farthest=sum(one.farthest or 0 for one in known),
        looks=all(one.farthest for one in known),
    )


_BY_DISTANCE = frozenset({"apart", "unmatched", "one turn", "one pair", "farther"})
"""The values of `PlaceLogits` that depend on the distance."""
_PLAIN = frozenset({"attention", "feed_forward"})


def _attentions(stacks: Sequence[Stack]) -> list[AttentionMeasurements]:
    """Returns the attention measurements of a model of one stack in which nothing but attention
    mixes tokens; an empty list for others.
    """
    if len(stacks) != 1 or any(one.kind not in _PLAIN for one in stacks[0].sublayers):
        return []
    known = [one.measured.attention for one in stacks[0].sublayers if one.kind == "attention"]
    if any(one is None or one.farthest is None for one in known):
        return []
    return [one for one in known if one is not None]


_TABLE = re.compile(
    r"(^|[._])(wpe|pe|pos(ition)?(al)?s?(_?(emb|enc)\w*|_table)?)(\.|$)", re.IGNORECASE
)


def has_table(model: nn.Module) -> bool:
    """Tells whether a matrix with different rows is named after positions."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    return any(
        _TABLE.search(name.removesuffix(".weight"))
        and "rel" not in name.lower()
        and x.is_floating_point()
        and x.ndim > 1
        and x.shape[-2] > 1
        and bool((x.detach() != x.detach()[..., :1, :]).any())
        for name, x in tensors
    )
