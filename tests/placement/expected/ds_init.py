"""DS-Init: Post-LN's formula with weights that shrink with the block."""

from placement.expectations import POST, Expected
from reference import Equations

from .post_ln import post_ln

DS_INIT = {
    "equations": Equations(stack=post_ln),
    "formula": "x ← norm(x + F(x))",
    "added": POST,
    "scheme": "xavier-uniform",
    "same_formula": "post-ln",
}
EXPECTED = {
    "ds-init": Expected(**DS_INIT, gain=lambda of: of.block ** (-1 / 2)),
    "ds-init-code": Expected(**DS_INIT, gain=lambda of: of.block ** (-1 / 4)),
}
