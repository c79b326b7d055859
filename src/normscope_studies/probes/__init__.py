"""What linear probes read from the residual stream, by placement, at the same validation loss."""

from ..engine.discovery import About

ABOUT = About(
    title="Does the placement of normalisation change what linear probes read?",
    question="Of models with the same validation loss that differ in placement alone: what do linear probes read from "
    "the stream after every block, before and after its norm, how alike are the blocks, and what is each block worth?",
    help="Does the placement change what linear probes read?",
)
