"""How far one step of the optimiser moves the weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Moved:
    """Frobenius norms by parameter."""

    before: Mapping[str, float]
    """Of the weights before the step."""
    update: Mapping[str, float]
    """Of what the step added to them."""


class Step:
    """Weights as they are before a step of the optimiser: one copy of those that are asked about."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        wanted = frozenset(names)
        self._weights = {name: p for name, p in model.named_parameters() if name in wanted}
        self._copies = {name: weight.detach().clone() for name, weight in self._weights.items()}

    @torch.no_grad()
    def moved(self) -> Moved:
        """How far the weights are from where they were."""
        changes = {name: weight.detach() - self._copies[name] for name, weight in self._weights.items()}
        return Moved(before=_norms(self._copies), update=_norms(changes))


def _norms(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    found = [torch.linalg.vector_norm(tensor, dtype=torch.float32) for tensor in tensors.values()]
    # One transfer for all of them.
    values = torch.stack([norm.cpu() for norm in found]).tolist() if found else []
    return dict(zip(tensors, values, strict=True))
