"""Hidden states and gradients on real text: predicted and measured."""

from ..engine.discovery import About

ABOUT = About(
    title="Real text: predicted and measured, every layer",
    question="Do the formulas predict the hidden states and the gradients of the paper's own models on real text?",
    help="Hidden states and W2 gradients of every layer on real text: predicted and measured.",
)
