"""The norms a formula can be read with, and the group of them that one sub-layer owns."""

# D = width
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..placement.base import SQUASHING_SLOPE
from ..placement.operations import unit


class RMSNorm(nn.RMSNorm):
    """torch's, in float32 under autocast, which casts for LayerNorm only and warns of RMSNorm's mixed dtypes."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(_at_least_float32(x))


class ScaleNorm(nn.Module):
    """g x / ‖x‖ with one trainable number g, √D at first (Nguyen & Salazar 2019, eq. 4)."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.tensor(float(width) ** 0.5))

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.weight * functional.normalize(_at_least_float32(x), dim=-1, eps=self.epsilon)
        return normed


class SphereNorm(nn.Module):
    """√D x / ‖x‖, without parameters: RMSNorm without a gain (Loshchilov et al. 2024, section 2, at radius √D)."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.radius = float(width) ** 0.5

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.radius * _unit(x)
        return normed


class DynamicTanh(nn.Module):
    """DyT, γ tanh(αx) + β with one α for all features and no statistics of x (Zhu et al. 2025, arXiv:2503.10622)."""

    role: ClassVar[str] = "norm"

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), SQUASHING_SLOPE))
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.tanh(self.alpha * x) + self.bias


class DynamicErf(DynamicTanh):
    """Derf, γ erf(αx + s) + β (Chen et al. 2025, arXiv:2512.10938), α and s one number each; s starts from 0."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__(width, epsilon)
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.erf(self.alpha * x + self.shift) + self.bias


NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "layer-norm": lambda width, epsilon: nn.LayerNorm(width, eps=epsilon),
    "rms-norm": lambda width, epsilon: RMSNorm(width, eps=epsilon),
    "scale-norm": ScaleNorm,
    "sphere-norm": SphereNorm,
    "dyt": DynamicTanh,
    "derf": DynamicErf,
}


class Grouped(nn.Module):
    """A norm that can also be applied to equal parts of x, each on its own: queries and keys by head."""

    def __init__(self, norm: nn.Module, width: int) -> None:
        super().__init__()
        self.each, self.width = norm, width

    def forward(self, x: Tensor, groups: int = 1) -> Tensor:
        parts: Tensor = self.each(x.view(*x.shape[:-1], groups, self.width))
        return parts.flatten(-2)


class NormGroup(nn.Module):
    """The norms one sub-layer owns, by the names its formula gives them; calling the group applies `main`."""

    def __init__(self, widths: dict[str, int], make: Callable[[int], nn.Module], grouped: frozenset[str]) -> None:
        super().__init__()
        for name, width in widths.items():
            self.add_module(name, Grouped(make(width), width) if name in grouped else make(width))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...  # type: ignore[override]

    def forward(self, x: Tensor, **groups: int) -> Tensor:
        return self.main(x, **groups)  # type: ignore[no-any-return]


def _at_least_float32(x: Tensor) -> Tensor:
    """A norm's sum of squares is not for bfloat16; torch's own norms see to that themselves."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _unit(x: Tensor) -> Tensor:
    x = _at_least_float32(x)
    length = x.norm(dim=-1, keepdim=True)
    # A padding row, or a branch whose ReLUs are all shut: it stays 0, with a derivative of 1 where x / ‖x‖ has none.
    direction: Tensor = x / torch.where(length > 0, length, 1.0)
    return direction


unit.register(Tensor, _unit)
