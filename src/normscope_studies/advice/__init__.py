"""The doctor's advice on rates, fitted to short trainings and judged by others."""

from ..engine.discovery import About

ABOUT = About(
    title="Advice: which learning rate is best?",
    question="Do known rates, and short trainings of a model, predict the constant learning rate that trains it best, "
    "and how long a warm-up must be to carry a higher one?",
    help="How often is our advice on learning rates right?",
)
