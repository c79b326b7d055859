"""The user's own model, with its batches, as a task."""

from .task import OWN, OwnRunConfig

__all__ = ["OWN", "OwnRunConfig"]
