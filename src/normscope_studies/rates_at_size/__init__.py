"""Peak rates of models as large as people train, judged by what a training at them loses."""

from ..engine.discovery import About

ABOUT = About(
    title="Rates of larger models: named, carried from a smaller one, and best",
    question="What does a training of a model of 6 to 42 million parameters lose at the rate that known rates name, "
    "and at the best rate of a narrower or shallower model?",
    help="What do named rates cost larger models?",
)
