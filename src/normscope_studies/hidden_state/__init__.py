"""The size of the hidden state over depth: predicted and measured."""

from ..engine.discovery import About

ABOUT = About(
    title="The hidden state over depth, predicted and measured",
    question="How large is the hidden state after each block at initialisation, and do the formulas alone predict it? "
    "For every placement; for eight of them the gradients too.",
    help="Do formulas predict the hidden state over depth?",
)
