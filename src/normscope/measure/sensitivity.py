"""Learning-rate sensitivity: how far, on average over a range of rates, a final loss lies above the best one.

Wortsman et al. 2023, "Small-scale proxies for large-scale Transformer training instabilities", arXiv:2309.14322,
section 2.2: E over the rates of [min(ℓ(rate), ℓ₀) − ℓ*], with ℓ* the lowest ℓ of the range and ℓ₀ the loss at
initialisation. There the range is 3e-4 to 3e-1 in seven rates about equally far apart in the logarithm, and expectation
and minimum are over these seven.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
# S = seeds, R = rates, D = draws of the bootstrap
_DRAWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Of one configuration over a range of rates, in the unit of its losses."""

    value: float
    low: float
    """Lower end of the bootstrap's interval over seeds; NaN for one seed."""
    high: float
    best_rate: int
    """Place, among the rates, of the lowest mean loss."""
    seeds: int
    replaced: int
    """How many runs counted as the loss at initialisation."""


def counted_losses(losses_SR: ArrayLike, initial_S: ArrayLike) -> Floats:
    """The losses as the sensitivity counts them, (S, R): the loss at initialisation for what is worse or not finite.

    losses_SR: final losses, one row a seed and one column a rate; NaN or an infinity for a run that diverged.
    initial_S: the loss at initialisation of each seed. Raises ValueError for shapes that do not fit, for no seed or
    rate, and for a loss at initialisation that is not finite.
    """
    losses_SR, initial_S = np.asarray(losses_SR, np.float64), np.asarray(initial_S, np.float64)
    if losses_SR.ndim != 2 or not losses_SR.size or initial_S.shape != losses_SR.shape[:1]:
        raise ValueError(
            "losses have a row for each seed and a column for each rate, and each seed has a loss at initialisation; "
            f"got the shapes {losses_SR.shape} and {initial_S.shape}"
        )
    if not np.isfinite(initial_S).all():
        raise ValueError(f"a loss at initialisation must be finite, got {initial_S.tolist()}")
    # An infinity below zero would be no loss that a run can have: it counts as one that diverged.
    losses_SR = np.where(np.isfinite(losses_SR), losses_SR, np.inf)
    counted_SR: Floats = np.minimum(losses_SR, initial_S[:, None])
    return counted_SR


def lr_sensitivity(
    losses_SR: ArrayLike, initial_S: ArrayLike, *, seed: int = 0, draws: int = _DRAWS, confidence: float = 0.95
) -> Sensitivity:
    """Sensitivity of the final loss to the rate, with a percentile-bootstrap interval over seeds.

    losses_SR, initial_S: as `counted_losses` takes them, and so are the errors; in nats or any other unit. Each rate
    counts the same, as in the source: rates at equal distances in the logarithm make the mean one over the logarithm.
    Of several seeds the mean at each rate is taken first, and the lowest of these means is the best loss. The bootstrap
    draws seeds with replacement, each with its losses at all rates, since the runs of a seed share their initial
    weights and their batches. Of few seeds such intervals are too narrow: of three it spans what their resamples span.

    seed: of the draws. confidence: in (0, 1), else ValueError.
    """
    counted_SR = counted_losses(losses_SR, initial_S)
    seeds = len(counted_SR)
    if not 0 < confidence < 1 or draws < 1:
        raise ValueError(f"need 0 < confidence < 1 and at least one draw, got {confidence} and {draws}")
    low = high = math.nan
    if seeds > 1:
        # How often each draw has each seed: the means over seeds are then one product.
        weights_DS = np.random.default_rng(seed).multinomial(seeds, np.full(seeds, 1 / seeds), size=draws) / seeds
        tail = (1 - confidence) / 2
        low, high = map(float, np.quantile(_deviation(weights_DS @ counted_SR), [tail, 1 - tail]))
    mean_R = counted_SR.mean(0)
    return Sensitivity(
        value=float(_deviation(mean_R)),
        low=low,
        high=high,
        best_rate=int(mean_R.argmin()),
        seeds=seeds,
        replaced=int((counted_SR != np.asarray(losses_SR)).sum()),
    )


def _deviation(losses_xR: Floats) -> Floats:
    """Mean less minimum over the last axis, the rates."""
    found: Floats = losses_xR.mean(-1) - losses_xR.min(-1)
    return found
