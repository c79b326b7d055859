"""What a foreign model is: its residual streams, found by watching one forward pass, their placements, and
the short trainings that advice can be asked to make.
"""

from .advise.batches import Probing
from .identify.found import FoundStack, FoundSublayer
from .identify.stacks import find_stacks

__all__ = ["FoundStack", "FoundSublayer", "Probing", "find_stacks"]
