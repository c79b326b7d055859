"""A coordinate check: how the size of activations after some updates grows with a model's width."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..doctor.observe.gradients import loss_of
from ..doctor.trace.forward import Inputs, call_with, loss_of_output
from ..measure import Estimate, Summary, recording, weights_after
from ..measure.passes import Point, first_tensor
from ..measure.unchanged import looked_at, random_state_kept
from ..optim import DECAY_EVERYWHERE, OPTIMIZERS, OptimizerConfig, make_optimizer
from ..optim.optimizers import OptimizerName
from ..report.chart import Panel, Series
from ..report.notebook import fragment, heading, paragraph, picture, table
from ..report.words import counted, interval, learning_rate
from ..settings.validation import checked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Given = Callable[[int], Inputs] | Iterable[Inputs]
"""A function of the update's number, from 0, or something to go through such as a data loader; each
item is what the model is called with."""
_NumberedBatches = Callable[[int], tuple[Inputs, Callable[[Any], Tensor] | None]]
"""Number of an update, from 0, to what the model is called with in it and the loss of its
output.
"""
_Growth = Literal["grows with width", "does not", "undecided"]
_LEVEL = 0.1
"""A size that grows by a smaller power of the width is taken for one that does not."""
_DRAWN = 8
"""Modules in the chart: those of the steepest slopes."""


# U = updates, from 0; S = seeds; X = widths


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModuleSizes:
    """One module's output over updates and widths."""

    sizes: NDArray[np.float64]
    """(U, S, X) Mean |activation|."""
    slopes: tuple[Estimate, ...]
    """For each update, the slope of log size over log width: its mean over seeds with the 95 %
    interval.
    """

    @property
    def growth(self) -> _Growth:
        """The growth after the last update: whether the whole interval of the slope lies above 0.1,
        or below.
        """
        slope = self.slopes[-1]
        if float(slope.low) > _LEVEL:
            return "grows with width"
        return "does not" if float(slope.high) < _LEVEL else "undecided"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CoordinateCheck:
    """The size of every module's output after some updates, over widths (Yang et al. 2021,
    arXiv:2203.03466, appendix D.1).
    """

    widths: tuple[int, ...]
    updates: int
    seeds: int
    rate: float | None
    """The learning rate; None where the optimiser brings its own."""
    modules: Mapping[str, _ModuleSizes]
    """The sizes by the module's name, in the order of the forward pass; "" is the whole model."""

    @property
    def verdict(self) -> _Growth:
        """The verdict on the model: whether any module's output grows with the width; undecided
        where none is known to grow and some may.
        """
        found = {one.growth for one in self.modules.values()}
        known: tuple[_Growth, ...] = ("grows with width", "undecided")
        return next((growth for growth in known if growth in found), "does not")

    def plot(self) -> "Figure":
        """Returns the sizes over the width and slopes over the updates, as a matplotlib figure."""
        from ..report.chart_svg import panels_figure

        return panels_figure(self._panels())

    def svg(self) -> str:
        """The same picture as SVG text."""
        from ..report.chart_svg import panels_svg

        return panels_svg(self._panels(), title="Size of activations over width")

    def __str__(self) -> str:
        wide = max(map(len, (name for name, *_ in self._rows())))
        rows = [f"{name:{wide}}  {slope:>16}  {growth}" for name, slope, growth in self._rows()]
        return "\n".join([self._title(), f"{'':{wide}}  {'slope':>16}", *rows])

    def __repr__(self) -> str:
        return (
            f"CoordinateCheck({counted(len(self.modules), 'module')}, widths {self.widths}: "
            f"{self.verdict})"
        )

    def _repr_html_(self) -> str:
        rows = table(("module", "slope of log size over log width", "verdict"), self._rows())
        return fragment([heading(self._title()), paragraph(_READ), picture(self.svg()), rows])

    def _title(self) -> str:
        rate = "" if self.rate is None else f" at rate {learning_rate(self.rate)}"
        after = f"after {counted(self.updates, 'update')}{rate}"
        return (
            f"{self.verdict}: mean |activation| {after}, widths {', '.join(map(str, self.widths))}"
        )

    def _rows(self) -> list[tuple[str, str, str]]:
        slopes = {name: one.slopes[-1] for name, one in self.modules.items()}
        said = {
            name: interval(float(one.mean), float(one.half_width), 2)
            for name, one in slopes.items()
        }
        return [(name or "the model", said[name], one.growth) for name, one in self.modules.items()]

    def _panels(self) -> list[Panel]:
        def last_slope(name: str) -> float:
            return float(np.nan_to_num(self.modules[name].slopes[-1].mean))

        steepest = sorted(self.modules, key=last_slope, reverse=True)
        drawn = [name for name in self.modules if name in steepest[:_DRAWN]]
        over_width: list[Series] = []
        over_updates: list[Series] = []
        for hue, name in enumerate(drawn):
            look = Series(label=name or "the model", hue=hue)
            sizes_SX = self.modules[name].sizes[-1]
            over_width.append(
                replace(
                    look,
                    x=self.widths,
                    y=np.exp(np.log(sizes_SX).mean(0)).tolist(),
                    low=sizes_SX.min(0).tolist(),
                    high=sizes_SX.max(0).tolist(),
                )
            )
            slopes = self.modules[name].slopes
            over_updates.append(
                replace(
                    look,
                    x=range(len(slopes)),
                    y=[float(one.mean) for one in slopes],
                    low=[float(one.low) for one in slopes],
                    high=[float(one.high) for one in slopes],
                )
            )
        after = f"After {counted(self.updates, 'update')}"
        slope = "slope of log size over log width"
        return [
            Panel(
                title=after,
                xlabel="width",
                ylabel="mean |activation|",
                series=over_width,
                log_x=True,
                log_y=True,
            ),
            Panel(
                title="Growth with the width", xlabel="update", ylabel=slope, series=over_updates
            ),
        ]


