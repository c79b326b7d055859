"""Means over seeds of what the study of the lemmas measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope.evidence.estimates import estimate
from normscope.measure import Estimate

from .measure import STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class NormEstimates:
    """Spectral norms of one norm's Jacobian, by the mean of x."""

    measured: Estimate
    exact: Estimate
    over_claimed: Estimate
    """Measured, over the √d / ‖x‖ of lemma 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """With 95 % intervals over seeds."""

    relu: Estimate
    """E‖ReLU(X)‖² / (σ² d), by σ."""
    relu_deviation: Estimate
    """Standard deviation of one vector's, as a share of the mean."""
    steps: tuple[Estimate, ...]
    """E‖x‖² / d of the hidden state and of the five steps of Table 1, by block."""
    pre_ln: Estimate
    """E‖x_l‖² / d by completed blocks."""
    claimed: Estimate
    """√d / ‖x‖, by the mean of x."""
    layer_norm: NormEstimates
    rms_norm: NormEstimates

    def by_name(self) -> dict[str, Estimate]:
        """For results.json."""
        return {
            "relu": self.relu,
            "relu deviation": self.relu_deviation,
            **{f"step {step}": one for step, one in enumerate(self.steps)},
            "pre-ln": self.pre_ln,
            "claimed": self.claimed,
            **{
                f"{name}{kind}": one
                for name, norm in (("layer-norm", self.layer_norm), ("rms-norm", self.rms_norm))
                for kind, one in (("", norm.measured), (" exact", norm.exact), (" over claimed", norm.over_claimed))
            },
        }


def estimated(found: Mapping[str, Sequence[Any]]) -> Estimates:
    """found: by what was measured, one entry a seed."""
    relu, jacobian = found["relu"], found["jacobian"]
    steps = np.array([one["steps"] for one in found["post-ln"]])
    claimed = np.array([one["claimed"] for one in jacobian])
    return Estimates(
        relu=estimate([one["share"] for one in relu]),
        relu_deviation=estimate([one["deviation"] for one in relu]),
        steps=tuple(estimate(steps[:, step]) for step in range(STEPS)),
        pre_ln=estimate(found["pre-ln"]),
        claimed=estimate(claimed),
        layer_norm=_norm("layer-norm", jacobian, claimed),
        rms_norm=_norm("rms-norm", jacobian, claimed),
    )


def _norm(name: str, jacobian: Sequence[Mapping[str, Any]], claimed: Any) -> NormEstimates:
    measured = np.array([one[name]["measured"] for one in jacobian])
    return NormEstimates(
        measured=estimate(measured),
        exact=estimate([one[name]["exact"] for one in jacobian]),
        over_claimed=estimate(measured / claimed),
    )
