"""The doctor's advice on rates, fitted to short trainings and judged by others."""

from ..protocol.about import About

ABOUT = About(
    title="Advice: which rate trains without warm-up?",
    question="Does what a model's first update does foretell the largest constant rate at which it trains?",
    help="The doctor's advice on rates: fitted to short trainings, judged by others.",
)
