"""The remedies for a training that is flat before it learned, or left for good: three of them, in
the order in which our own trainings support them, and the comparison that decides.
"""

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

from ..doctor.result import Advice, Record
from ..optim import OPTIMIZERS
from ..report.words import counted, learning_rate
from .record import History
from .remedies import (
    Counted,
    Remedy,
    Situation,
    can_be_moved,
    in_order,
    is_normed,
    our_trainings,
    situation_of,
)

_LOWER = 3.0
"""The divisor of the rate that is tried beside the training's own: half an order of magnitude."""
_DEFAULT = "adam"
_OTHERS = frozenset(OPTIMIZERS) - {_DEFAULT}
"""The optimisers that `compare` can train with beside its default."""
_LADDER_RATES = 4
_LADDER = f"1e-4:3e-3:{_LADDER_RATES}"
"""Rates that are tried where neither the log nor the model names one."""
_USUAL_WARMUP = 4_000
"""Updates, as Post-LN was first trained (Vaswani et al. 2017, section 5.3)."""
_LONGEST = 10_000
"""Updates of a run of the comparison, where the log has as many: a training that is flat from its
beginning shows it long before."""
_FREE = "pre-ln"
"""The placement with a path around the norms that is offered where every sum is normed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysOn:
    """The remedies for a failed training. None of it is sure."""

    rate: float | None
    """The training's own peak; None where neither the log nor the user says it."""
    other_rate: float | None
    """A lower one, or the usual one where the own may be too low; None where no rate is known at
    all."""
    rate_is_low: bool
    """True where the training's own rate is below the usual range, and the loss has not even come
    down to a level.
    """
    warmup_updates: int
    """The training's own; 0 where the log does not say."""
    longer_warmup_updates: int
    to: str
    """The placement to try; "" where every sum leaves a path around the norms already, and of a
    model that `transplant` does not move, as one with factors."""
    updates: int
    """The updates of each run of the comparison."""
    optimizer: str
    compared: str
    """The user's model, as a shell reads it; "" where `compare` cannot take it as it is."""
    situation: Situation
    counted: Counted
    """The counts of our own such trainings, by remedy."""

    @classmethod
    def of(
        cls,
        history: History,
        diagnosis: Record,
        *,
        rate: float | None,
        warmup_updates: int | None,
        fell: bool,
        counted: Counted | None = None,
    ) -> "WaysOn":
        """rate, warmup_updates: of the log; None where it has no rate. fell: whether the loss came
        down to the level at which it is flat: a rate that is too low would not have brought it
        there. counted: without it, what the committed study counted."""
        advice = diagnosis.advice
        own = rate if rate is not None or advice is None else advice.wanted_rate
        low = not fell and _is_low(own, advice)
        half = math.ceil(history.last_update / 2)
        if warmup_updates is None and advice is not None:
            warmup_updates = advice.wanted_warmup_updates
        warmup = warmup_updates or 0
        stacks = diagnosis.stacks
        longer = max(2 * warmup, min(_USUAL_WARMUP, half))
        return cls(
            rate=own,
            other_rate=_usual(advice) if low or own is None else _lower(own, advice),
            rate_is_low=low,
            warmup_updates=warmup,
            longer_warmup_updates=longer,
            to=_FREE if any(is_normed(one) and can_be_moved(one) for one in stacks) else "",
            updates=max(2 * longer, min(_LONGEST, history.last_update)),
            optimizer="adam" if advice is None else advice.optimizer,
            compared=diagnosis.compared,
            situation=situation_of(diagnosis),
            counted=our_trainings() if counted is None else counted,
        )

    @property
    def order(self) -> tuple[Remedy, ...]:
        """The remedies in their order, by our own trainings."""
        there = [Remedy.RATE, Remedy.WARMUP]
        if self.to:
            there.append(Remedy.PLACEMENT)
        ordered = in_order(there, self._like_this, self.counted)
        if not self.rate_is_low:
            return ordered
        # What was counted are trainings whose rate was too high.
        others = [remedy for remedy in ordered if remedy is not Remedy.RATE]
        return (Remedy.RATE, *others)

    @property
    def _like_this(self) -> Situation:
        """The situation whose counts are used: where a placement is offered, that of trainings in
        which it was tried.
        """
        if self.to and self.situation is Situation.NORMED and Situation.MOVABLE in self.counted:
            return Situation.MOVABLE
        return self.situation

    @property
    def words(self) -> str:
        """The ways in a sentence, in their order, each with what it did in trainings of ours."""
        shown = {
            Remedy.RATE: self._rate_shown,
            Remedy.WARMUP: self._warmup_shown,
            Remedy.PLACEMENT: f"under another placement (`{self.transplant}`)",
        }
        ways = [shown[one] for one in self.order]
        asked = f"train again {', '.join(ways[:-1])} or {ways[-1]}"
        decides = "the command below decides"
        if not any(map(self._tried, self.order)):
            decides = f"which of them helps is not known: {decides}"
        if self.optimizer not in OPTIMIZERS:
            decides += f", with {_DEFAULT} in the place of {self.optimizer}, which it does not have"
        return f"{asked}; {decides}"

    @property
    def _rate_shown(self) -> str:
        rate = "with the usual rate" if self.rate_is_low else "with a lower rate"
        if self.other_rate is None:
            return rate
        instead = "" if self.rate is None else f" instead of {learning_rate(self.rate)}"
        return f"{rate} ({learning_rate(self.other_rate, 2)}{instead})"

    @property
    def _warmup_shown(self) -> str:
        own = f" instead of {self.warmup_updates:,}" if self.warmup_updates else ""
        return f"with a longer warm-up ({counted(self.longer_warmup_updates, 'update')}{own})"

    def _tried(self, remedy: Remedy) -> str:
        """Returns what a remedy did in our own trainings, as a clause; "" where it was not
        tried.
        """
        # What was counted is lower rates alone.
        if remedy is Remedy.RATE and self.rate_is_low:
            return ""
        found = self.counted.get(self._like_this, {}).get(remedy)
        return "" if found is None or not found.of else found.words

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Each way in its order, why it is what it is, and what it did in trainings of ours."""
        words = {
            Remedy.RATE: self.rate_words,
            Remedy.WARMUP: self.warmup_words,
            Remedy.PLACEMENT: f"{self.to}: a path around the norms",
        }
        rows = []
        for one in self.order:
            tried = self._tried(one)
            rows.append((str(one), f"{words[one]}; {tried}" if tried else words[one]))
        return rows

    @property
    def rate_words(self) -> str:
        """The other rate that is tried, and the reason for it."""
        if self.other_rate is None:
            return "neither the log nor the model says what it was and what is usual"
        shown = learning_rate(self.other_rate, 2)
        if self.rate is not None and self.other_rate == self.rate / _LOWER:
            return f"{shown}: a third of yours"
        return f"{shown}: the usual rate of such a model"

    @property
    def warmup_words(self) -> str:
        """The longer warm-up that is tried, and the reason for it."""
        shown = counted(self.longer_warmup_updates, "update")
        if self.longer_warmup_updates == 2 * self.warmup_updates:
            return f"{shown}: twice yours"
        return (
            f"{shown}: half of this log, {_USUAL_WARMUP:,} at most, which Post-LN was first "
            "trained with (Vaswani et al. 2017)"
        )

    @property
    def transplant(self) -> str:
        """The command that moves the model."""
        model, name = "MODEL", "FOLDER"
        if self.compared:
            (target,) = shlex.split(self.compared)
            file = Path(target.rpartition(":")[0])
            model, name = self.compared, shlex.quote(f"{file.stem}_{self.to.replace('-', '_')}")
        return f"normscope transplant {model} --to {self.to} --out {name}"

    @property
    def command(self) -> str:
        """The command that trains all of them side by side, the training's own values among
        them.
        """
        rates = _LADDER
        if self.other_rate is not None:
            own = _LOWER * self.other_rate if self.rate is None else self.rate
            rates = f"{learning_rate(self.other_rate, 2)},{learning_rate(own)}"
        words = [
            f"normscope compare {self.compared or 'FILE.py:build'}",
            f"--placements {','.join(filter(None, ('own', self.to)))}",
            f"--optimizers {self.optimizer}" if self.optimizer in _OTHERS else "",
            f"--peak-lr {rates}",
            f"--warmup-updates {self.warmup_updates},{self.longer_warmup_updates}",
            f"--set train.duration={self.updates}",
        ]
        return " ".join(filter(None, words))

    @property
    def cost(self) -> str:
        """The cost of the comparison."""
        rates = _LADDER_RATES if self.other_rate is None else 2
        runs = rates * 2 * (2 if self.to else 1)
        return f"{counted(runs, 'run')} of {counted(self.updates, 'update')}"


def _usual(advice: Advice | None) -> float | None:
    return None if advice is None else advice.cautious_rate


def _lower(own: float, advice: Advice | None) -> float:
    """Returns a third of the own rate, or the usual one where that is lower."""
    usual = _usual(advice)
    return own / _LOWER if usual is None else min(usual, own / _LOWER)


def _is_low(own: float | None, advice: Advice | None) -> bool:
    span = None if advice is None else advice.best_interval
    return own is not None and span is not None and own < span.low