_READ = (
    "In a parametrisation under which rates carry over between widths (µP) no size grows with the "
    "width; in the standard one they do after some updates, and the best rate falls as the width "
    "rises."
)


@checked
def coordinate_check(
    build: Callable[[int], nn.Module],
    widths: Sequence[int],
    batches: _Given,
    *,
    loss: Callable[..., Tensor] | None = None,
    optimizer: OptimizerName | Callable[[nn.Module], torch.optim.Optimizer] = "adam",
    rate: float = 1e-2,
    updates: int = 4,
    seeds: int = 3,
) -> CoordinateCheck:
    """Measures whether activations grow with the width after a few updates: the check that µP's
    authors make of a model.

    The models:
        build: makes the model of a width, with weights drawn from torch's generator, which is
            seeded anew for each. Modules that every width has by the same name are looked at.
        widths: rising, two or more.
        seeds: from how many each width's model is drawn, two or more.

    The updates:
        batches: a function of the update's number, from 0, or something to go through, whose items
            are what the model is called with; sizes are of the first one's output.
        loss: of the output alone, or of the output and the item; without it, the model's own.
        optimizer: a name, or a function that makes one of the model, with its own rates; `rate` is
            of a name.
        rate: of an optimiser that is named.
        updates: how many are made of each model.

    Evaluation mode, so without dropout; random states are bit for bit as they were. Raises
    ValueError for widths that do not rise, fewer than two seeds, no update, and where a model or
    its loss raises.
    """
    if len(widths) < 2 or not all(0 < low < high for low, high in pairwise(widths)):
        raise ValueError(f"widths must be two or more, positive and rising, got {list(widths)}")
    if updates < 1 or seeds < 2:
        raise ValueError(
            f"updates must be 1 or more and seeds 2 or more, got {updates} and {seeds}"
        )
    given = _batches_of(batches, loss)
    make = optimizer if callable(optimizer) else _maker(optimizer, rate)
    found: dict[str, NDArray[np.float64]] = {}
    for seed in range(seeds):
        for at, width in enumerate(widths):
            with random_state_kept():
                torch.manual_seed(seed)
                seen = _sizes(build(width), make, given, updates)
            for name, sizes in seen.items():
                if name not in found:
                    found[name] = np.full((updates + 1, seeds, len(widths)), np.nan)
                found[name][:, seed, at] = sizes
    modules = {}
    for name, sizes_USX in found.items():
        at_every_width = not np.isnan(sizes_USX).any()
        if at_every_width:
            slopes = tuple(_slope(widths, sizes_SX) for sizes_SX in sizes_USX)
            modules[name] = _ModuleSizes(sizes=sizes_USX, slopes=slopes)
    own = None if callable(optimizer) else rate
    return CoordinateCheck(
        widths=tuple(widths), updates=updates, seeds=seeds, rate=own, modules=modules
    )


