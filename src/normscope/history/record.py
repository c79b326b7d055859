"""The history of a training, whatever wrote it down."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Series:
    """A quantity at some of the updates, which rise."""

    updates: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    """NaN or infinite where the log says so."""

    def __bool__(self) -> bool:
        return bool(self.updates)

    @property
    def spacing(self) -> int:
        """Updates from one value to the next, as most of them are apart; 1 for fewer than two."""
        gaps = sorted(b - a for a, b in zip(self.updates, self.updates[1:], strict=False))
        return gaps[len(gaps) // 2] if gaps else 1

    def before(self, update: int) -> "Series":
        """What was recorded before that update."""
        count = bisect_left(self.updates, update)
        return Series(self.updates[:count], self.values[:count])

    def since(self, update: int) -> "Series":
        """What was recorded at that update and later."""
        first = bisect_left(self.updates, update)
        return Series(self.updates[first:], self.values[first:])

    def at(self, update: int) -> float | None:
        """The last value up to that update; None where there is none yet."""
        count = bisect_right(self.updates, update)
        return self.values[count - 1] if count else None

    def finite(self) -> "Series":
        """Without what is not finite."""
        kept = [(u, v) for u, v in zip(self.updates, self.values, strict=True) if math.isfinite(v)]
        return Series(tuple(u for u, _ in kept), tuple(v for _, v in kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of a training that tell patterns apart. None for what its log does not say."""

    clip_norm: float | None = None
    """Largest norm that an update's gradient keeps; inf for no clipping."""
    epsilon: float | None = None
    """Of an optimiser that divides by the gradient's own size, such as Adam; 0 for one that divides without."""
    divides: bool | None = None
    """Whether the optimiser divides by the gradient's own size, as Adam and Lion do and SGD does not."""
    classes: int | None = None
    """Entries of the vocabulary, or classes."""
    unigram_nats: float | None = None
    """Loss of a model that knows how frequent tokens are, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What was recorded of a training, by update, counted from 1. Empty series for what was not."""

    source: str
    """What was read: a file or a folder."""
    loss: Series
    """Of the training's batches, in nats."""
    validation_loss: Series = Series()
    rate: Series = Series()
    gradient_norm: Series = Series()
    """Of the whole gradient, before it is clipped."""
    sublayers: Mapping[str, Mapping[str, Series]] = field(default_factory=dict)
    """By sub-layer, such as `encoder.layers/block_03/attention`, in the order of the log; then by quantity."""
    stacks: Mapping[str, Mapping[str, Series]] = field(default_factory=dict)
    """By stack, then by quantity."""
    logit_deviation: Series = Series()
    recipe: Recipe = Recipe()

    @property
    def last_update(self) -> int:
        """The last one with a loss; 0 without any."""
        return self.loss.updates[-1] if self.loss else 0

    def of_sublayers(self, quantity: str) -> dict[str, Series]:
        """One quantity of every sub-layer that has it."""
        return {place: found[quantity] for place, found in self.sublayers.items() if quantity in found}
