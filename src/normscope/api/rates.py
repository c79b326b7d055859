"""The loss over the peak rate, from short runs of the caller's own model and data."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..doctor.advise import wanted_rate_of
from ..doctor.result import RateRange
from ..evidence.estimates import jackknife
from ..measure.line import lowest
from ..measure.unchanged import random_state_kept, restored
from ..optim.optimizers import OptimizerName
from ..report.chart import Panel, Series
from ..report.notebook import fragment, heading, paragraph, picture, table
from ..report.words import counted, learning_rate, significant
from ..settings.arguments import checked
from .own_runs import Given, Maker, OwnRun, batches_of, maker_of, run_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LAST = 6
"""Batches at the end of a run that its loss is the mean of."""
_RATES = tuple(10 ** (power / 2) for power in range(-10, 0))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LossOverRate:
    """Short runs that differ in their peak rate alone, and what a learning-rate finder reads beside them."""

    optimizer: str
    updates: int
    """Of each run."""
    warmup_updates: int
    """Over which each rate rises; constant from there on."""
    runs: tuple[OwnRun, ...]
    """By rising rate; their `losses` are those of every update's batch before it."""
    finder: OwnRun
    """One run whose rate rises from the lowest to the highest, update by update, as a finder's does."""

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(run.rate for run in self.runs)

    @property
    def losses(self) -> tuple[float, ...]:
        """Of each run, the mean over its last six batches; infinite where one was not finite."""
        return tuple(sum(run.losses[-_LAST:]) / _LAST if self._whole(run) else math.inf for run in self.runs)

    @property
    def diverged(self) -> tuple[bool, ...]:
        """Whether each run ended at a loss that is not finite, or above its first one."""
        return tuple(not loss <= run.losses[0] for loss, run in zip(self.losses, self.runs, strict=True))

    @property
    def best_rate(self) -> float | None:
        """Where a parabola through the lowest loss and its neighbours is lowest, over the rate's logarithm; None where
        every run diverged."""
        return None if all(self.diverged) else 10 ** self._lowest(range(_LAST))

    @property
    def best_interval(self) -> RateRange | None:
        """The 95 % interval of the best rate by the scatter over the last batches, which all runs share; None where the
        best is the grid's first or last rate and so may lie beyond, or where all diverged."""
        # Logarithms are compared: a rate that is taken back from its own may differ in the last digit.
        ends = math.log10(self.rates[0]), math.log10(self.rates[-1])
        if all(self.diverged) or (middle := self._lowest(range(_LAST))) in ends:
            return None
        half = float(jackknife(range(_LAST), self._lowest).half_width)
        return RateRange(low=10 ** max(ends[0], middle - half), high=10 ** min(ends[1], middle + half))

    @property
    def finder_rates(self) -> tuple[float, ...]:
        """The rate of each update of the finder's run."""
        ratio = self.rates[-1] / self.rates[0]
        steps = max(1, self.updates - 1)
        return tuple(self.rates[0] * ratio ** (number / steps) for number in range(len(self.finder.losses)))

    @property
    def finder_rate(self) -> float:
        """What is commonly read from it: a tenth of the rate at which its loss was lowest (Smith 2017 looks at the same
        curve). The runs above do not agree with it in general: each of its rates was tried in one update alone."""
        known = [loss if math.isfinite(loss) else math.inf for loss in self.finder.losses]
        return self.finder_rates[known.index(min(known))] / 10

    def plot(self) -> "Figure":
        """The losses over the rate, as a matplotlib figure."""
        from ..report.chart_svg import panels_figure

        return panels_figure([self._panel()], columns=1)

    def svg(self) -> str:
        """The same picture as SVG text."""
        from ..report.chart_svg import panels_svg

        return panels_svg([self._panel()], title="Loss over peak rate", columns=1)

    def __str__(self) -> str:
        rows = [f"{rate:>10}  {loss:>10}" for rate, loss in (("peak rate", "loss"), *self._rows())]
        return "\n".join([self._title(), *rows, *self._conclusion()])

    def __repr__(self) -> str:
        best = learning_rate(self.best_rate) if self.best_rate is not None else "none"
        return f"LossOverRate({self.optimizer}, {counted(len(self.runs), 'rate')}; best {best})"

    def _repr_html_(self) -> str:
        rows = table(("peak rate", "loss"), self._rows())
        return fragment([heading(self._title()), *map(paragraph, self._conclusion()), picture(self.svg()), rows])

    def _whole(self, run: OwnRun) -> bool:
        return len(run.losses) == self.updates and all(map(math.isfinite, run.losses))

    def _lowest(self, batches: Sequence[int]) -> float:
        """log10 of the best rate, by these of the last batches."""

        def mean(run: OwnRun) -> float:
            return sum(run.losses[-1 - batch] for batch in batches) / len(batches)

        losses = [math.inf if off else mean(run) for run, off in zip(self.runs, self.diverged, strict=True)]
        return lowest([math.log10(rate) for rate in self.rates], losses)

    def _title(self) -> str:
        warm = f"{self.warmup_updates} of them warm-up" if self.warmup_updates else "without warm-up"
        return f"Loss after {counted(self.updates, 'update')} with {self.optimizer}, {warm}"

    def _rows(self) -> list[tuple[str, str]]:
        told = zip(self.rates, self.losses, self.diverged, strict=True)
        return [(learning_rate(rate), "diverged" if off else significant(loss)) for rate, loss, off in told]

    def _conclusion(self) -> list[str]:
        found, best = self.best_interval, self.best_rate
        if best is None:
            says = "every rate diverged: try lower ones"
        elif found is None:
            says = f"best rate {learning_rate(best)}, an end of the grid: better ones may lie beyond it"
        else:
            span = f"{learning_rate(found.low)} to {learning_rate(found.high)}"
            says = f"best rate {learning_rate(best)}, 95 % interval {span} by the scatter over the last {_LAST} batches"
        return [says, f"a learning-rate finder reads {learning_rate(self.finder_rate)} from one run of rising rate"]

    def _panel(self) -> Panel:
        ends = [None if off else loss for loss, off in zip(self.losses, self.diverged, strict=True)]
        first = max(run.losses[0] for run in self.runs)
        low = min([loss for loss in ends if loss is not None], default=0.0)
        ratio = math.log(self.rates[-1] / self.rates[0])
        near = [round(math.log(rate / self.rates[0]) / ratio * (self.updates - 1)) for rate in self.rates]
        known = [loss for loss in self.finder.losses if math.isfinite(loss)]
        rising = [known[update] if update < len(known) else None for update in near]
        lost = [rate for rate, off in zip(self.rates, self.diverged, strict=True) if off]
        series = [
            Series(label="at the end of each run", kind="measured", hue=0, x=self.rates, y=ends),
            Series(label="a finder's one run", kind="predicted", hue=1, x=self.rates, y=rising),
            Series(label="diverged", kind="points", hue=5, x=lost, y=[first] * len(lost)),
        ]
        return Panel(
            title=f"{self.optimizer}, {self.updates} updates",
            xlabel="peak rate",
            ylabel="loss",
            series=[one for one in series if one.x],
            log_x=True,
            y_range=(low - 0.1 * (first - low), first + 0.1 * (first - low)) if first > low else None,
        )


