"""How far an update moves a model's output at every depth, beside the orders that papers state."""

from ..engine.discovery import About

ABOUT = About(
    title="How does the change of a model by an update grow with its depth?",
    question="How far does a first update of SGD, Adam or Muon, or a random one, move the output of a stack under each "
    "placement; what of it is each sub-layer's own change, and what is amplified; and does it grow with the depth as "
    "papers say?",
    help="How does an update's effect grow with the depth?",
)
