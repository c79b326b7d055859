"""The rules of what a user told of the training: the optimiser, its scheduler, the log."""

# ruff: noqa: F401
from . import numbers, schedule
