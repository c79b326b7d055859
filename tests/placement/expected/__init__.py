"""A file a family of `normscope/placement/formulas`, with `EXPECTED`: what its placements are
expected to be.
"""

import importlib
import pkgutil

import pytest

from normscope.placement import registered
from placement.expectations import Expected

_FOUND: dict[str, Expected] = {}
for _module in pkgutil.iter_modules(__path__):
    _FOUND |= importlib.import_module(f"{__name__}.{_module.name}").EXPECTED


def expected(name: str) -> Expected:
    """What the placement of that name is expected to be. Fails the test that asks, saying which
    file is to say it.
    """
    if name not in _FOUND:
        file = registered()[name].__module__.rpartition(".")[2]
        pytest.fail(
            f"nothing says what placement {name!r} is expected to be: say so in "
            f"tests/placement/expected/{file}.py, "
            f"with EXPECTED = {{{name!r}: Expected(equations=…, formula=…, added=…)}}; "
            "docs/own-placements.md, “To keep it”, shows one",
            pytrace=False,
        )
    return _FOUND[name]


def described() -> list[str]:
    """Names of all placements that stand here."""
    return sorted(_FOUND)
