"""How a large Jacobian's singular values spread, from a few products: moments and the largest, without the matrix."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .jacobian import gram_product

_SEED = 5_318_008_421


@dataclass(frozen=True, slots=True, kw_only=True)
class Spectrum:
    """Of the n singular values σ of a map's Jacobian J with n inputs, zeros counted."""

    mean_square: float
    """Mean of σ², tr(JᵀJ) / n: what a random small change is multiplied with, squared. Estimated without bias."""
    mean_fourth: float
    """Mean of σ⁴, tr((JᵀJ)²) / n; estimated without bias."""
    largest: float
    """Of all σ: a bound from below, near after some ten products."""

    @property
    def root_mean_square(self) -> float:
        """1 for a map that keeps lengths, and for the identity."""
        return math.sqrt(self.mean_square)

    @property
    def variation(self) -> float:
        """Standard deviation of σ² over its mean: 0 for an orthogonal matrix times a number.

        The width of the spectrum of JJᵀ by which Pennington et al. 2017 (arXiv:1711.04735, section 2) judge isometry.
        Its square takes two estimates: it is held at 0 from below, and NaN where J is 0.
        """
        if not self.mean_square:
            return math.nan
        return math.sqrt(max(0.0, self.mean_fourth / self.mean_square**2 - 1))

    @property
    def peak(self) -> float:
        """The largest σ over the root mean square; at least 1, and NaN where J is 0."""
        return self.largest / self.root_mean_square if self.mean_square else math.nan


def jacobian_spectrum(f: Callable[[Tensor], Tensor], x: Tensor, *, steps: int = 8, seed: int = _SEED) -> Spectrum:
    """Of ∂f(x)/∂x as one matrix: f maps a tensor to a tensor, of any shapes, and may mix all of its entries.

    Lanczos on JᵀJ from one vector of random signs, with `steps` products Jv and as many Jᵀu; f runs once. The first of
    them gives both moments (Hutchinson 1990), whose relative error falls as one over the root of n: for a few hundred
    inputs and more, one vector does. torch's own generators are not used, no `.grad` is touched.
    Raises ValueError for steps < 1.
    """
    if steps < 1:
        raise ValueError(f"a spectrum takes at least one product, got steps={steps}")
    row = x.detach().reshape(1, -1)
    product = gram_product(lambda flat: f(flat.view(x.shape)).reshape(1, -1), row)
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, row.shape, generator=generator).to(row) * 2 - 1
    v_1N = signs / signs.norm()
    w_1N = product(v_1N)
    mean_square, mean_fourth = float(v_1N.flatten() @ w_1N.flatten()), float(w_1N.square().sum())
    return Spectrum(
        mean_square=mean_square,
        mean_fourth=mean_fourth,
        largest=_largest(product, v_1N, w_1N, min(steps, row.numel())),
    )


def _largest(product: Callable[[Tensor], Tensor], v_1N: Tensor, w_1N: Tensor, steps: int) -> float:
    """Root of the largest Ritz value of JᵀJ on the Krylov space of v, whose first product w is known."""
    basis, images = [v_1N.flatten()], [w_1N.flatten()]
    while len(basis) < steps:
        span_KN = torch.stack(basis)
        new_N = images[-1]
        # Twice: rounding would let directions come back that are found already.
        for _ in range(2):
            new_N = new_N - (span_KN @ new_N) @ span_KN
        length = new_N.norm()
        # The span is closed: what is left is rounding.
        if length <= 100 * torch.finfo(new_N.dtype).eps * images[-1].norm():
            break
        basis.append(new_N / length)
        images.append(product(basis[-1][None]).flatten())
    inner_KK = torch.stack(basis) @ torch.stack(images).T
    values = torch.linalg.eigvalsh((inner_KK + inner_KK.T) / 2)
    return math.sqrt(max(0.0, float(values[-1])))
