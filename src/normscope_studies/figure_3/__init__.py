"""The paper's Figure 3: gradient norms by layer and by depth."""

from ..engine.discovery import About

ABOUT = About(
    title="Gradients by layer and by depth: the paper's Figure 3",
    question="How large is the gradient of the feed-forward matrices of Post-LN and Pre-LN, layer by layer and as the "
    "model grows, on real text? Is it around 1.6 at every depth of Post-LN, and what is left of it after the warm-up?",
    help="The paper's Figure 3: where are gradients large?",
)