@checked
def rate_curve(
    model: nn.Module,
    batches: Given,
    *,
    loss: Callable[..., Tensor] | None = None,
    optimizer: OptimizerName | torch.optim.Optimizer | Callable[[nn.Module], torch.optim.Optimizer] = "adamw",
    rates: Sequence[float] = _RATES,
    updates: int = 40,
    warmup_share: float = 0.1,
) -> LossOverRate:
    """The loss over the peak rate, from a run of some updates at each, all from the weights that the model has now.

    batches: a data loader, or a function of the update's number, from 0; each item is what the model is called with, as
    of `normscope.diagnose`, or a function of the model that returns its output. All runs see the same batches and the
    same random numbers. loss: of the output, or of the output and the item; without it as of `normscope.diagnose`.
    optimizer: a name, an instance whose groups keep the ratios of their rates, or a function that makes one of the
    model. rates: rising; half decades from 1e-5 to 0.3 by default. warmup_share: of the updates, over which the rate
    rises.

    Weights, gradients, buffers, modes and random states are bit for bit as they were. Takes one run for each rate, and
    one for the finder. Raises ValueError for fewer than three rates or less than ten updates, and where the model or
    the loss raises.
    """
    if len(rates) < 3 or not all(0 < low < high < math.inf for low, high in pairwise(rates)):
        raise ValueError(f"rates must be three or more, positive, finite and rising, got {list(rates)}")
    if updates < 10 or not 0 <= warmup_share <= 1:
        raise ValueError(f"updates must be 10 or more and warmup_share in [0, 1], got {updates} and {warmup_share}")
    maker, given = _maker(model, optimizer), batches_of(batches, loss)
    warmup = round(warmup_share * updates)
    ratio = rates[-1] / rates[0]
    with restored(model) as put_back:

        def run(rate: float, warmup_updates: int, factor: Callable[[int], float] = lambda update: 1.0) -> OwnRun:
            put_back()
            with random_state_kept():
                return run_for(
                    model, given, maker, rate=rate, updates=updates, warmup_updates=warmup_updates, factor=factor
                )

        runs = tuple(run(rate, warmup) for rate in rates)
        finder = run(rates[0], 0, lambda update: ratio ** ((update - 1) / (updates - 1)))
    return LossOverRate(optimizer=maker.name, updates=updates, warmup_updates=warmup, runs=runs, finder=finder)


def _maker(
    model: nn.Module, optimizer: str | torch.optim.Optimizer | Callable[[nn.Module], torch.optim.Optimizer]
) -> Maker:
    if isinstance(optimizer, str | torch.optim.Optimizer):
        return maker_of(model, optimizer)

    def made(weights: object) -> torch.optim.Optimizer:
        fresh = optimizer(model)
        largest = wanted_rate_of(fresh) or 1.0
        for group in fresh.param_groups:
            group["lr"] /= largest
        return fresh

    return Maker(type(made(None)).__name__.lower(), made)
