"""What the names in a log stand for: values by update and name become the history of a training,
whatever wrote them.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.optim import Optimizer

from ..limits.reading import shown
from ..optim.groups import epsilon_of
from ..report.words import short_name
from .record import History, LoggedSeries, TrainingRecipe

LoggedValues = tuple[int, Mapping[str, float]]
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
_VALIDATION = (
    "eval_loss",
    "eval/loss",
    "val_loss",
    "val/loss",
    "valid_loss",
    "validation/loss",
    "validation/nll_nats",
)
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
_HEADS = re.compile(
    r"(?:^|[./])(?:to_|w)?(?P<part>q|k|v|query|key|value)(?:_?(?:proj|norm|lin|layer))*(?:[./]weight)?(?:[./_]\w*norm)?$"
)
_SCORES = re.compile(
    r"[./_]*(?:max_?)?(?:attn|attention)[./_](?:logit|score)s?(?:_?(?:max|std))?(?=[./_]|$)"
)
_PARTS = {"q": "query", "k": "key", "v": "value"}
RECIPE = "normscope/recipe/"
"""What the callbacks write once: `epsilon`, `divides` and `clip_norm`."""


def history_of(
    source: str, rows: Iterable[LoggedValues], recipe: TrainingRecipe | None = None
) -> History:
    """Raises ValueError where nothing was logged, or no loss of a training is among the names, with
    those there are.
    """
    series = _series(rows)
    if not series:
        raise ValueError(f"{source} has no update: nothing has been logged in it")
    loss = _first(series, _LOSS)
    if not loss:
        raise ValueError(
            f"{source} has no training loss; names that are read: {', '.join(_LOSS)}; it has: "
            f"{names_in([series])}"
        )
    sublayers: dict[str, dict[str, LoggedSeries]] = {}
    stacks: dict[str, dict[str, LoggedSeries]] = {}
    others: dict[str, LoggedSeries] = {}
    for name, one in series.items():
        if (measured := _MEASURED.search(name)) is None:
            continue
        rest = measured["rest"]
        if inside := _SUBLAYER.fullmatch(rest):
            sublayers.setdefault(inside["place"], {})[inside["quantity"]] = one
        else:
            stack, _, quantity = rest.rpartition("/")
            (stacks.setdefault(stack, {}) if stack and stack != "recipe" else others)[quantity] = (
                one
            )
    return History(
        source=source,
        loss=loss,
        validation_loss=_first(series, _VALIDATION),
        rate=_first(
            series, (*_RATE, *(name for name in series if _LIGHTNING_RATE.fullmatch(name)))
        ),
        gradient_norm=_first(series, _GRADIENT),
        sublayers=sublayers,
        stacks=stacks,
        attentions=_attentions(series),
        logit_deviation=others.pop("logit_deviation", LoggedSeries()),
        recipe=_recipe(recipe or TrainingRecipe(), others),
    )


_MOST_NAMES = 10


def names_in(tables: Iterable[Mapping[str, Any]]) -> str:
    """The first names of a log's numbers, as an error shows them."""
    names = {name for table in tables for name in table if "normscope/" not in name}
    return ", ".join(map(short_name, sorted(names)[:_MOST_NAMES])) or "none"


def _attentions(series: Mapping[str, LoggedSeries]) -> dict[str, dict[str, LoggedSeries]]:
    """Norms by the usual names of matrices, such as `param_norm/layers.3.self_attn.q_proj.weight`,
    and logits.
    """
    found: dict[str, dict[str, LoggedSeries]] = {}
    for name, one in series.items():
        if "grad" in name.lower():
            continue
        if "norm" in name and (head := _HEADS.search(name)):
            part = head["part"]
            found.setdefault(name[: head.start()] or "attention", {})[_PARTS.get(part, part)] = one
        elif scores := _SCORES.search(name):
            place = (name[: scores.start()] + name[scores.end() :]).strip("./_")
            found.setdefault(place or "attention", {})["logit"] = one
    return found


def _recipe(known: TrainingRecipe, written: Mapping[str, LoggedSeries]) -> TrainingRecipe:
    """What the callbacks wrote, in place of what is not known otherwise."""
    values = {name: one.values[-1] for name, one in written.items()}
    if "clip_norm" in values:
        known = replace(known, clip_norm=values["clip_norm"] or math.inf)
    if "divides" in values:
        known = replace(known, divides=bool(values["divides"]), epsilon=values.get("epsilon"))
    if 1 < values.get("classes", 0) < math.inf:
        known = replace(known, classes=int(values["classes"]))
    return known


def _first(series: Mapping[str, LoggedSeries], names: Sequence[str]) -> LoggedSeries:
    return next((series[name] for name in names if name in series), LoggedSeries())


def _series(rows: Iterable[LoggedValues]) -> dict[str, LoggedSeries]:
    """By name, updates rising. What was written twice counts as it was last; a resumed training
    repeats updates.
    """
    found: dict[str, dict[int, float]] = {}
    for update, values in rows:
        for name, value in values.items():
            found.setdefault(name, {})[update] = value
    return {name: LoggedSeries.of(one) for name, one in found.items()}


_MOST_UPDATES = 2**53
"""Beyond it a float does not tell neighbours apart."""


def update_in(value: object) -> int:
    """The number of an update, as a log has it. Raises ValueError for what is none."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < _MOST_UPDATES
    ):
        raise ValueError(f"{shown(value)} is no number of an update")
    return int(value)


def numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of the values that are numbers; strings that JSON's writers use for what is not finite
    are.
    """
    found = {}
    for name, value in values.items():
        if value in ("NaN", "Infinity", "-Infinity") or (
            isinstance(value, int | float) and not isinstance(value, bool)
        ):
            try:
                found[name] = float(value)
            except OverflowError:  # an integer of more digits than a float holds
                found[name] = math.inf if value > 0 else -math.inf
    return found


def recipe_values(optimizer: Optimizer, clip_norm: float | None) -> dict[str, float]:
    """`normscope/recipe/…`: whether the optimiser divides by the gradient's size, its ε, and the
    clip, 0 for none.
    """
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    epsilon = epsilon_of(group)
    clip = clip_norm if clip_norm and math.isfinite(clip_norm) else 0.0
    found = {f"{RECIPE}divides": float(epsilon is not None), f"{RECIPE}clip_norm": float(clip)}
    return (
        found
        if epsilon in (None, math.inf)
        else found | {f"{RECIPE}epsilon": float(epsilon or 0.0)}
    )
