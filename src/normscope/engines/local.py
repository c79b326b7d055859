"""Jobs on this machine, by the quickest way that it has."""

import sys

from .forks import Forks
from .processes import Processes
from .seam import AnyEngine


def local(at_once: int) -> AnyEngine:
    """So many jobs at a time. Forking what has imported a library is safe where its authors test it: on Linux."""
    return Forks(at_once) if sys.platform == "linux" else Processes(at_once)
