"""The rules of what only a part of the model goes through: experts, who sends tokens to them,
hidden units that are cut off, states along a sequence, and weights that are computed with and not
taught.
"""

# ruff: noqa: F401
from . import experts, states, units, untaught, wide
