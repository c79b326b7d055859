"""The axes of a comparison, from the options of the command and from its configuration: what either gives is used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from ..errors import UserError, option
from ..placement import registered
from ..settings.tables import as_table, flat
from ..tasks.registry import task_from_scratch
from ..tasks.run_config import RunConfig
from .grid import Grid, registered_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the options of the command give; what is None is left to the configuration."""

    placements: Sequence[str] | None = None
    """Names, or `all` alone for those that are defined for the model."""
    warmups_updates: Sequence[int] | None = None
    arms: Sequence[tuple[str, int]] | None = None
    """Pairs of a placement and a warm-up in updates, instead of every combination of the two."""
    peak_lrs: Sequence[float] | None = None
    optimizers: Sequence[str] | None = None
    seeds: int = 1


@dataclass(frozen=True, slots=True)
class _Axis:
    """A setting that a comparison varies."""

    title: str
    key: str
    parameter: str
    default: tuple[Any, ...]


_PLACEMENT = _Axis("placements", "model.placement", "placements", ("post-ln", "pre-ln"))
_WARMUP = _Axis("warm-ups in updates", "schedule.warmup_updates", "warmup_updates", (0, 200))
DEFAULT_RATE = 3e-3
_RATE = _Axis("peak learning rate", "optimizer.peak_lr", "peak_lr", (DEFAULT_RATE,))
_OPTIMIZER = _Axis("optimiser", "optimizer.name", "optimizers", ("adam",))


def grid_of(base: RunConfig, places: Mapping[str, str], asked: Asked) -> tuple[Grid, list[str]]:
    """The grid that options and configuration ask for together, and for each axis that neither gives its default.

    places: by dotted key, what sets it in the configuration; the keys that it lacks are defaults. Raises UserError
    where two places give an axis differently.
    """
    table, defaults = flat(as_table(base)), list[str]()

    def values(axis: _Axis, *parameters: tuple[str, Sequence[Any] | None]) -> list[Any]:
        given = [
            (f"{option(name)} gives {_listed(several)}", list(several))
            for name, several in parameters
            if several is not None
        ]
        if axis.key in places:
            given.append((f"{places[axis.key]} gives {axis.key} = {table[axis.key]}", [table[axis.key]]))
        for (one, these), (other, those) in combinations(given, 2):
            if set(these) != set(those):
                raise UserError(f"{one}, but {other}: leave one of them out")
        if not given:
            defaults.append(f"{axis.title} {_listed(axis.default)}")
        return given[0][1] if given else list(axis.default)

    arms = asked.arms and [(registered_name(placement), updates) for placement, updates in asked.arms]
    armed = [None, None] if arms is None else [[arm[part] for arm in arms] for part in (0, 1)]
    placements = values(_PLACEMENT, ("arms", armed[0]), (_PLACEMENT.parameter, _named(asked.placements, base)))
    warmups = values(_WARMUP, ("arms", armed[1]), (_WARMUP.parameter, asked.warmups_updates))
    grid = Grid(
        placements_and_warmups=tuple(product(placements, warmups) if arms is None else arms),
        peak_lrs=tuple(values(_RATE, (_RATE.parameter, asked.peak_lrs))),
        optimizers=tuple(values(_OPTIMIZER, (_OPTIMIZER.parameter, asked.optimizers))),
        seeds=asked.seeds,
        # One thread a run unless the configuration says otherwise: the grid fills the cores with runs.
        threads=base.train.threads if "train.threads" in places else 1,
    )
    return grid, defaults


def _named(names: Sequence[str] | None, base: RunConfig) -> Sequence[str] | None:
    """The names, or for `all` those of every placement that is defined for the model."""
    if names is None or list(names) != ["all"]:
        return names and [registered_name(name) for name in names]
    shapes = task_from_scratch(base, f"task {base.task} has no placements to compare").shapes(base)
    return [name for name, one in registered().items() if all(shape.model in one.models for shape in shapes)]


def _listed(values: Sequence[Any]) -> str:
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in dict.fromkeys(values))
