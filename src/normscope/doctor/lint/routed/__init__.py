"""The rules of what only some tokens go through: experts, and who sends tokens to them."""

# ruff: noqa: F401
from . import experts
