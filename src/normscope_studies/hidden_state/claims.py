"""Stacks as drawn beside their predictions, and what is claimed of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from normscope.placement import named
from normscope.report.words import counted
from normscope.theory.predict import predict

from ..engine.claims import (
    Compared,
    Spread,
    foretold,
    mean_over_draws,
    root_mean_square,
    spread_of,
)
from ..engine.page import Claim
from .config import HiddenStateConfig, ModelCase

MATRIX_NAMES = {"value": "W_V", "ffn_in": "W₁", "ffn_out": "W₂"}
"""Matrices whose gradients are compared, with how they are printed."""


def root_of(matrix: str) -> str:
    """Returns the name of the root mean square of a matrix's gradient norms; the matrix's own is
    that of their mean.
    """
    return f"{matrix}_root_mean_square"


PlacementCurves = dict[str, dict[str, dict[str, Compared]]]
"""The curves by placement, stack ("encoder" or "decoder"), and quantity: q, or a matrix's
gradient.
"""


def compared(
    name: str, case: ModelCase, draws: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Compared]]:
    """Compares, by stack, draws with predictions: q, and of each matrix's gradient norm the mean
    and, under `root_of`, the root mean square.
    """
    curves = {}
    for kind, prediction in predict(name, case.model).items():
        stack = {"q": mean_over_draws([draw[kind]["q"] for draw in draws], prediction.q)}
        for matrix in MATRIX_NAMES:
            squares = np.array([draw[kind][matrix] for draw in draws])
            stack[matrix] = mean_over_draws(np.sqrt(squares), prediction.gradient_norm[matrix])
            stack[root_of(matrix)] = root_mean_square(squares, prediction.gradient_norm[matrix])
        curves[kind] = stack
    return curves


class _Asked(NamedTuple):
    """One claim: a quantity of a case, and how far its predictions are off."""

    name: str
    of: str
    case: ModelCase
    spread: Spread
    beside: str = ""


def claims_of(
    cases: Sequence[ModelCase], found: Mapping[str, PlacementCurves], config: HiddenStateConfig
) -> tuple[list[Claim], dict[str, Any]]:
    """Returns a claim for q in each case, one for each matrix's gradient in the first; and the
    numbers they quote.
    """
    spreads: dict[str, Spread] = {}
    asked = []
    for case in cases:
        q = {}
        for name, stacks in found[case.name].items():
            q[named(name).title] = [one["q"] for one in stacks.values()]
        spreads[case.name] = spread_of(q, limit_percent=case.limit)
        of = "the mean over draws of E‖x_l‖² / d of the hidden state"
        asked.append(_Asked("q", of, case, spreads[case.name]))
    deep = cases[0]
    for matrix, letter in MATRIX_NAMES.items():
        of_matrix = {}
        for what in (matrix, root_of(matrix)):
            norms = {
                named(name).title: [stacks["encoder"][what]]
                for name, stacks in found[deep.name].items()
            }
            limit = config.gradient_limit_percent
            of_matrix[what] = spread_of(norms, limit_percent=limit, first=1)
            spreads[f"{deep.name}, {what}"] = of_matrix[what]
        # What is predicted is the root mean square; the mean is compared but not judged.
        beside = f"The mean of the norms over draws is {of_matrix[matrix].words}."
        of = f"the root mean square over draws of the norm of {letter}'s gradient"
        asked.append(_Asked(letter, of, deep, of_matrix[root_of(matrix)], beside))
    claims = [_claim(one) for one in asked]
    return claims, {name: asdict(spread) for name, spread in spreads.items()}


def _claim(asked: _Asked) -> Claim:
    case, spread = asked.case, asked.spread
    return foretold(
        name=f"{asked.name}, {case.title.lower()}",
        statement=(
            f"The prediction from a placement's formula gives {asked.of} within {spread.limit:g} % "
            "at every depth."
        ),
        source="corrected: the mean field of normscope predict",
        of=f"{counted(len(case.placements), 'placement')}, {counted(case.draws, 'draw')}, "
        f"{counted(case.model.blocks, 'block')}, d = {case.model.width}",
        spread=spread,
        beside=asked.beside,
    )
