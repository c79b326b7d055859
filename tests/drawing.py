"""Pictures drawn once: matplotlib takes a tenth of a second for each, and most pages of the tests
share theirs.
"""

import pickle
from collections.abc import Callable
from typing import Any


def drawn_once(picture: Callable[..., str]) -> Callable[..., str]:
    """The same picture for the same numbers."""
    known: dict[bytes, str] = {}

    def drawn(*what: Any, **options: Any) -> str:
        key = pickle.dumps((what, options))
        if key not in known:
            known[key] = picture(*what, **options)
        return known[key]

    return drawn
