"""The rules of what becomes of weights and inputs once a model is tried: what the laws found, what
the loss asks for, whether a copy learns, and adapters, whose start says whether they will move.
"""

# ruff: noqa: F401
from . import adapters, learning, modes, pictures, reach, targets, tokens, updates, uses
