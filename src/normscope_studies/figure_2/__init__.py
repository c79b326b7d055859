"""The paper's Figure 2: Post-LN with warm-up and without, under Adam and SGD."""

from ..engine.discovery import About

ABOUT = About(
    title="Post-LN with and without warm-up, under Adam and SGD: the paper's Figure 2",
    question="Is warm-up essential for Post-LN, under Adam and under SGD, how much does its length matter, and how "
    "much of what it does is the learning rate that the paper's schedule takes away with it?",
    help="The paper's Figure 2: does Post-LN need warm-up?",
)
