"""The paper's Figure 5: BERT pre-trained and fine-tuned."""

from ..engine.discovery import About

ABOUT = About(
    title="BERT with Post-LN and Pre-LN: the paper's Figure 5",
    question="Does Pre-LN without warm-up reach a lower validation loss in fewer updates than Post-LN with it, also at "
    "the same rate, and are its checkpoints the better ones to fine-tune?",
    help="The paper's Figure 5: is BERT faster with Pre-LN?",
)
