"""GPT-2: Pre-LN's formula with weights of its own."""

from placement.expectations import PRE, Expected, last_matrices_by_depth
from reference import Equations

from .pre_ln import FORMULA, pre_ln

EXPECTED = {
    "gpt2": Expected(
        equations=Equations(stack=pre_ln),
        formula=FORMULA,
        added=PRE,
        scheme="normal-0.02",
        gain=last_matrices_by_depth,
        same_formula="pre-ln",
    )
}
