"""The parts of a formula in a model: its norms, its parameters, and the operations that Python does
not write.

Numbers of a formula may follow a schedule over updates.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ..placement import operations
from ..placement.base import SQUASHING_SLOPE
from ..placement.symbol import ParameterSpec
from .initialisation import Drawable, Scheme

# N = tokens, D = width, R = rows of a weight


class RMSNorm(nn.RMSNorm):
    """torch's, in float32 under autocast, which casts for LayerNorm only and warns of RMSNorm's
    mixed dtypes.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(_at_least_float32(x))


class ScaleNorm(nn.Module):
    """g x / ‖x‖ with one trainable number g, √D at first (Nguyen & Salazar 2019, eq. 4)."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.tensor(float(width) ** 0.5))

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.weight * nn.functional.normalize(
            _at_least_float32(x), dim=-1, eps=self.epsilon
        )
        return normed


class SphereNorm(nn.Module):
    """√D x / ‖x‖, without parameters: RMSNorm without a gain (Loshchilov et al. 2024, section 2, at
    radius √D).
    """

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.radius = float(width) ** 0.5

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.radius * _unit(x)
        return normed


class _DynamicTanh(nn.Module):
    """DyT, γ tanh(αx) + β with one α for all features and no statistics of x (Zhu et al. 2025,
    arXiv:2503.10622).
    """

    role: ClassVar[str] = "norm"

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), SQUASHING_SLOPE))
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.tanh(self.alpha * x) + self.bias


class _DynamicErf(_DynamicTanh):
    """Derf, γ erf(αx + s) + β (Chen et al. 2025, arXiv:2512.10938), α and s one number each; s
    starts from 0.
    """

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
    "dyt": _DynamicTanh,
    "derf": _DynamicErf,
}


class Grouped(nn.Module):
    """A norm that can also be applied to equal parts of x, each on its own: queries and keys by
    head.
    """

    def __init__(self, norm: nn.Module, width: int) -> None:
        super().__init__()
        self.each, self.width = norm, width

    def forward(self, x: Tensor, groups: int = 1) -> Tensor:
        parts: Tensor = self.each(x.view(*x.shape[:-1], groups, self.width))
        return parts.flatten(-2)


class NormGroup(nn.Module):
    """The norms one sub-layer owns, by the names its formula gives them; calling the group applies
    `main`.
    """

    def __init__(
        self, widths: dict[str, int], make: Callable[[int], nn.Module], grouped: frozenset[str]
    ) -> None:
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
    # A padding row, or a branch whose ReLUs are all shut: it stays 0, with a derivative of 1 where
    # x / ‖x‖ has none.
    direction: Tensor = x / torch.where(length > 0, length, 1.0)
    return direction


operations.unit.register(Tensor, _unit)


class PlacedParameters(nn.ParameterDict, Drawable):
    """The formula's parameters of one place by name, each where it starts until it is drawn."""

    role: ClassVar[str] = "gate"

    def __init__(self, specs: Mapping[str, ParameterSpec]) -> None:
        super().__init__({name: nn.Parameter(_first(spec)) for name, spec in specs.items()})
        self.specs = dict(specs)

    @torch.no_grad()
    def restart(self, name: str) -> None:
        """Resets a parameter to its start, as if it had not been drawn."""
        self[name].copy_(_first(self.specs[name]))

    def draw(self, scheme: Scheme) -> None:
        """Draws the parameters that start from a normal distribution; all others keep their values,
        whatever the scheme.
        """
        for name, spec in self.specs.items():
            if spec.std:
                start = _first(spec).to(self[name])
                nn.init.normal_(self[name], std=spec.std)
                self[name].add_(start)


def _first(spec: ParameterSpec) -> Tensor:
    if isinstance(spec.initial, tuple):
        return torch.tensor(spec.initial, dtype=torch.get_default_dtype())
    return torch.full(spec.shape, spec.initial)


