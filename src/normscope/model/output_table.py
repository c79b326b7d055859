"""An output projection that is not the embedding's table."""

# V = vocabulary, D = width
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..placement import Placement
from .initialisation import Drawable, Scheme, draw_bert


class OutputTable(Drawable):
    """A (V, D) table whose rows meet the last hidden states, drawn as the embedding of a model of text is."""

    role: ClassVar[str] = "head"

    def __init__(self, vocabulary: int, width: int, placement: Placement) -> None:
        super().__init__()
        self.placement = placement
        self.weight = nn.Parameter(torch.empty(vocabulary, width))

    def draw(self, scheme: Scheme) -> None:
        draw_bert(self.weight, self.placement.embedding_gain())

    def unit_vectors(self) -> Iterator[tuple[Tensor, int]]:
        if "embedding" in self.placement.unit_vectors:
            yield self.weight, self.placement.unit_vectors["embedding"]
