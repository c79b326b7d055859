"""The toy corpora of the tests: each made once a process, with few sentences held out for validations to read."""

from functools import lru_cache

from normscope.data import opening

AS_SHIPPED = opening._TOY_HELD_OUT
HELD_OUT = 60
"""Reading 500 takes a tiny run longer than training does."""


def share() -> None:
    """In this process, whose corpora nothing changes."""
    opening._TOY_HELD_OUT = HELD_OUT
    if not hasattr(opening.toy_corpus, "cache_clear"):
        opening.toy_corpus = lru_cache(opening.toy_corpus)
