"""Every model type of Hugging Face transformers at a small size, as the doctor sees it."""

from ..engine.discovery import About

ABOUT = About(
    title="All model types of transformers, small and untrained",
    question="Of the model types that the installed transformers has, how many does the doctor diagnose at a small "
    "size, how many of these does it name, and does it find errors in models that are as their authors meant them?",
    help="Which models of transformers does the doctor name?",
)
