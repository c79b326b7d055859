"""Placement, optimiser and warm-up crossed, each at its own best rate: who needs a warm-up under which optimiser."""

from ..engine.discovery import About

ABOUT = About(
    title="Placement, optimiser and warm-up, each at its own best rate",
    question="Which placement needs a learning-rate warm-up under which optimiser, when each has the rate that suits "
    "it best: in a Llama-like language model, under AdamW, Muon, Lion and SGD with momentum?",
    help="Which placements need warm-up, by optimiser?",
)
