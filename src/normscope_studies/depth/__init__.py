"""The size of the hidden state over a thousand blocks."""

from ..engine.discovery import About

ABOUT = About(
    title="The hidden state over depth at initialisation",
    question="How large is the hidden state after every block, a thousand blocks deep, before any training: what "
    "grows, what stays, what falls?",
    help="How large is the hidden state, 1,000 blocks deep?",
)
