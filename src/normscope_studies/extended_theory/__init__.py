"""Gradients of the lower layers: appendix F of the paper."""

from ..engine.discovery import About

ABOUT = About(
    title="Appendix F: the gradients of the lower layers",
    question="Does the gradient of Post-LN's lower layers fall exponentially, is Pre-LN's the same in every layer, and "
    "are all of Pre-LN's parameters normalised by √L?",
    help="Do lower layers' gradients fall as appendix F says?",
)
