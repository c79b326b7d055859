"""A claim with the verdict that the settings it was looked at in give it."""

from collections.abc import Mapping
from typing import Any

from normscope.evidence.judging import Answer, conditions_of, verdict_of

from .page import Claim

Made = tuple[Claim, dict[str, Any]]
"""A claim and the numbers it quotes."""


def judged(*, name: str, statement: str, source: str, found: str, holds: Mapping[str, Answer]) -> Claim:
    """The claim with the verdict that the settings it was looked at in give it. Raises ValueError without any."""
    return Claim(
        name=name,
        statement=statement,
        source=source,
        found=found,
        verdict=verdict_of(holds),
        conditions=conditions_of(holds),
    )
