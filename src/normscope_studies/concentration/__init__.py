"""How tightly squared norms of hidden states lie around their mean."""

from ..engine.discovery import About

ABOUT = About(
    title="Concentration of squared norms",
    question="The paper reports that the norm of hidden states at initialisation is (0.1, 0.125)-bounded, and builds "
    "Theorem 1 on it. Is it, and does the theorem's probability follow?",
    help="Are squared norms of hidden states near their mean?",
)
