"""The attentions of a model that exists, of which norms on queries and keys are asked."""

from collections.abc import Sequence

from torch import nn

from ...doctor.attended import AttentionMeasurements
from ...doctor.record import Stack, Sublayer
from ..following import TransplantRefused
from ..placed import ATTENTION, PLACED, SCORES, swap_back

SIDES = ("query", "key")
ATTENDING = ("attention", "cross_attention")

Attending = Sequence[tuple[Stack, Sublayer]]
"""Each attention, with the stack that it is of."""


def understood(stack: Stack, sublayer: Sublayer) -> AttentionMeasurements:
    """Returns what was seen of an attention whose queries and keys are not normed. Raises
    TransplantRefused.
    """
    seen = sublayer.measured.attention
    where = sublayer.name or stack.name or "the model"
    if seen is None:
        raise TransplantRefused(
            f"{where}: where its queries and keys meet is not understood, so that nothing can be "
            "put before that"
        )
    if seen.normed:
        raise TransplantRefused(
            f"{where}: its {' and '.join(seen.normed)} are normalised already; the doctor reads "
            f"{sublayer.formula}"
        )
    return seen


def take_norms(module: nn.Module) -> None:
    """Give a module that was given norms of queries and keys its own class again."""
    name = SCORES if type(module).swapped_kind == ATTENTION else PLACED  # type: ignore[attr-defined]
    swap_back(module)
    delattr(module, name)


def plural(side: str) -> str:
    return {"query": "queries", "key": "keys"}[side]
