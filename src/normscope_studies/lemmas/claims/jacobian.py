"""Lemma 3: the spectral norm of the norms' Jacobians."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from normscope.evidence.judging import each_between
from normscope.report.words import number

from ...engine.claims import Made, judged
from ..estimates import Estimates
from ..measure import LemmasConfig
from .tolerance import BOUND_WITHIN

_ROUNDING = 1e-3
"""Autograd and formula differ by less where they agree; both are in float64 and have no spread."""


def jacobian_exact(config: LemmasConfig, jacobian: Sequence[Mapping[str, Any]]) -> Made:
    """LayerNorm's, with the mean of x taken off."""
    numbers = _numbers(jacobian, "layer-norm")
    alike = numbers["equal"] == [config.singular_width - 2] and numbers["zero"] == [2]
    claim = judged(
        name="Lemma 3, exactly",
        statement="‖J_LN(x)‖₂ = √d / ‖x - mean‖₂; d - 2 singular values are equal and two are 0.",
        source="Xiong et al. 2020, eq. (28); corrected",
        found=f"By autograd at most {numbers['largest_off']:.1e} off as a share; of {config.singular_width} singular "
        f"values {_counts(numbers['equal'])} are equal and {_counts(numbers['zero'])} are 0.",
        holds={"all": numbers["largest_off"] < _ROUNDING and alike},
    )
    return claim, numbers


def jacobian_claimed(config: LemmasConfig, of: Estimates) -> Made:
    """LayerNorm's, as if x had no mean."""
    measured, claimed = of.layer_norm.measured.mean, of.claimed.mean
    answers = each_between(of.layer_norm.over_claimed, -math.inf, 1 + BOUND_WITHIN)
    numbers = {
        "mean_of_features": config.means,
        "measured": measured,
        "claimed": claimed,
        "ratio": of.layer_norm.over_claimed.mean,
    }
    texts = "; ".join(
        f"mean {mean:g}: {number(true)}, claimed {number(bound)}"
        for mean, true, bound in zip(config.means, measured, claimed, strict=True)
    )
    claim = judged(
        name="Lemma 3, as stated",
        statement="‖J_LN(x)‖₂ = O(√d / ‖x‖₂), whatever x.",
        source="Xiong et al. 2020, lemma 3, eq. (29)",
        found=f"x ~ N(0, I) plus a mean. {texts}. The ratio grows as √(1 + mean²), without a bound.",
        holds={f"a mean of {mean:g}": answer for mean, answer in zip(config.means, answers, strict=True)},
    )
    return claim, numbers


def rms_norm(jacobian: Sequence[Mapping[str, Any]]) -> Made:
    """RMSNorm's, which takes no mean off."""
    numbers = _numbers(jacobian, "rms-norm")
    claim = judged(
        name="Lemma 3, RMSNorm",
        statement="‖J_RMS(x)‖₂ = √d / ‖x‖₂ exactly, with one singular value 0.",
        source="corrected",
        found=f"By autograd at most {numbers['largest_off']:.1e} off as a share, whatever the mean; singular values "
        f"that are 0: {_counts(numbers['zero'])}.",
        holds={"all": numbers["largest_off"] < _ROUNDING and numbers["zero"] == [1]},
    )
    return claim, numbers


def _numbers(jacobian: Sequence[Mapping[str, Any]], norm: str) -> dict[str, Any]:
    """Over all seeds and means: the largest share by which autograd and formula differ, and the counts there were."""
    off = max(one[norm]["off"] for one in jacobian)
    return {"largest_off": off, **{what: sorted({one[norm][what] for one in jacobian}) for what in ("equal", "zero")}}


def _counts(found: Sequence[int]) -> str:
    return " or ".join(map(str, found))