def _maker(name: OptimizerName, rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    """Returns what makes that optimiser of a model, with its usual momentum and decay."""
    listed = OPTIMIZERS[name]
    config = OptimizerConfig(
        name=name,
        peak_lr=rate,
        momentum=listed.usual_momentum,
        weight_decay=listed.usual_weight_decay,
        groups=DECAY_EVERYWHERE,
    )
    return lambda model: make_optimizer(model, config)


def _slope(widths: Sequence[int], sizes_SX: NDArray[np.float64]) -> Estimate:
    """NaN, and so undecided, where a size is 0 or not finite."""
    if not (np.isfinite(sizes_SX) & (sizes_SX > 0)).all():
        return Estimate(
            count=0,
            mean=np.array(math.nan),
            deviation=np.array(math.nan),
            half_width=np.array(math.nan),
        )
    found = Summary()
    for slope in np.polyfit(np.log(widths), np.log(sizes_SX).T, deg=1)[0]:
        found.add({"": slope})
    return found.estimates()[""]


def _sizes(
    model: nn.Module,
    make: Callable[[nn.Module], torch.optim.Optimizer],
    given: _NumberedBatches,
    updates: int,
) -> dict[str, list[float]]:
    """Returns the mean |output| of every module on the first batch, before the first update and
    after each.
    """

    def value(update: int) -> Tensor:
        inputs, loss = given(update - 1)
        return loss_of(call_with(model, inputs), loss)[0]

    after = weights_after(model, make, value, updates=range(1, updates + 1))
    found: dict[str, list[float]] = {}
    for update in range(updates + 1):
        if update:
            model.load_state_dict(after[update], strict=False)
        places = {name: Point(module, pick=_tensor) for name, module in model.named_modules()}
        with looked_at(model), recording(places, lambda x: float(x.abs().mean())) as seen:
            call_with(model, given(0)[0])
        for name, sizes in seen.items():
            if sizes and not math.isnan(sizes[0]):
                found.setdefault(name, []).append(sizes[0])
    return {name: sizes for name, sizes in found.items() if len(sizes) == updates + 1}


def _tensor(output: object) -> Tensor:
    """Returns the first tensor of an output; NaN where it has none of numbers."""
    try:
        found = first_tensor(output)
    except TypeError:
        return torch.tensor(math.nan)
    return found if found.is_floating_point() and found.numel() else torch.tensor(math.nan)


def _batches_of(given: _Given, loss: Callable[..., Tensor] | None) -> _NumberedBatches:
    """Returns items by number: those of a loader are kept, and it is begun again at its end.

    loss: of the output alone, or of the output and the item that it was computed from. The batches
    raise ValueError where a loader has none.
    """
    kept, left = list[Inputs](), None if callable(given) else iter(given)

    def item(number: int) -> Inputs:
        if callable(given):
            return given(number)
        kept.extend(islice(left or (), max(0, number + 1 - len(kept))))
        if not kept:
            raise ValueError("the batches to train on are none: give a loader with at least one")
        return kept[number % len(kept)]

    def batch(number: int) -> tuple[Inputs, Callable[[Any], Tensor] | None]:
        inputs = item(number)
        return inputs, loss_of_output(loss, inputs)

    return batch
