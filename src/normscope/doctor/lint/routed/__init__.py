"""The rules of what only a part of the model goes through: experts, who sends tokens to them, and
hidden units that are cut off.
"""

# ruff: noqa: F401
from . import experts, units
