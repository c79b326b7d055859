"""The rules of peers: what one block has otherwise than the same part of most other blocks."""

# ruff: noqa: F401
from . import modules, starts, unnormed
