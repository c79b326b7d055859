"""The doctor's advice on rates, judged by what it costs at the end of whole trainings."""

from ..engine.discovery import About

ABOUT = About(
    title="Advice: which learning rate is best?",
    question="What does a training under a schedule lose at the rate that known rates or another rule name, "
    "and how does the best rate move with the length of the training and with its warm-up?",
    help="What does our advice on learning rates cost?",
)
