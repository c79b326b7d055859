"""What the study of the hidden state says: how near predictions come to what was measured, a claim each."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from normscope.placement import named
from normscope.report.words import counted, number

from ..engine.claims import judged
from ..engine.deviation import Spread, spread_of
from ..engine.page import Claim
from .config import Case, HiddenStateConfig
from .page import MATRIX_NAMES, Curves, root_of


def claims_of(
    cases: Sequence[Case], found: Mapping[str, Curves], config: HiddenStateConfig
) -> tuple[list[Claim], dict[str, Any]]:
    """A claim for q in each case, one for each matrix's gradient in the first; and the numbers they quote."""
    claims, data = [], {}
    for case in cases:
        q = {named(name).title: [one["q"] for one in stacks.values()] for name, stacks in found[case.name].items()}
        data[case.name] = spread = spread_of(q, limit_percent=case.limit)
        claims.append(_claim("q", "the mean over draws of E‖x_l‖² / d of the hidden state", case, spread, ""))
    deep = cases[0]
    for matrix, letter in MATRIX_NAMES.items():
        means, squares = (
            spread_of(
                {named(name).title: [stacks["encoder"][what]] for name, stacks in found[deep.name].items()},
                limit_percent=config.gradient_limit_percent,
                first=1,
            )
            for what in (matrix, root_of(matrix))
        )
        data |= {f"{deep.name}, {matrix}": means, f"{deep.name}, {root_of(matrix)}": squares}
        of = f"the root mean square over draws of the norm of {letter}'s gradient"
        claims.append(_claim(letter, of, deep, squares, f" The mean of the norms over draws is {_off(means)}."))
    return claims, {name: asdict(spread) for name, spread in data.items()}


def _claim(name: str, of: str, case: Case, spread: Spread, beside: str) -> Claim:
    """beside: a sentence on what is compared but not judged."""
    return judged(
        name=f"{name}, {case.title.lower()}",
        statement=f"The prediction from a placement's formula gives {of} within {spread.limit:g} % at every depth.",
        source="corrected: the mean field of normscope predict",
        found=f"{counted(len(case.placements), 'placement')}, {counted(case.draws, 'draw')}, "
        f"{counted(case.model.blocks, 'block')}, d = {case.model.width}: {_off(spread)}; "
        f"{len(spread.within)} of {len(case.placements)} within the limit.{beside}",
        holds=spread.holds,
    )


def _off(spread: Spread) -> str:
    return (
        f"at most {number(spread.largest, 2)} % off ({spread.where}, l = {spread.place}; standard error "
        f"{number(spread.standard_error, 2)} %), {number(spread.root_mean_square, 2)} % root mean square over all "
        "depths"
    )
