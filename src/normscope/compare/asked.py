"""What is to be compared, from the options of the command and from its configuration: what either gives is used.

On a command line an axis is values separated by commas, and grids `start:stop:count` among them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UserError, option
from ..optim import OPTIMIZERS
from ..settings.tables import spelled
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from .grid import Grid, registered_name

_Number = TypeVar("_Number", int, float)
_DIGITS = 3
"""Significant digits of the values between a grid's ends: what is written is what is trained."""


def numbers(text: str, kind: Callable[[str], _Number], option: str) -> list[_Number]:
    """The values of "1e-3,2e-3" and "3e-4:3e-1:7", or of both in one list. Raises UserError naming the option.

    kind: int or float. A grid's values lie at equal distances in the logarithm, rounded to three significant digits or,
    for int, to whole numbers; its ends are as given.
    """
    found: list[_Number] = []
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            found += _grid(part, kind) if ":" in part else [kind(part)]
        except ValueError as error:
            raise UserError(
                f"--{option} takes comma-separated values, and grids start:stop:count with equal steps in the "
                f"logarithm such as {'50:800:5' if kind is int else '3e-4:3e-1:7'}; got {text!r}: {error}"
            ) from error
    return found


def _grid(text: str, kind: Callable[[str], _Number]) -> list[_Number]:
    """Raises ValueError that says what is wrong with it."""
    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError(
            f"{text!r} has {len(parts)} parts, and a grid has three: where it starts, where it stops, and how many"
        )
    start, stop, count = kind(parts[0]), kind(parts[1]), int(parts[2])
    if not (0 < start < stop and math.isfinite(stop)):
        beside = "; write 0 beside it, as in 0,50:800:5" if start == 0 else ""
        raise ValueError(f"{text!r} must rise from a number above 0 to a finite one: its steps are factors{beside}")
    if not 2 <= count <= 1000:
        raise ValueError(f"{text!r} asks for {count} values, and a grid has from 2 to 1000")
    factor = (stop / start) ** (1 / (count - 1))
    values = [_rounded(start * factor**step, kind) for step in range(count)]
    values[0], values[-1] = start, stop
    if any(not low < high for low, high in pairwise(values)):
        to = "whole numbers" if kind is int else f"{_DIGITS} significant digits"
        raise ValueError(f"{text!r} is so fine that two of its values are the same when rounded to {to}; ask for fewer")
    return values


def _rounded(value: float, kind: Callable[[str], _Number]) -> _Number:
    return kind(f"{value:.0f}" if kind is int else f"{value:.{_DIGITS - 1}e}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedComparison:
    """What is to be compared, and where."""

    base: RunConfig
    grid: Grid
    folder: Path
    evaluate: str | None = None
    """The split to translate with each best checkpoint."""
    title: str | None = None
    """None for the one that the folder has."""
    notes: Sequence[str] = ()
    """Said with how much there is to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """What the options of the command give; an axis that is None is left to the configuration."""

    placements: Sequence[str] | None = None
    """Names, or `all` alone for those that are defined for the model."""
    warmups_updates: Sequence[int] | None = None
    arms: Sequence[tuple[str, int]] | None = None
    """Pairs of a placement and a warm-up in updates, instead of every combination of the two."""
    peak_lrs: Sequence[float] | None = None
    optimizers: Sequence[str] | None = None
    seeds: int = 1
    evaluate: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class _Axis:
    """A setting that a comparison varies."""

    title: str
    key: str
    parameter: str
    default: tuple[Any, ...]


_WARMUP = _Axis("warm-ups in updates", "schedule.warmup_updates", "warmup_updates", (0, 200))
_RATE = _Axis("peak learning rate", "optimizer.peak_lr", "peak_lr", (3e-3,))
_OPTIMIZER = _Axis("optimiser", "optimizer.name", "optimizers", ("adam",))


def grid_of(base: RunConfig, places: Mapping[str, str], asked: ComparisonOptions) -> tuple[Grid, list[str]]:
    """The grid that options and configuration ask for together, and for each axis that neither gives its default.

    places: by dotted key, what sets it in the configuration; the keys that it lacks are defaults. Raises UserError
    where two places give an axis differently.
    """
    defaults, task = list[str](), task_of(base)
    of_placement = _Axis("placements", "model.placement", "placements", task.compared)

    def values(axis: _Axis, *parameters: tuple[str, Sequence[Any] | None]) -> list[Any]:
        given = [
            (f"{option(name)} gives {_listed(several)}", list(several))
            for name, several in parameters
            if several is not None
        ]
        if axis.key in places:
            value = attrgetter(axis.key)(base)
            given.append((f"{places[axis.key]} gives {axis.key} = {value}", [value]))
        for (one, these), (other, those) in combinations(given, 2):
            if set(these) != set(those):
                raise UserError(f"{one}, but {other}: leave one of them out")
        if not given:
            defaults.append(f"{axis.title} {_listed(axis.default)}")
        return given[0][1] if given else list(axis.default)

    whole = asked.placements is not None and list(asked.placements) == ["all"]
    named = task.defined(base) if whole else asked.placements and [registered_name(one) for one in asked.placements]
    arms = asked.arms and [(registered_name(placement), updates) for placement, updates in asked.arms]
    armed = [None, None] if arms is None else [[arm[part] for arm in arms] for part in (0, 1)]
    placements = values(of_placement, ("arms", armed[0]), (of_placement.parameter, named))
    warmups = values(_WARMUP, ("arms", armed[1]), (_WARMUP.parameter, asked.warmups_updates))
    optimizers = asked.optimizers and [spelled(name, OPTIMIZERS) for name in asked.optimizers]
    grid = Grid(
        placements_and_warmups=tuple(product(placements, warmups) if arms is None else arms),
        peak_lrs=tuple(values(_RATE, (_RATE.parameter, asked.peak_lrs))),
        optimizers=tuple(values(_OPTIMIZER, (_OPTIMIZER.parameter, optimizers))),
        seeds=asked.seeds,
        # One thread a run unless the configuration says otherwise: the grid fills the cores with runs.
        threads=base.train.threads if "train.threads" in places else 1,
    )
    return grid, defaults


def asked_comparison(
    base: RunConfig, places: Mapping[str, str], options: ComparisonOptions, folder: Path
) -> AskedComparison:
    """The comparison that options and configuration ask for together. Raises UserError.

    places: as of `grid_of`.
    """
    grid, defaults = grid_of(base, places, options)
    return AskedComparison(
        base=base,
        grid=grid,
        folder=folder,
        evaluate=options.evaluate,
        title=options.title,
        notes=[f"not given, so the defaults of compare: {'; '.join(defaults)}"] if defaults else [],
    )


def _listed(values: Sequence[Any]) -> str:
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in dict.fromkeys(values))
