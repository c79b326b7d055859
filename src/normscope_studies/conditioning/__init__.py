"""Gradients, updates and block Jacobians over depth, throughout trainings of every placement."""

from ..engine.discovery import About

ABOUT = About(
    title="Which placements keep gradients well-conditioned throughout training?",
    question="Over whole trainings: how far do gradient and update norms differ between blocks, and how far from an "
    "isometry are the blocks? Which placements stay as the theory says they start, and do these end as low as Post-LN?",
    help="Which placements keep gradients well-conditioned?",
)
