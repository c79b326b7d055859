"""The rules of the linter, a file a subject."""

# ruff: noqa: F401, I001
from . import (
    attention,
    chance,
    gains,
    initialisation,
    likes,
    masks,
    norm_uses,
    norms,
    optimizer,
    placements,
    repeats,
)
from . import schemes, signal, steps, streams, sums, training, unused, wiring
