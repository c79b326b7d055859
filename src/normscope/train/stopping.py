"""Stopping a run before its end where its outcome is decided, as far as one can say that; only where it is asked."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import UserError, option
from .metrics import Event
from .run_folder import RunFolder

DECIDED = "decided"
"""The rule's name, and that of the event that ends a run by it."""
_VALIDATIONS = 3


@dataclass(frozen=True, slots=True)
class StopRule:
    """A run is decided once it is at chance at so many validations in a row after the peak of its schedule.

    At chance: the validation loss is not below the unigram baseline, that of a model that ignores its input. A run that
    stops at a value that is not finite needs no rule.
    """

    validations: int = _VALIDATIONS

    def __post_init__(self) -> None:
        if self.validations < 1:
            raise UserError(f"{option('stop_when')} takes at least one validation, got {self.validations}")

    @classmethod
    def of(cls, text: str | None) -> "StopRule | None":
        """The rule that "decided" or "decided:5" asks for; None of None. Raises UserError."""
        if text is None:
            return None
        name, sign, number = text.partition(":")
        if name != DECIDED or (sign and not number.isdecimal()):
            raise UserError(
                f"{option('stop_when')} takes decided, or decided:N for N validations in a row instead of "
                f"{_VALIDATIONS}; got {text!r}"
            )
        return cls(int(number)) if sign else cls()

    def __str__(self) -> str:
        return f"{DECIDED}:{self.validations}"

    def has_ended(self, event: Event) -> bool:
        """Whether this is the last event of a run that this rule has ended, or one that asks for more."""
        return event["event"] == DECIDED and int(event["validations"]) >= self.validations

    def has_stopped(self, folder: RunFolder) -> bool:
        """Whether a run was ended by this rule, or by one that asks for more."""
        return any(self.has_ended(event) for event in folder.events()[-1:])


class Stopping:
    """Counts the validations of one run at which it was at chance."""

    def __init__(self, rule: StopRule, *, chance_nats: float, peak_update: int) -> None:
        """chance_nats: loss of the unigram baseline per target token. peak_update: the last of the warm-up."""
        self.rule, self.chance_nats, self.peak_update, self.in_a_row = rule, chance_nats, peak_update, 0

    def restore(self, events: Iterable[Event], update: int) -> None:
        """Count those that a run has behind it that goes on after `update`."""
        self.in_a_row = 0
        for event in events:
            if event["event"] == "validation" and event["update"] <= update:
                self.take(event["update"], event["nll_nats"])

    def take(self, update: int, nll_nats: float) -> None:
        """A validation."""
        if update > self.peak_update:
            self.in_a_row = self.in_a_row + 1 if nll_nats >= self.chance_nats else 0

    @property
    def is_decided(self) -> bool:
        return self.in_a_row >= self.rule.validations

    @property
    def reason(self) -> str:
        """Why, where it is decided."""
        several = f"{self.in_a_row} validations in a row" if self.in_a_row > 1 else "a validation"
        return (
            f"not below the unigram baseline of {self.chance_nats:.3f} nats at {several} after the peak of the schedule"
        )
