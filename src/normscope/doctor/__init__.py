"""What a foreign model is: its residual streams, found by watching one forward pass, their placements, and
the short trainings that advice can be asked to make.
"""

from .advise.short_run import Probing
from .identify.stacks import find_stacks
from .record import Stack, Sublayer

__all__ = ["Probing", "Stack", "Sublayer", "find_stacks"]
