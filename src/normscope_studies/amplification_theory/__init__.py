"""What the first update of an optimiser moves over depth: predicted from formulas, and measured."""

from ..engine.discovery import About

ABOUT = About(
    title="The change by one update over depth, predicted and measured",
    question="How far does the first update of SGD, Adam or Muon move every sub-layer and the output of a stack, how "
    "much of it do later sub-layers add, and does the formula of a placement alone predict it? And how does the change "
    "grow with depth?",
    help="Is the first update's effect predicted over depth?",
)
