"""Which process of its training this one is, by what torchrun has set."""

import os

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def under_torchrun() -> bool:
    """Whether torchrun, or a launcher that sets the same, has started this process."""
    return all(name in os.environ for name in _VARIABLES)


def rank_of_environment() -> int:
    """Counted from 0 over all machines; 0 for a process that trains alone."""
    return int(os.environ["RANK"]) if under_torchrun() else 0


def size_of_environment() -> int:
    """How many processes train together."""
    return int(os.environ["WORLD_SIZE"]) if under_torchrun() else 1
