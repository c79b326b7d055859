"""What the numbers say of a claim: the verdicts, their order and their colours, for every study alike."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """In the order in which they are counted up."""

    REPRODUCED = "reproduced"
    UNDER_CONDITIONS = "reproduced under conditions"
    UNDECIDED = "undecided"
    NOT_REPRODUCED = "not reproduced"

    @property
    def tone(self) -> str:
        """The class of the style sheet that colours it."""
        return _TONES[self]


_TONES = {
    Verdict.REPRODUCED: "good",
    Verdict.UNDER_CONDITIONS: "mixed",
    Verdict.UNDECIDED: "plain",
    Verdict.NOT_REPRODUCED: "bad",
}


def tally(verdicts: Iterable[Verdict]) -> str:
    """How many claims have which verdict: "5 reproduced, 1 undecided"; empty without any."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
