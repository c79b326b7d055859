"""Theorem 1: the gradient of the last feed-forward's second matrix over depth and width."""

from ..engine.discovery import About

ABOUT = About(
    title="Theorem 1: the gradient of the last layer",
    question="How large is the gradient of the last W₂ before the first update, how does it change with depth and "
    "width, and how near do the paper's bound and the corrected one come to it?",
    help="How large is the gradient of the last layer's W2?",
)
