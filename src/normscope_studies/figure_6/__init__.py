"""The paper's Figure 6: a small fixed rate in place of warm-up."""

from ..engine.discovery import About

ABOUT = About(
    title="A small fixed rate in place of warm-up: the paper's Figure 6",
    question="Does Post-LN without warm-up learn at a small fixed rate, and is that as good as a large rate with "
    "warm-up?",
    help="The paper's Figure 6: Post-LN without warm-up at a small fixed rate.",
)
