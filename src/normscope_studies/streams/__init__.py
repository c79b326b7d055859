"""Newer residual streams trained beside older placements, each at the best of an equal ladder of rates."""

from ..engine.discovery import About

ABOUT = About(
    title="The residual streams of 2024 to 2026, trained side by side",
    question="At equal parameters and updates, and each at its own best rate: which of the newer residual streams ends "
    "lower than Pre-LN, does it need a warm-up, and how much are its last blocks worth?",
    help="Which of the newer residual streams ends lowest?",
)
