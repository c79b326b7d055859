"""The history of a training: what was recorded of it by update, and the settings that are known."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)  # without slots, which a value that is kept has no room in
class LoggedSeries:
    """A quantity at some of the updates, which rise."""

    updates: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    """NaN or infinite where the log says so."""

    def __bool__(self) -> bool:
        return bool(self.updates)

    @cached_property
    def spacing(self) -> int:
        """Updates from one value to the next, as most of them are apart; 1 for fewer than two.

        Worked out once: each episode of a long log asks for it.
        """
        gaps = sorted(b - a for a, b in pairwise(self.updates))
        return gaps[len(gaps) // 2] if gaps else 1

    def before(self, update: int) -> "LoggedSeries":
        """Returns what was recorded before that update."""
        count = bisect_left(self.updates, update)
        return LoggedSeries(self.updates[:count], self.values[:count])

    def since(self, update: int) -> "LoggedSeries":
        """Returns what was recorded at that update and later."""
        first = bisect_left(self.updates, update)
        return LoggedSeries(self.updates[first:], self.values[first:])

    def count_between(self, first: int, end: int) -> int:
        """Returns how many values were recorded from one update on and before another."""
        return bisect_left(self.updates, end) - bisect_left(self.updates, first)

    def at(self, update: int) -> float | None:
        """Returns the last value up to that update; None where there is none yet."""
        count = bisect_right(self.updates, update)
        return self.values[count - 1] if count else None

    def finite(self) -> "LoggedSeries":
        """Returns the series without values that are not finite."""
        return LoggedSeries.of(
            {u: v for u, v in zip(self.updates, self.values, strict=True) if math.isfinite(v)}
        )

    @classmethod
    def of(cls, values: Mapping[int, float]) -> "LoggedSeries":
        """Makes a series of values by update, in any order."""
        updates = sorted(values)
        return cls(tuple(updates), tuple(values[update] for update in updates))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """Settings of a training that tell patterns apart. None for what its log does not say."""

    clip_norm: float | None = None
    """Largest norm that an update's gradient keeps; inf for no clipping."""
    epsilon: float | None = None
    """The epsilon of an optimiser that divides by the gradient's own size, such as Adam; 0 for one
    that divides without.
    """
    divides: bool | None = None
    """True where the optimiser divides by the gradient's own size, as Adam and Lion do and SGD does
    not.
    """
    classes: int | None = None
    """Entries of the vocabulary, or classes."""
    unigram_nats: float | None = None
    """Loss of a model that knows how frequent tokens are, and nothing else."""
    unigram_counted: str = ""
    """The tokens over which that was counted, in words; "" where it was not counted."""
    peak_rate: float | None = None
    """The highest rate that was meant, as the training's settings have it ..."""
    warmup_updates: int | None = None
    """... and over how many updates it was to rise to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The record of a training, by update, counted from 1. What was not recorded is an empty
    series.
    """

    source: str
    """The file or the folder that was read."""
    loss: LoggedSeries
    """The loss of the training's batches, in nats."""
    validation_loss: LoggedSeries = LoggedSeries()
    rate: LoggedSeries = LoggedSeries()
    gradient_norm: LoggedSeries = LoggedSeries()
    """The norm of the whole gradient, before it is clipped."""
    sublayers: Mapping[str, Mapping[str, LoggedSeries]] = field(default_factory=dict)
    """The measurements by sub-layer, such as `encoder.layers/block_03/attention`, in the order of
    the log; then by quantity.
    """
    stacks: Mapping[str, Mapping[str, LoggedSeries]] = field(default_factory=dict)
    """The measurements by stack, then by quantity."""
    attentions: Mapping[str, Mapping[str, LoggedSeries]] = field(default_factory=dict)
    """The measurements by attention, named by its path; then query, key and value, the norm of each
    or of what makes it, and logit.
    """
    logit_deviation: LoggedSeries = LoggedSeries()
    recipe: TrainingRecipe = TrainingRecipe()
    read: tuple[str, ...] = ()
    """The quantities that were read, in words, such as "12 losses (`train/loss`)" ..."""
    left_out: tuple[str, ...] = ()
    """... and what of the log was not, such as "2 lines without a step, the first is line 7"."""

    @property
    def last_update(self) -> int:
        """The last one with a loss; 0 without any."""
        return self.loss.updates[-1] if self.loss else 0

    def of_sublayers(self, quantity: str) -> dict[str, LoggedSeries]:
        """Returns one quantity of every sub-layer that has it."""
        return {
            place: found[quantity] for place, found in self.sublayers.items() if quantity in found
        }

    def until(self, update: int) -> "History":
        """Returns the history up to that update: all that was known then."""

        def known(of: Any) -> Any:
            if isinstance(of, Mapping):
                return {name: known(one) for name, one in of.items()}
            return of.before(update + 1) if isinstance(of, LoggedSeries) else of

        return replace(self, **{one.name: known(getattr(self, one.name)) for one in fields(self)})
