"""The linear layers of sub-layers and heads, and dropout: what a CPU does faster than torch's own
way.

Two libraries compute products in float32. torch's default, MKL, reaches 40 % of the peak of an AMD
CPU, oneDNN 80 to 90 %. But on processors with AVX-512 oneDNN compiles a product for every shape and
keeps it, half a megabyte each, and batches differ in their numbers of rows: memory would grow for
hundreds of updates. So oneDNN gets the products that have a use for it, and of these a round number
of rows; what is left over goes to MKL, for which a shape costs nothing. Dropout draws its masks
four to a random number, where torch's own draws one element at a time.
"""

import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .initialisation import Drawable, Scheme, draw_bert

# N = rows, K = what is summed over, M = columns, D = width


FP32_ERROR_BOUND = 2.0**-16
"""Largest relative error (Frobenius norm, against float64) that still counts as a float32 product.

Sums of K = 512 random terms in float32 err by about √K · 2^-24 = 2^-19.5 at most. Factors rounded
to TF32 or bfloat16 err by 2^-11.4 and 2^-8.4, whatever K is: the bound lies well between.
"""
LEAST_MULTIPLICATIONS = 1 << 26
"""The least size of a product for oneDNN, which takes a millisecond or two: in smaller ones, calls
cost what is gained.
"""


@dataclass(frozen=True, slots=True)
class _FastMatmul:
    """The state of float32 products: whether they go through oneDNN, and the relative error found
    there (None where it was not tried).
    """

    on: bool
    error: float | None


class _Process:
    """The decision of `fast_matmul` for this process."""

    onednn = False


def fast_matmul(device: torch.device) -> _FastMatmul:
    """Has oneDNN compute the large float32 products of this process if they stay float32 there.

    Not on Intel's processors, where MKL is the faster. torch's name for the route is
    `fp32_precision = "bf16"`, the permission to compute in bfloat16. oneDNN uses that permission
    only where it pays, which is where the CPU has AMX; so products of every layout that training
    uses are compared with float64 first, and an error above FP32_ERROR_BOUND leaves all to MKL. The
    decision depends on the CPU and torch alone, never on a timing. Results differ from MKL's by
    rounding: a run is repeatable to the bit under the same outcome only, which the caller records.
    """
    available = device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not available or made_by_intel():
        _Process.onednn = False
        return _FastMatmul(False, None)
    with through_onednn():
        error = max(_error(product) for product in _PRODUCTS)
    _Process.onednn = error <= FP32_ERROR_BOUND
    return _FastMatmul(_Process.onednn, error)


def made_by_intel() -> bool:
    """Tells whether this machine's processor is Intel's, as far as the system says."""
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "GenuineIntel" in platform.processor()


@contextmanager
def through_onednn() -> Iterator[None]:
    """While it lasts, every float32 product on a CPU goes through oneDNN."""
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def rows_product(a_NK: Tensor, b_KM: Tensor) -> Tensor:
    """a b, where N is a batch's number of rows; without gradients where oneDNN has a part in it."""
    if not is_for_onednn(a_NK, b_KM.numel()):
        return a_NK @ b_KM
    out_NM = a_NK.new_empty(len(a_NK), b_KM.shape[1])
    for rows, route in _parts(len(a_NK)):
        with route():
            torch.mm(a_NK[rows], b_KM, out=out_NM[rows])
    return out_NM


def add_product(total_KM: Tensor, a_NK: Tensor, b_NM: Tensor) -> None:
    """total += aᵀ b, where N is a batch's number of rows."""
    if not is_for_onednn(a_NK, total_KM.numel()):
        total_KM.addmm_(a_NK.T, b_NM)
        return
    for rows, route in _parts(len(a_NK)):
        with route():
            total_KM.addmm_(a_NK[rows].T, b_NM[rows])


def round_rows(rows: int) -> int:
    """Rounds rows down to a number of five binary digits followed by zeros: 16 of them from one
    power of two to the next.
    """
    zeros = max(rows.bit_length() - 5, 0)
    return rows >> zeros << zeros


def is_for_onednn(a_NK: Tensor, weights: int) -> bool:
    """Tells whether oneDNN computes the product of these rows with so many weights."""
    float32 = a_NK.dtype == torch.float32 and a_NK.device.type == "cpu"
    return _Process.onednn and float32 and len(a_NK) * weights >= LEAST_MULTIPLICATIONS


