"""The doctor's measurements over depth while a model trains."""

from .measuring import Monitor

__all__ = ["Monitor"]
