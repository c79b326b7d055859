"""Cases of the study of advice with trainings that are made up."""

from normscope.choosing.law import RateFacts
from normscope_studies.advice.cases import AdviceCase
from normscope_studies.advice.ladder import Ladder, climb

UNIGRAM, BIGRAM = 4.6, 4.0
HERE = {"text_file": "nowhere", "corpus": "nowhere"}


def outcome(nats):
    return {"valid_nats": nats, "train_nats": []}


def landscape(best, stuck=99):
    """A bowl about a rung, and no more than frequencies from another on."""
    return lambda step: outcome(3.0 + 0.03 * (step - best) ** 2 if step < stuck else UNIGRAM)


def case_of(**changes) -> AdviceCase:
    sizes = {
        "model": "decoder",
        "text": "toy",
        "initialisation": "normal-0.02",
        "placement": "pre-ln",
    }
    return AdviceCase(**sizes | {"blocks": 1, "width": 16, "tokens": 64, "length": 16} | changes)


def facts_of(**changes) -> RateFacts:
    return RateFacts(
        **{"optimizer": "adam", "width": 32, "sublayers": 12, "normed_sums": 0.0} | changes
    )


def ladder_of(best, *, stuck=99, again=None, updates=1000, **changes) -> Ladder:
    """Of a bowl about a rung; again: outcomes of a second seed."""
    outcomes = climb(2, landscape(best, stuck))
    sizes = {
        "case": case_of(**changes),
        "updates": updates,
        "outcomes": outcomes,
        "again": again or {},
    }
    return Ladder(**sizes, unigram_nats=UNIGRAM, bigram_nats=BIGRAM)
