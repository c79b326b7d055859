"""Initial weights: what draws them into a model, in the order of its modules."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from ..placement import Placement
from ..placement.schemes import BERT, SCHEMES as SCHEMES, Draw as Draw, Scheme as Scheme


class Drawable(nn.Module):
    """A module that says how a scheme draws its weights, and which of them its placement keeps at
    length 1.
    """

    def draw(self, scheme: Scheme) -> None:
        """Draw every weight of its own from torch's global generator."""
        raise NotImplementedError

    def unit_vectors(self) -> Iterator[tuple[Tensor, int]]:
        """Weights whose vectors the placement keeps at length 1, and the dimension along which they
        lie.
        """
        yield from ()


@torch.no_grad()
def initialise(model: nn.Module, scheme: str, placement: type[Placement]) -> None:
    """Draw every weight of `model` from torch's global generator, in the order of its modules.

    scheme: a name of SCHEMES, or `as-placement` for the one the placement's source uses. The
    padding row of an embedding is 0, and norms and the placement's own parameters keep the values
    they start with. Raises KeyError for a name that is neither.
    """
    table = SCHEMES[placement.initialisation if scheme == "as-placement" else scheme]
    for module in model.modules():
        if isinstance(module, Drawable):
            module.draw(table)
    renormalise(unit_vectors(model))


def fill(weight: Tensor, draw: Draw, gain: float = 1.0) -> None:
    """Draw a matrix from torch's global generator."""
    size = draw.size(gain, *weight.shape)
    if draw.of == "normal":
        nn.init.normal_(weight, std=size)
    elif draw.of == "uniform":
        nn.init.uniform_(weight, -size, size)
    elif draw.of == "zeros":
        nn.init.zeros_(weight)
    else:
        nn.init.eye_(weight)
        weight.mul_(gain)


def draw_bert(weight: Tensor, gain: float = 1.0) -> None:
    """N(0, 0.02²), the way tables without a √d and heads are drawn whatever the scheme."""
    fill(weight, BERT, gain)


def unit_vectors(model: nn.Module) -> list[tuple[Tensor, int]]:
    """Returns the weights whose vectors the model's placements keep at length 1, and the dimension
    along which they lie.
    """
    return [
        found
        for module in model.modules()
        if isinstance(module, Drawable)
        for found in module.unit_vectors()
    ]


@torch.no_grad()
def renormalise(vectors: Iterable[tuple[Tensor, int]]) -> None:
    """Scales the vectors that `unit_vectors` found back to length 1; it belongs after every
    update.
    """
    for weight, dimension in vectors:
        # A row of padding stays 0: it is divided by ε alone.
        weight.copy_(nn.functional.normalize(weight, dim=dimension))
