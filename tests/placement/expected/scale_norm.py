"""ScaleNorm with FixNorm."""

import math

from placement.expectations import PRE, Expected
from reference import Equations, length

from .pre_ln import FORMULA, pre_ln

EXPECTED = {
    "scale-norm": Expected(
        # Nguyen & Salazar 2019, section 2.3: unit rows, times √d where they enter.
        equations=Equations(
            stack=pre_ln,
            rows=lambda rows: math.sqrt(rows.shape[-1]) * rows / length(rows),
            logits=lambda hidden, table, w: hidden @ (table / length(table)).T,
        ),
        formula=FORMULA,
        added=PRE,
        norm="scale-norm",
        scheme="small-attention",
        # Embeddings of fixed length are not looked at; without them it is Pre-LN with another norm.
        named_for_sure=False,
    )
}
