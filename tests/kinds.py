"""How much of a test is left to `make test-all`: cases after the first of their kind, and examples
of a property.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import settings

T = TypeVar("T")


def first_of_each(kind: Callable[[T], object], cases: Iterable[T]) -> list[ParameterSet]:
    """The cases as parameters; those whose kind has come before are thorough."""
    seen: set[object] = set()
    found = []
    for case in cases:
        found.append(pytest.param(case, marks=[pytest.mark.thorough] if kind(case) in seen else []))
        seen.add(kind(case))
    return found


def examples(number: int) -> settings:
    """So many examples of a property in `make test-all`, a quarter of them in `make test`."""
    return settings(max_examples=number * settings.default.max_examples // 100)
