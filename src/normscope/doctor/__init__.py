"""The examination of a foreign model: its residual streams, found by watching one forward pass, and
their placements.
"""

from .identify.stacks import find_stacks
from .record import Stack, Sublayer

__all__ = ["Stack", "Sublayer", "find_stacks"]
