"""The rules that read what the laws found, a file a law."""

# ruff: noqa: F401
from . import modes, reach, updates, uses