def _parts(rows: int) -> Iterator[tuple[slice, Callable[[], AbstractContextManager[None]]]]:
    """Yields the rows that each library is to compute."""
    whole = round_rows(rows)
    yield slice(whole), through_onednn
    if whole < rows:
        yield slice(whole, rows), nullcontext


class _Product(torch.autograd.Function):
    """x Wᵀ in parts, and so are both of its gradients."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_MD: Tensor) -> Tensor:
        ctx.save_for_backward(x_ND, weight_MD)
        return rows_product(x_ND, weight_MD.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NM: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x_ND, weight_MD = ctx.saved_tensors
        for_x = rows_product(gradient_NM, weight_MD) if ctx.needs_input_grad[0] else None
        for_weight = torch.zeros_like(weight_MD) if ctx.needs_input_grad[1] else None
        if for_weight is not None:
            add_product(for_weight, gradient_NM, x_ND)
        return for_x, for_weight


_linear_product: Callable[[Tensor, Tensor], Tensor] = _Product.apply
"""x_ND and weight_MD -> x Wᵀ_NM, with gradients, where `is_for_onednn`."""


def product(x: Tensor, weight_MD: Tensor) -> Tensor:
    """x Wᵀ, by the library that is the faster where x is rows (N, D) on a CPU."""
    # Where autocast is on, or there are more dimensions than rows, torch's own operation sees to
    # them.
    plain = x.ndim != 2 or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
    return (
        x @ weight_MD.T
        if plain or not is_for_onednn(x, weight_MD.numel())
        else _linear_product(x, weight_MD)
    )


_PRODUCTS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a @ b.T.contiguous().T,  # forward: weights are (out, in)
    lambda a, b: a @ b,  # gradient in the input
    lambda a, b: a.T.contiguous().T @ b,  # gradient in the weight
)


def _error(product: Callable[[Tensor, Tensor], Tensor]) -> float:
    # Its own: the run's random numbers must not depend on this check.
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(512, 512, generator=generator, dtype=torch.float64) for _ in range(2))
    a, b = a.float(), b.float()
    exact = a.double() @ b.double()
    return float((product(a, b).double() - exact).norm() / exact.norm())


class Linear(nn.Linear):
    """nn.Linear, its bias added after the product on a CPU.

    There torch's own writes the bias to every row, and then has the product read it back: 5 to 10 %
    of the layer.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(input)
        result = product(input, self.weight)
        return result if self.bias is None else result.add_(self.bias.to(result.dtype))


class HeadLinear(Linear, Drawable):
    """A matrix between the last hidden states and a loss; no placement reaches it."""

    role: ClassVar[str] = "head"

    def draw(self, scheme: Scheme) -> None:
        draw_bert(self.weight)
        nn.init.zeros_(self.bias)


_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zero each element with probability `rate` and scale the rest by 1 / (1 - rate); identity in
    evaluation.

    On a CPU the rate is rounded to a multiple of 2^-16, and the scale is exact for the rounded
    rate: the mean is kept.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate lies in [0, 1), got {rate}")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return nn.functional.dropout(x, self.rate)
        return _masked_scale(x, round(self.rate * _LEVELS))

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class _MaskedScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped_levels: int) -> Tensor:
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        levels = words.view(torch.int16)[: x.numel()].view(x.shape)
        keep = levels >= dropped_levels - _LEVELS // 2
        # Not as an attribute: activation checkpointing drops what is saved, and only that.
        ctx.save_for_backward(keep)
        ctx.scale = _LEVELS / (_LEVELS - dropped_levels)
        return _scale(x, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _scale(gradient, keep, ctx.scale), None


def _scale(x: Tensor, keep: Tensor, scale: float) -> Tensor:
    # torch converts bool to a float dtype element by element, and int8 by vectors, several times as
    # fast.
    return keep.view(torch.int8).to(x.dtype).mul_(x).mul_(scale)


_masked_scale: Callable[..., Tensor] = _MaskedScale.apply


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Puts every module in one mode; at the end, after an error too, each is in its own mode
    again.
    """
    modes = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, before in modes.items():
            module.training = before
