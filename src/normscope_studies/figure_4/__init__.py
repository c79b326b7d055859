"""The paper's Figure 4: Pre-LN without warm-up beside Post-LN with it, under Adam and RAdam."""

from ..engine.discovery import About

ABOUT = About(
    title="Pre-LN without warm-up beside Post-LN with it: the paper's Figure 4",
    question="Is Pre-LN without warm-up as good as Post-LN with it, does it learn faster at the same rate, and does "
    "the placement matter more than the choice of Adam or RAdam?",
    help="The paper's Figure 4: can Pre-LN skip warm-up?",
)
