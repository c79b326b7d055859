"""What a foreign model is: its residual streams, found by watching one forward pass, and their placements."""

from .find import find_stacks
from .findings import FoundStack, FoundSublayer

__all__ = ["FoundStack", "FoundSublayer", "find_stacks"]
