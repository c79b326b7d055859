"""Which sub-layer a norm was trained in front of or behind: what its gains and shifts have in common with weights."""

# D = width of the stream
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

import torch
from torch import Tensor

from .matrices import parameters_by_name
from .rules import Patient
from .vectors import norm_parameters

FEWEST = 4
"""Sub-layers with another after them, below which there is too little to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Of the norms of a stack, sub-layer by sub-layer but for the last."""

    own: tuple[float, ...]
    """Correlation, over features, of the gains of the sub-layer's norm with the sizes of the columns of the matrices
    that read its input. Training makes them grow together where the norm stands in front of these matrices: for
    y = W (γ ∘ n) the gradient flow keeps γ_i² - ‖W_:i‖² (Du et al. 2018, arXiv:1806.00900, for layers in a row)."""
    following: tuple[float, ...]
    """The same with the matrices of the sub-layer after it, in front of which the norm of Post-LN stands."""

    shifts: float | None
    """Mean correlation of a norm's shifts with the biases that its own sub-layer adds to the stream. Where the norm
    stands behind the sum, as in Post-LN, the loss's gradients with respect to the two are one vector, but for the
    norm's Jacobian between them, and both start at 0; elsewhere nothing ties them. None without shifts or biases."""

    @property
    def difference(self) -> float:
        """Above 0 where norms were trained in front of their own sub-layers, as Pre-LN's; below 0 for Post-LN's."""
        return fmean(self._differences)

    @property
    def certainty(self) -> float:
        """How many of its standard errors, over sub-layers, the difference is from 0."""
        error = stdev(self._differences) / sqrt(len(self._differences))
        return abs(self.difference) / error if error else float("inf")

    @property
    def _differences(self) -> list[float]:
        return [a - b for a, b in zip(self.own, self.following, strict=True)]


def alignment(patient: Patient, number: int) -> Alignment | None:
    """Of one stack; None where it is not known which norm belongs to which sub-layer, or there are too few."""
    stack, weights = patient.stacks[number], parameters_by_name(patient)
    matrices = [sublayer.measured.matrices for sublayer in stack.sublayers]
    columns = [_columns([weights[name] for name in names if name in weights], stack.width) for names in matrices]
    norms = _norms(patient, stack.name, stack.width)
    gains = [vectors[0].abs() for vectors in norms]
    if len(gains) != len(columns) or len(columns) <= FEWEST or any(one is None for one in columns):
        return None
    sizes = [one for one in columns if one is not None]
    return Alignment(
        own=tuple(map(_correlation, gains[:-1], sizes[:-1])),
        following=tuple(map(_correlation, gains[:-1], sizes[1:])),
        shifts=_shifts(norms, [_bias(weights, names, stack.width) for names in matrices]),
    )


def _norms(patient: Patient, path: str, width: int) -> list[list[Tensor]]:
    """The vectors of norms in the blocks of a stack, gains first, in the order in which the norms were built."""
    modules: dict[str, list[Tensor]] = {}
    for name, parameter in norm_parameters(patient.model).items():
        inside = name.removeprefix(f"{path}.") if path else name
        numbered = any(part.isdigit() for part in inside.split(".")[:-1])
        if name.startswith(path) and numbered and parameter.numel() == width:
            # A norm's shift comes after its gain.
            modules.setdefault(name.rpartition(".")[0], []).append(parameter.detach())
    return list(modules.values())


def _bias(weights: Mapping[str, Tensor], matrices: Sequence[str], width: int) -> Tensor | None:
    """What the last matrix of a sub-layer has beside it to be added to every token."""
    path, _, last = matrices[-1].rpartition(".")
    beside = [w for name, w in weights.items() if name.rpartition(".")[0] == path and name != f"{path}.{last}"]
    found = [vector.detach() for vector in beside if vector.shape == (width,)]
    return found[0] if len(found) == 1 else None


def _shifts(norms: Sequence[Sequence[Tensor]], biases: Sequence[Tensor | None]) -> float | None:
    pairs = [(norm[1], b) for norm, b in zip(norms, biases, strict=True) if len(norm) == 2 and b is not None]
    return fmean(_correlation(*pair) for pair in pairs) if len(pairs) == len(norms) else None


def _columns(matrices: list[Tensor], width: int) -> Tensor | None:
    """(D): the size of what reads each feature of the input, over all matrices but the last, which makes the output."""
    reading = [matrix.detach().double() for matrix in matrices[:-1] if matrix.ndim == 2 and width in matrix.shape]
    if not reading:
        return None
    squares = [m.square().sum(0) if m.shape[1] == width else m.square().sum(1) for m in reading]
    return torch.stack(squares).sum(0).sqrt()


def _correlation(some: Tensor, others: Tensor) -> float:
    a, b = some.double(), others.double()
    a, b = a - a.mean(), b - b.mean()
    return float((a @ b) / (a.norm() * b.norm()).clamp_min(1e-30))
