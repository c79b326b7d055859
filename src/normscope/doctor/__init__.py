"""What a foreign model is: its residual streams, found by watching one forward pass, and their placements."""

from .identify.found import FoundStack, FoundSublayer
from .identify.stacks import find_stacks

__all__ = ["FoundStack", "FoundSublayer", "find_stacks"]
