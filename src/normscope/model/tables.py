"""Tables with a row a token: of the embedding, and of an output projection of its own."""

# V = vocabulary, D = width
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..placement import Placement
from .initialisation import Drawable, Scheme, draw_bert


class Table(Drawable):
    """A (V, D) table, whose rows the placement may keep at length 1."""

    def __init__(self, vocabulary: int, width: int, placement: Placement) -> None:
        super().__init__()
        self.placement = placement
        self.weight = nn.Parameter(torch.empty(vocabulary, width))

    def unit_vectors(self) -> Iterator[tuple[Tensor, int]]:
        if "embedding" in self.placement.unit_vectors:
            yield self.weight, self.placement.unit_vectors["embedding"]


class OutputTable(Table):
    """Rows that meet the last hidden states, drawn as the embedding of a model of text is."""

    role: ClassVar[str] = "head"

    def draw(self, scheme: Scheme) -> None:
        draw_bert(self.weight, self.placement.embedding_gain())
