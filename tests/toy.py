"""The toy corpora of the tests: each made once a process, with few sentences and documents for
validations to read.
"""

from functools import lru_cache

from normscope.data import opening

AS_SHIPPED = opening._TOY_HELD_OUT
HELD_OUT = 60
"""Reading 500 takes a tiny run longer than training does."""
DOCUMENTS = {"train": 400, "valid": 12, "test": 12}
"""2,000 take seconds to be made, and each process that trains on them makes them."""


def share() -> None:
    """In this process, whose corpora nothing changes."""
    opening._TOY_HELD_OUT = HELD_OUT
    opening._TOY_DOCUMENTS = DOCUMENTS
    if not hasattr(opening.toy_corpus, "cache_clear"):
        opening.toy_corpus = lru_cache(opening.toy_corpus)
