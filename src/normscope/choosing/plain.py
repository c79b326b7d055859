"""A choice as plain values."""

from dataclasses import asdict
from typing import Any

from .choice import Choice


def plain(choice: Choice) -> dict[str, Any]:
    """As docs/choosing.md describes it under "As data"."""
    found = asdict(choice)
    del found["settings"]
    for one, measured in zip(found["measured"], choice.measured, strict=True):
        one["scale"] = measured.scale
    return found
