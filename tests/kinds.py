"""Cases of a test of which `make test` runs the first of each kind, and `make test-all` every one."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

T = TypeVar("T")


def first_of_each(kind: Callable[[T], object], cases: Iterable[T]) -> list[ParameterSet]:
    """The cases as parameters; those whose kind has come before are thorough."""
    seen: set[object] = set()
    found = []
    for case in cases:
        found.append(pytest.param(case, marks=[pytest.mark.thorough] if kind(case) in seen else []))
        seen.add(kind(case))
    return found
