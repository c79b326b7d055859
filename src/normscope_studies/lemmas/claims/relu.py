"""Lemma 1: what ReLU leaves of a Gaussian vector's squared norm."""

import math

import numpy as np

from normscope.evidence.judging import each_between
from normscope.report.words import interval, number, percentage

from ...engine.claims import Made, judged
from ..estimates import Estimates
from ..measure import LemmasConfig
from .tolerance import EQUAL_WITHIN


def lemma_1(config: LemmasConfig, of: Estimates) -> Made:
    """The worst of all σ is quoted."""
    shares = of.relu
    off = np.abs(shares.mean / 0.5 - 1)
    expected = math.sqrt(5 / config.width)
    worst = int(off.argmax())
    answers = each_between(shares, 0.5 * (1 - EQUAL_WITHIN), 0.5 * (1 + EQUAL_WITHIN))
    numbers = {
        "share": float(shares.mean[worst]),
        "half_width": float(shares.half_width[worst]),
        "largest_off_percent": 100 * float(off.max()),
        "deviation_of_one_percent": 100 * float(of.relu_deviation.mean.mean()),
        "expected_deviation_of_one_percent": 100 * expected,
    }
    claim = judged(
        name="Lemma 1",
        statement="E‖ReLU(X)‖² = σ² d / 2 for X ~ N(0, σ² I_d).",
        source="Xiong et al. 2020, lemma 1",
        found=f"E‖ReLU(X)‖² / (σ² d) is {interval(numbers['share'], numbers['half_width'], 5)} where it is furthest "
        f"from 1/2, {number(numbers['largest_off_percent'])} % off; the standard deviation of a single vector's is "
        f"{number(numbers['deviation_of_one_percent'], 2)} % of the mean, √(5/d) = {percentage(expected, 2)}.",
        holds={f"σ = {sigma:g}": answer for sigma, answer in zip(config.sigmas, answers, strict=True)},
    )
    return claim, numbers
