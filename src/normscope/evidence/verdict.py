"""What the numbers say of a claim: the verdicts, their order and their colours, for every study alike."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from ..report.words import Tone


class Verdict(StrEnum):
    """In the order in which they are counted up."""

    REPRODUCED = "reproduced"
    UNDER_CONDITIONS = "reproduced under conditions"
    UNDECIDED = "undecided"
    NOT_REPRODUCED = "not reproduced"

    @property
    def tone(self) -> Tone:
        """Which colour its dot has."""
        return _TONES[self]


_TONES = {
    Verdict.REPRODUCED: Tone.GOOD,
    Verdict.UNDER_CONDITIONS: Tone.MIXED,
    Verdict.UNDECIDED: Tone.PLAIN,
    Verdict.NOT_REPRODUCED: Tone.BAD,
}


def tally(verdicts: Iterable[Verdict]) -> str:
    """How many claims have which verdict: "5 reproduced, 1 undecided"; empty without any."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
