"""Lemmas 1 to 3 of the paper."""

from ..engine.discovery import About

ABOUT = About(
    title="Lemmas 1 to 3 by simulation",
    question="Do the three lemmas that the paper's theorem rests on hold for stacks as they are drawn, and where not?",
    help="Do lemmas 1 to 3 of the paper hold in simulation?",
)
