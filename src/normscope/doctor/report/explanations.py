"""What every number of a diagnosis means, in a sentence or two, to be shown on hover and as a list."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTerm:
    """A name that stands beside numbers, and what they mean."""

    name: str
    meaning: str


BEST = ExplainedTerm(
    name="best learning rate",
    meaning="The constant learning rate, without warm-up, that is expected to end with the lowest loss after the "
    "stated number of updates. Its range is an interval that holds the best rate as often as it says.",
)
USUAL = ExplainedTerm(
    name="usual learning rate",
    meaning="The peak rate of models like this one, by a law in width, depth, placement and optimiser over published "
    "recipes and short trainings of ours. Nothing is measured on this model for it.",
)
GOOD = ExplainedTerm(
    name="good learning rates",
    meaning="Rates whose loss is expected to end within the stated distance of that of the best rate.",
)
YOURS = ExplainedTerm(
    name="your learning rate",
    meaning="The peak rate that you gave, and where it lies to the good or usual rates. Undecided: the range may end "
    "on either side of it. Unknown: there is no range for this model.",
)
WARMUP = ExplainedTerm(
    name="warm-up",
    meaning="The number of first updates over which the rate rises linearly to its peak. It is what recipes "
    "have, or tested by short trainings, the shortest first.",
)
LOSS = ExplainedTerm(
    name="loss",
    meaning="Mean cross-entropy per token in nats, that is with natural logarithms; e to its power is the perplexity. "
    "Uniform guessing over V classes costs ln V.",
)
STREAM = ExplainedTerm(
    name="stream",
    meaning="E‖x‖² / d: mean square of the residual stream's entries before the branch is added. A norm gives 1; "
    "growth over depth means that late sub-layers add ever less to it.",
)
BRANCH = ExplainedTerm(
    name="F(x)",
    meaning="E‖F(x)‖² / d: mean square of what the sub-layer adds, scales and norms of the branch included.",
)
SUM = ExplainedTerm(name="sum", meaning="E‖·‖² / d: mean square of the residual sum, before a norm that follows it.")
SIMILARITY = ExplainedTerm(
    name="token similarity",
    meaning="Mean cosine similarity between the stream's vectors at different tokens of one sequence. At 1 the model "
    "no longer tells its tokens apart.",
)
ENERGY = ExplainedTerm(
    name="energy ratio",
    meaning="Squared norm of what the sub-layer adds, over that plus the squared norm of what it is added to. Near 0 "
    "the sub-layer hardly changes the stream, near 1 it replaces it.",
)
GRADIENT = ExplainedTerm(
    name="gradient norm",
    meaning="Frobenius norm of the loss's gradient with respect to the weight matrices of the sub-layer. Biases and "
    "the gains of norms are left out.",
)
THEORY = ExplainedTerm(
    name="theory",
    meaning="What a model of random weights of great width predicts. It is compared with initial weights alone.",
)
ADVICE_TERMS = (USUAL, BEST, GOOD, YOURS, WARMUP, LOSS)
STACK_TERMS = (STREAM, BRANCH, SUM, SIMILARITY, ENERGY, GRADIENT, THEORY)
COLUMN_TERMS = (STREAM, BRANCH, SUM, SIMILARITY, ENERGY, GRADIENT)
"""Of the columns of the table of sub-layers."""
