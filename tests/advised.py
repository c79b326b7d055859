"""Cases of the study of advice with trainings that are made up."""

from normscope.choosing.rates import RateFacts
from normscope_studies.advice.cases import AdviceCase

UNIGRAM = 4.6
HERE = {"text_file": "nowhere", "corpus": "nowhere"}


def outcome(nats, train_nats=()):
    return {"valid_nats": nats, "unigram_nats": UNIGRAM, "train_nats": list(train_nats)}


def landscape(best, stuck):
    """A bowl about a rung, and no more than frequencies from another on."""
    return lambda step: outcome(3.0 + 0.03 * (step - best) ** 2 if step < stuck else UNIGRAM)


def case_of(**changes) -> AdviceCase:
    sizes = {"architecture": "decoder", "text": "toy", "initialisation": "normal-0.02", "placement": "pre-ln"}
    return AdviceCase(**sizes | {"blocks": 1, "width": 16, "tokens": 64, "length": 16} | changes)


def facts_of(**changes) -> RateFacts:
    return RateFacts(**{"optimizer": "adam", "width": 32, "sublayers": 12, "normed_sums": 0.0} | changes)
