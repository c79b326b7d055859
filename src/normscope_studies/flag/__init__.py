"""Checkpoints loaded under the wrong placement flag, and whether the doctor finds them from their weights."""

from ..engine.discovery import About

ABOUT = About(
    title="Checkpoints under the wrong placement flag",
    question="A model trained as Post-LN and loaded as Pre-LN, or the other way round, has tensors of the same names "
    "and shapes. Does the doctor find it from the weights, and is it silent about those under their own flag?",
    help="Is a checkpoint under the wrong placement noticed?",
)
