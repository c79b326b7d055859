"""The remedies for a failed training, in the order in which our own trainings support them.

`remedies.json` in the package is what `results/rescue` counted: by what model and log say together,
and by remedy, how many failed trainings it ended, of how many.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from ..doctor.record import Stack
from ..doctor.result import Finding, Record, Severity


class Remedy(StrEnum):
    """The change with which a training is started again; in the order of the work that it takes."""

    MEND = "mend"
    """The fault that the doctor finds in the model."""
    RATE = "rate"
    """A different learning rate, most often a lower one."""
    WARMUP = "warm-up"
    """A longer one."""
    PLACEMENT = "placement"
    """One with a path around its norms."""


class Situation(StrEnum):
    """The conclusion from model and log together about a training that failed."""

    SKIP_FAULT = "a fault of a skip path"
    NORMED = "a norm on every sum"
    MOVABLE = "a norm on every sum, of models with another placement to try"
    """The trainings in which another placement was tried: remedies are compared on the same
    trainings.
    """
    OPEN = "a path around the norms"


@dataclass(frozen=True, slots=True)
class Cured:
    """The number of failed trainings that a remedy ended, of those in which it was tried."""

    count: int
    of: int

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else 0.0

    @property
    def words(self) -> str:
        """The counts as a clause.

        >>> Cured(3, 4).words
        'it cured 3 of 4 such failed runs of ours'
        """
        return f"it cured {self.count} of {self.of} such failed runs of ours"


Counted = Mapping[Situation, Mapping[Remedy, Cured]]
FILE = Path(__file__).with_name("remedies.json")
_SKIP_RULES = frozenset({"lost-residual", "detached-skip", "altered-stream", "misplaced-step"})
"""Rules that find a skip path wrong: no rate mends that."""


@cache
def our_trainings() -> Counted:
    """Returns the counts of the committed study."""
    return counted_in(json.loads(FILE.read_text(encoding="utf-8")))


def counted_in(table: Mapping[str, Mapping[str, Collection[int]]]) -> Counted:
    """Returns the counts in a table of plain values: by situation and remedy, ended and tried."""
    found: dict[Situation, dict[Remedy, Cured]] = {}
    for situation, remedies in table.items():
        found[Situation(situation)] = {
            Remedy(remedy): Cured(*numbers) for remedy, numbers in remedies.items()
        }
    return found


def in_order(
    remedies: Collection[Remedy], situation: Situation, counted: Counted
) -> tuple[Remedy, ...]:
    """Orders remedies: those that ended the largest share of such trainings first; of two that
    ended as many, and of those that were not tried, the one that takes less work.
    """
    known = counted.get(situation, {})
    by_work = [remedy for remedy in Remedy if remedy in remedies]
    return tuple(sorted(by_work, key=lambda one: -known[one].share if one in known else 0.0))


def situation_of(diagnosis: Record) -> Situation:
    """Returns the situation of a failed training, as the model shows it."""
    if skip_fault(diagnosis) is not None:
        return Situation.SKIP_FAULT
    return Situation.NORMED if has_normed_stack(diagnosis) else Situation.OPEN


def skip_fault(diagnosis: Record) -> Finding | None:
    """Returns the worst finding of a wrong skip path, notes aside; None without one."""
    wrong = [
        one
        for one in diagnosis.findings
        if one.id in _SKIP_RULES and one.severity is not Severity.INFO
    ]
    return max(wrong, key=lambda one: one.severity.rank, default=None)


def has_normed_stack(diagnosis: Record) -> bool:
    """Tells whether some stack leaves no path around its norms: every sum of it is normed."""
    return any(map(is_normed, diagnosis.stacks))


def is_normed(stack: Stack) -> bool:
    """Tells whether every sum of a stack is normed."""
    return bool(stack.sublayers) and all(one.formula.sum_is_normed for one in stack.sublayers)


def can_be_moved(stack: Stack) -> bool:
    """Tells whether `transplant` knows how its sub-layers are joined: by plain sums, without
    factors and in one stream.
    """
    terms = [term for one in stack.sublayers for term in one.formula.segment.terms]
    plain = all(term.kind in ("norm", "branch", "sum") for term in terms)
    alone = all(len(one.formula.segment.branches) <= 1 for one in stack.sublayers)
    return plain and alone and stack.streams == 1
