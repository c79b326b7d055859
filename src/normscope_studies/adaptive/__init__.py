"""Placements with a number that moves while they train, beside those that stay as they are."""

from ..engine.discovery import About

ABOUT = About(
    title="Numbers that move: does a schedule combine Pre-LN's start with Post-LN's end?",
    question="Each at its own best rate of equally many: does a placement whose numbers follow a schedule, or what is "
    "measured of its updates, end below both Pre-LN and Post-LN with warm-up, and below the best fixed placement; does "
    "it need a warm-up; how much does the rate matter?",
    help="Do numbers that move in training beat fixed ones?",
)
