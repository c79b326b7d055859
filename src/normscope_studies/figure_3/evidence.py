"""The evidence by which figure 3's claims are judged: from measurements, or from their
results.json.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from normscope.measure import Estimate, t_quantile

from ..engine.estimates import Floats
from .measure import PLACEMENTS, Condition, Figure3Config
from .numbers import PARTS, Figure3Numbers, factor_per_layer

_Part = tuple[str, str]
"""A matrix and a stack."""
_From = TypeVar("_From")
_To = TypeVar("_To")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure3Evidence:
    """Norms of gradients, and how they change over depth and from layer to layer."""

    blocks: tuple[int, ...]
    layers: int
    """The layers of a stack, in panels (a) and (b)."""
    last: Mapping[Condition, Mapping[str, Floats]]
    """The norm of the last W2's gradient by condition and placement: (S, B)."""
    predicted_exponents: Mapping[Condition, Mapping[str, float]]
    """The exponents of depth for the last W2's norm."""
    factors: Mapping[str, Mapping[_Part, Estimate]]
    """The factors by placement and part: logarithms of the factor from layer to layer of the norm
    of the mean gradient.
    """
    predicted_factors: Mapping[str, Mapping[_Part, float]]
    ends: Mapping[str, Mapping[_Part, tuple[float, float]]]
    """The ends by placement and part: the first layer's norm and the last's, means over seeds."""
    left_after_warm_up: Mapping[_Part, Estimate]
    """(L,) The norm after the warm-up as a share of what it was before; empty where nothing was
    trained.
    """


def evidence(numbers: Figure3Numbers) -> Figure3Evidence:
    """Makes the evidence from measurements."""
    norms = {name: kinds["norm_of_mean"] for name, kinds in numbers.layers.items()}
    exponents: dict[Condition, dict[str, float]] = {}
    for condition, placements in numbers.predicted_last.items():
        exponents[condition] = {
            name: numbers.predicted_exponent(condition, name) for name in placements
        }
    return Figure3Evidence(
        blocks=numbers.blocks,
        layers=next(iter(norms.values()))[PARTS[0]].shape[1],
        last=numbers.last,
        predicted_exponents=exponents,
        factors={name: _of_parts(factor_per_layer, of) for name, of in norms.items()},
        predicted_factors={name: numbers.predicted_factors(name) for name in norms},
        ends={name: _of_parts(_ends_over_seeds, of) for name, of in norms.items()},
        left_after_warm_up=numbers.left_after_warm_up if numbers.after else {},
    )


def evidence_again(config: Figure3Config, data: Mapping[str, Any]) -> Figure3Evidence:
    """Makes the evidence from the numbers of a results.json, in which they have six digits. Raises
    KeyError for one that does not hold them.
    """
    last, layers = data["last_w2"], data["layers"]
    at = {condition: last[condition.title] for condition in config.conditions}
    norms = {name: _written_parts(layers[name]) for name in PLACEMENTS}
    first = next(iter(norms.values()))[PARTS[0]]
    return Figure3Evidence(
        blocks=tuple(data["blocks"]),
        layers=len(first["norm_of_mean"]["mean"]),
        last={condition: _seeds_again(of) for condition, of in at.items()},
        predicted_exponents={condition: _exponents_again(of) for condition, of in at.items()},
        factors={name: _of_parts(_factor_again, of) for name, of in norms.items()},
        predicted_factors={name: _of_parts(_predicted_again, of) for name, of in norms.items()},
        ends={name: _of_parts(_ends_again, of) for name, of in norms.items()},
        left_after_warm_up=_left_again(data["warm_up"]),
    )


def _of_parts(read: Callable[[_From], _To], of: Mapping[_Part, _From]) -> dict[_Part, _To]:
    """Reads every matrix and stack."""
    return {key: read(of[key]) for key in PARTS}


def _written_parts(layers: Mapping[str, Any]) -> dict[_Part, Any]:
    return {(matrix, stack): layers[matrix][stack] for matrix, stack in PARTS}


def _seeds_again(last: Mapping[str, Any]) -> dict[str, Floats]:
    return {name: np.array(last[name]["seeds"]) for name in PLACEMENTS}


def _exponents_again(last: Mapping[str, Any]) -> dict[str, float]:
    return {name: last[name]["predicted_exponent_of_depth"] for name in PLACEMENTS}


def _ends(values_L: Any) -> tuple[float, float]:
    return float(values_L[0]), float(values_L[-1])


def _ends_over_seeds(norms_SL: Floats) -> tuple[float, float]:
    return _ends(norms_SL.mean(0))


def _ends_again(one: Mapping[str, Any]) -> tuple[float, float]:
    return _ends(one["norm_of_mean"]["mean"])


def _predicted_again(one: Mapping[str, Any]) -> float:
    """Returns the logarithm of a factor."""
    return math.log(one["predicted_factor_per_layer"])


def _factor_again(one: Mapping[str, Any]) -> Estimate:
    """Reads an estimate whose mean and interval's ends are written as factors."""
    edges, seeds = one["norm_of_mean_factor_per_layer"], one["norm_of_mean"]["seeds"]
    low, mean, high = (math.log(edges[edge]) for edge in ("low", "mean", "high"))
    return _estimate_again(mean, (high - low) / 2, seeds)


def _left_again(warm_up: Mapping[str, Any]) -> dict[_Part, Estimate]:
    if not warm_up:
        return {}
    return _of_parts(_share_again, _written_parts(warm_up["after"]))


def _share_again(one: Mapping[str, Any]) -> Estimate:
    means, seeds = one["share_of_before"], one["norm_of_mean"]["seeds"]
    # Of one seed there is no interval, and the first results did not write that there is none.
    halves = one.get("share_of_before_half_width") or [None] * len(means)
    return _estimate_again(means, np.array(halves, dtype=np.float64), seeds)


def _estimate_again(mean: Any, half_width: Any, count: int) -> Estimate:
    """Makes an estimate with the deviation that its interval has been made of."""
    means, halves = (np.asarray(value, dtype=np.float64) for value in (mean, half_width))
    quantile = t_quantile(0.95, count - 1) if count > 1 else math.nan
    return Estimate(
        count=count, mean=means, deviation=halves * math.sqrt(count) / quantile, half_width=halves
    )