@operations.mix.register
def _mix(
    query_D: Tensor,
    values: Sequence[Tensor],
    key: Callable[[Tensor], Any],
    value: Callable[[Tensor], Any] | None = None,
) -> Tensor:
    values_IND = torch.stack(list(values))  # N may be several dimensions
    weights_IN = (key(values_IND) @ query_D.to(values_IND.dtype)).softmax(0)
    read_IND = value(values_IND) if value else values_IND
    return torch.einsum("i...,i...d->...d", weights_IN.to(values_IND.dtype), read_IND)


operations.sigmoid.register(Tensor, torch.sigmoid)
operations.tanh.register(Tensor, torch.tanh)
operations.at_most_1.register(Tensor, lambda x: x.clamp(max=1.0))
operations.silu.register(Tensor, nn.functional.silu)
operations.softplus.register(Tensor, nn.functional.softplus)
operations.stopped.register(Tensor, Tensor.detach)


@operations.by_head.register
def _by_head(x: Tensor, numbers: Tensor) -> Tensor:
    heads = x.view(*x.shape[:-1], len(numbers), -1) * numbers.unsqueeze(-1)
    return heads.flatten(-2)


@operations.joined.register
def _joined(x: Tensor, *others: Tensor, epsilon: float = 1e-6) -> Tensor:
    together = torch.cat([x, *others], -1)
    return nn.functional.rms_norm(together, together.shape[-1:], eps=epsilon)


@operations.beside.register
def _beside(x: Tensor, *others: Tensor) -> Tensor:
    return torch.cat([x, *others], -1)


@operations.connect.register
def _connect(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | float = 0.0,
    scale: Tensor | float = 1.0,
    *,
    name: str = "",
) -> tuple[Tensor, ...]:
    """Numbers (N, 1), or (N, F) of a weight that has F features."""
    rows, *features, width = weight.shape
    logits = nn.functional.linear(x, weight.reshape(-1, width))
    logits = logits.view(*x.shape[:-1], rows, *(features or (1,))) * scale
    if isinstance(bias, Tensor):
        bias = bias.unsqueeze(-1)
    return tuple((logits + bias).unbind(-2))


@operations.sinkhorn.register
def _sinkhorn(
    first: Tensor, logits: tuple[Tensor, ...], rounds: int, epsilon: float
) -> tuple[tuple[Tensor, ...], ...]:
    # Tokens last, so that sums over rows and columns run over long vectors.
    size = math.isqrt(len(logits))
    stacked = torch.stack([logit.squeeze(-1) for logit in logits])
    matrix = stacked.view(size, size, *stacked.shape[1:]).softmax(1)
    matrix = matrix + epsilon if epsilon else matrix
    matrix = matrix / (matrix.sum(0) + epsilon)
    for _ in range(rounds - 1):
        matrix = matrix / (matrix.sum(1, keepdim=True) + epsilon)
        matrix = matrix / (matrix.sum(0) + epsilon)
    # One entry for all features.
    matrix = matrix.unsqueeze(-1)
    return tuple(row.unbind(0) for row in matrix.unbind(0))


class Schedules(nn.Module):
    """A stack's scheduled numbers by name, as buffers: a checkpoint keeps them, an optimiser does
    not see them.
    """

    def __init__(self, initial: Mapping[str, float]) -> None:
        super().__init__()
        for name, value in initial.items():
            self.register_buffer(name, torch.tensor(value))

    def value(self, name: str) -> Tensor:
        """Returns the number, a tensor without dimensions."""
        return self.get_buffer(name)


def scheduled_numbers(model: nn.Module) -> dict[str, list[Tensor]]:
    """Returns every scheduled number of a model by its name in the formula, once for each of its
    stacks.
    """
    found: dict[str, list[Tensor]] = {}
    for module in model.modules():
        if isinstance(module, Schedules):
            for name, buffer in module.named_buffers():
                found.setdefault(name, []).append(buffer)
    return found


def set_scheduled(numbers: Mapping[str, Iterable[Tensor]], value: float) -> None:
    """Sets all of them to `value`."""
    for buffers in numbers.values():
        for buffer in buffers:
            buffer.fill_(value)
