"""Values by update and name, whatever wrote them, become a history: which names mean what."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from ..record import History, Recipe, Series

Row = tuple[int, Mapping[str, float]]
"""An update, counted from 1, and what was recorded of it."""

_LOSS = (
    "loss",
    "train/loss",
    "train_loss",
    "training_loss",
    "train/loss_nats",
    "loss_nats",
    "train/loss_step",
    "loss_step",
)
_VALIDATION = ("eval_loss", "eval/loss", "val_loss", "val/loss", "valid_loss", "validation/loss", "validation/nll_nats")
_RATE = ("learning_rate", "train/learning_rate", "lr", "train/lr")
_GRADIENT = (
    "grad_norm",
    "train/grad_norm",
    "gradient_norm",
    "train/gradient_norm",
    "grad_norm/total",
    "train/global_grad_norm",
)
_LIGHTNING_RATE = re.compile(r"lr-\w+")
_MEASURED = re.compile(r"(?:^|/)normscope/(?P<rest>.+)$")
_SUBLAYER = re.compile(r"(?P<place>.+/block_\d+/\w+)/(?P<quantity>\w+)")
RECIPE = "normscope/recipe/"
"""What the callbacks write once: `epsilon`, `divides` and `clip_norm`."""


def history_of(source: str, rows: Iterable[Row], recipe: Recipe | None = None) -> History:
    """Raises ValueError where no loss of a training is among the names, with those that there are."""
    series = _series(rows)
    loss = _first(series, _LOSS)
    if not loss:
        known = ", ".join(sorted(name for name in series if "normscope/" not in name)[:10]) or "none"
        raise ValueError(f"{source} has no training loss; names that are read: {', '.join(_LOSS)}; it has: {known}")
    sublayers: dict[str, dict[str, Series]] = {}
    stacks: dict[str, dict[str, Series]] = {}
    told: dict[str, Series] = {}
    for name, one in series.items():
        if (measured := _MEASURED.search(name)) is None:
            continue
        rest = measured["rest"]
        if inside := _SUBLAYER.fullmatch(rest):
            sublayers.setdefault(inside["place"], {})[inside["quantity"]] = one
        else:
            stack, _, quantity = rest.rpartition("/")
            (stacks.setdefault(stack, {}) if stack and stack != "recipe" else told)[quantity] = one
    return History(
        source=source,
        loss=loss,
        validation_loss=_first(series, _VALIDATION),
        rate=_first(series, (*_RATE, *(name for name in series if _LIGHTNING_RATE.fullmatch(name)))),
        gradient_norm=_first(series, _GRADIENT),
        sublayers=sublayers,
        stacks=stacks,
        logit_deviation=told.pop("logit_deviation", Series()),
        recipe=_recipe(recipe or Recipe(), told),
    )


def _recipe(known: Recipe, told: Mapping[str, Series]) -> Recipe:
    """What the callbacks wrote, in place of what is not known otherwise."""
    values = {name: one.values[-1] for name, one in told.items()}
    if "clip_norm" in values:
        known = replace(known, clip_norm=values["clip_norm"] or inf)
    if "divides" in values:
        known = replace(known, divides=bool(values["divides"]), epsilon=values.get("epsilon"))
    if "classes" in values:
        known = replace(known, classes=int(values["classes"]))
    return known


def _first(series: Mapping[str, Series], names: Sequence[str]) -> Series:
    return next((series[name] for name in names if name in series), Series())


def _series(rows: Iterable[Row]) -> dict[str, Series]:
    """By name, updates rising. What was written twice counts as it was last; a resumed training repeats updates."""
    found: dict[str, dict[int, float]] = {}
    for update, values in rows:
        for name, value in values.items():
            found.setdefault(name, {})[update] = value
    return {name: Series(tuple(sorted(one)), tuple(one[u] for u in sorted(one))) for name, one in found.items()}


def numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of the values that are numbers; strings that JSON's writers use for what is not finite are."""
    special = {"NaN": float("nan"), "Infinity": inf, "-Infinity": -inf}
    found = {name: special.get(value, value) if isinstance(value, str) else value for name, value in values.items()}
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
