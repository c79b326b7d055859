"""The doctor's advice on rates, fitted to short trainings and judged by others."""

from ..protocol.about import About

ABOUT = About(
    title="Advice: which rate trains without warm-up?",
    question="Does a model's first update predict the largest constant learning rate at which it trains?",
    help="The doctor's advice on rates: fitted to short trainings, judged by others.",
)
