"""Norms of one parameter's gradient over batches: of each batch's, and of what they have in
common.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from normscope.measure.passes import euclidean_norm

_Batch = TypeVar("_Batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNorms:
    """Frobenius norms of one parameter's gradient g over batches, each batch counting the same.

    Two different questions: how large is a batch's gradient (`mean_of_norms`), and how large is the
    gradient that batches have in common (`norm_of_mean`, which is what Xiong et al. 2020, figure
    3(a) and (b), shows).
    """

    batches: int
    mean_of_norms: float
    """Mean of ‖g‖: an unbiased estimate of E‖g‖."""
    mean_of_squares: float
    """Mean of ‖g‖²."""
    norm_of_mean: float
    """‖ḡ‖, ḡ the mean over the batches. Its square is biased upwards: E‖ḡ‖² = ‖Eg‖² + (trace of Cov
    g) / batches.
    """

    @property
    def expected_squared(self) -> float:
        """Unbiased estimate of ‖Eg‖²: ‖ḡ‖² less `noise` / batches. NaN for one batch.

        It may come out negative, where the batches have nothing in common that could be told from
        noise; its root would be biased again and is left to the reader.
        """
        return self.norm_of_mean**2 - self.noise / self.batches

    @property
    def noise(self) -> float:
        """Unbiased estimate of the trace of Cov g, E‖g - Eg‖². NaN for one batch."""
        if self.batches == 1:
            return math.nan
        return (self.mean_of_squares - self.norm_of_mean**2) * self.batches / (self.batches - 1)


class _Running:
    """The mean of one parameter's gradients so far, and of their norms."""

    def __init__(self, parameter: Tensor) -> None:
        # bfloat16 would swallow what the hundredth batch adds to a mean.
        dtype = torch.promote_types(parameter.dtype, torch.float32)
        self.mean = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
        self.norms = 0.0
        self.squares = 0.0
        self.used = False

    def add(self, gradient: Tensor | None, batch: int) -> None:
        """The gradient of the `batch`-th batch, from 1; None counts as 0."""
        if gradient is None:
            self.mean.mul_((batch - 1) / batch)
            return
        self.used = True
        gradient = (gradient.to_dense() if gradient.layout != torch.strided else gradient).to(
            self.mean.dtype
        )
        norm = euclidean_norm(gradient)
        self.norms, self.squares = self.norms + norm, self.squares + norm**2
        self.mean.lerp_(gradient, 1 / batch)


def expected_gradient_norms(
    model: nn.Module, batches: Iterable[_Batch], loss: Callable[[_Batch], Tensor]
) -> dict[str, GradientNorms]:
    """Returns the gradient norms of `loss(batch)`, a scalar, over all batches, by parameter name.

    Streamed: beside one batch's gradients it holds one running mean of them (float32 at least),
    however many batches there are. `.grad` is neither read nor written, and no random number is
    drawn but by `loss`. A batch that does not use a parameter counts as a gradient of 0; parameters
    that are frozen, or used by no batch, are left out. Raises ValueError without batches, without a
    trainable parameter, or where the loss is not one number.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not named:
        raise ValueError("no parameter of the model is trainable")
    running = {name: _Running(p) for name, p in named.items()}
    count = 0
    for count, batch in enumerate(batches, 1):
        with torch.enable_grad():
            value = loss(batch)
            single = value.reshape(()) if value.numel() == 1 else None
        if single is None:
            raise ValueError(
                "the loss of a batch must be one number, got a tensor of shape "
                f"{tuple(value.shape)}"
            )
        gradients = torch.autograd.grad(single, list(named.values()), allow_unused=True)
        for one, gradient in zip(running.values(), gradients, strict=True):
            one.add(gradient, count)
        # The next batch's graph must not stand beside this one's gradients.
        del value, single, gradients, gradient
    if not count:
        raise ValueError("no batches were given")
    return {
        name: GradientNorms(
            batches=count,
            mean_of_norms=one.norms / count,
            mean_of_squares=one.squares / count,
            norm_of_mean=euclidean_norm(one.mean),
        )
        for name, one in running.items()
        if one.used
    }
