"""The meaning of the names in a log: values by update and name become the history of a training,
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
from ..report.words import counted, short_name
from .record import History, LoggedSeries, TrainingRecipe

LoggedValues = tuple[int, Mapping[str, float]]
"""An update, counted from 1, and what was recorded of it."""

LOSS_NAMES = (
    "loss",
    "train/loss",
    "train_loss",
    "training_loss",
    "train/loss_nats",
    "loss_nats",
    "train/loss_step",
    "train_loss_step",
    "loss_step",
    "loss/train",
    "training/loss",
    "train/train_loss",
    "lm_loss",
    "train/lm_loss",
    "loss_metrics/global_avg_loss",
    "global_avg_loss",
    "ce_loss",
    "train/ce_loss",
    "train/crossentropyloss",
    "cross_entropy",
    "train/cross_entropy",
)
_VALIDATION = (
    "eval_loss",
    "eval/loss",
    "val_loss",
    "val/loss",
    "valid_loss",
    "valid/loss",
    "validation_loss",
    "validation/loss",
    "validation/nll_nats",
    "loss/val",
    "loss/validation",
    "lm_loss_validation",
    "validation_metrics/loss",
)
_RATE = ("learning_rate", "train/learning_rate", "lr", "train/lr", "train_lr", "optim/lr")
_GRADIENT = (
    "grad_norm",
    "train/grad_norm",
    "train_grad_norm",
    "gradient_norm",
    "train/gradient_norm",
    "grad_norm/total",
    "train/global_grad_norm",
    "global_grad_norm",
    "total_grad_norm",
    "gnorm",
    "optim/total_grad_norm",
    "l2_norm/grad/global",
)
_LIGHTNING_RATE = re.compile(r"lr-\w+(?:/pg1)?")
"""The name of a rate as Lightning's monitor of rates writes it; of several groups the first."""
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
"""The prefix of what the callbacks write once: `epsilon`, `divides` and `clip_norm`."""


def plain(name: str) -> str:
    """Returns a name as the names above are spelled: "LM loss", "lm-loss" and "lm_loss" are one.

    >>> plain("Grad Norm")
    'grad_norm'
    """
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def history_of(
    source: str,
    rows: Iterable[LoggedValues],
    recipe: TrainingRecipe | None = None,
    left_out: Sequence[str] = (),
) -> History:
    """Returns the history of what was logged. left_out: what of the log is not among the rows, in
    words.

    Raises ValueError where nothing was logged, or no loss of a training is among the names, with
    those there are.
    """
    series = _series(rows)
    if not series:
        raise ValueError(f"{source} has no update: nothing has been logged in it")
    taken = _names_taken(series)
    if taken["loss"] is None:
        raise ValueError(
            f"{source} has no training loss; names that are read: {', '.join(LOSS_NAMES)}; it has: "
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
    attentions = _attentions(series)
    known = {what: series[name] for what, name in taken.items() if name is not None}
    return History(
        source=source,
        loss=known["loss"],
        validation_loss=known.get("validation loss", LoggedSeries()),
        rate=known.get("learning rate", LoggedSeries()),
        gradient_norm=known.get("gradient norm", LoggedSeries()),
        sublayers=sublayers,
        stacks=stacks,
        attentions=attentions,
        logit_deviation=others.pop("logit_deviation", LoggedSeries()),
        recipe=_recipe(recipe or TrainingRecipe(), others),
        read=words_read(series, taken, len(sublayers), len(attentions)),
        left_out=(*left_out, *words_unread(series, set(taken.values()))),
    )


def _names_taken(series: Mapping[str, LoggedSeries]) -> dict[str, str | None]:
    """Returns the log's own name of each quantity; None of one that it does not have."""
    by_plain_name: dict[str, str] = {}
    for name in series:
        by_plain_name.setdefault(plain(name), name)
    rate = _first(by_plain_name, _RATE)
    if rate is None:
        rate = next((name for name in series if _LIGHTNING_RATE.fullmatch(name)), None)
    return {
        "loss": _first(by_plain_name, LOSS_NAMES),
        "validation loss": _first(by_plain_name, _VALIDATION),
        "learning rate": rate,
        "gradient norm": _first(by_plain_name, _GRADIENT),
    }


def words_read(
    series: Mapping[str, LoggedSeries],
    taken: Mapping[str, str | None],
    sublayers: int,
    attentions: int,
) -> tuple[str, ...]:
    """Returns what was read of a log, each with how often and by which name. taken: names by
    quantity.
    """
    found: list[str] = []
    for what, name in taken.items():
        if name is not None:
            times = counted(len(series[name].updates), "value")
            found.append(f"{what} as `{short_name(name)}` ({times})")
    if sublayers:
        found.append(f"measurements of {counted(sublayers, 'sub-layer')}")
    if attentions:
        found.append(f"norms or logits of {counted(attentions, 'attention')}")
    return tuple(found)


_MOST_UNREAD = 3


def words_unread(series: Mapping[str, LoggedSeries], taken: set[str | None]) -> list[str]:
    """Returns the first names of a log that nothing was read from, and how many more there are;
    nothing without any.
    """
    unread = [
        name
        for name in sorted(series)
        if name not in taken and not _MEASURED.search(name) and _place_in_attention(name) is None
    ]
    if not unread:
        return []
    shown = ", ".join(f"`{short_name(name)}`" for name in unread[:_MOST_UNREAD])
    more = len(unread) - _MOST_UNREAD
    return [f"{shown} and {counted(more, 'more name')}" if more > 0 else shown]


_MOST_NAMES = 10


def names_in(tables: Iterable[Mapping[str, Any]]) -> str:
    """Returns the first names of a log's numbers, as an error shows them."""
    names = {name for table in tables for name in table if "normscope/" not in name}
    return ", ".join(map(short_name, sorted(names)[:_MOST_NAMES])) or "none"


def _attentions(series: Mapping[str, LoggedSeries]) -> dict[str, dict[str, LoggedSeries]]:
    """Returns the norms by the usual names of matrices, such as
    `param_norm/layers.3.self_attn.q_proj.weight`, and logits.
    """
    found: dict[str, dict[str, LoggedSeries]] = {}
    for name, one in series.items():
        place = _place_in_attention(name)
        if place is not None:
            attention, part = place
            found.setdefault(attention or "attention", {})[part] = one
    return found


def _place_in_attention(name: str) -> tuple[str, str] | None:
    """Splits a name into its attention and the part of it: query, key, value or logit; None for
    others.
    """
    if "grad" in name.lower():
        return None
    if "norm" in name and (head := _HEADS.search(name)):
        return name[: head.start()], _PARTS.get(head["part"], head["part"])
    if scores := _SCORES.search(name):
        return (name[: scores.start()] + name[scores.end() :]).strip("./_"), "logit"
    return None


def _recipe(known: TrainingRecipe, written: Mapping[str, LoggedSeries]) -> TrainingRecipe:
    """Adds what the callbacks wrote to a recipe where it is not known otherwise."""
    values = {name: one.values[-1] for name, one in written.items()}
    if "clip_norm" in values:
        known = replace(known, clip_norm=values["clip_norm"] or math.inf)
    if "divides" in values:
        known = replace(known, divides=bool(values["divides"]), epsilon=values.get("epsilon"))
    if 1 < values.get("classes", 0) < math.inf:
        known = replace(known, classes=int(values["classes"]))
    return known


def _first(by_plain_name: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Returns the log's own name of the first of these that it has."""
    return next((by_plain_name[name] for name in names if name in by_plain_name), None)


def _series(rows: Iterable[LoggedValues]) -> dict[str, LoggedSeries]:
    """Returns the series by name, updates rising. The last of values written twice counts; a
    resumed training repeats updates.
    """
    found: dict[str, dict[int, float]] = {}
    for update, values in rows:
        for name, value in values.items():
            found.setdefault(name, {})[update] = value
    return {name: LoggedSeries.of(one) for name, one in found.items()}


_MOST_UPDATES = 2**53
"""Beyond it a float does not tell neighbours apart."""


def update_in(value: object) -> int:
    """Returns the number of an update, as a log has it. Raises ValueError for what is none."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < _MOST_UPDATES
    ):
        raise ValueError(f"{shown(value)} is no number of an update")
    return int(value)


def numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the values that are numbers, including the strings that JSON's writers use for
    numbers that are not finite.
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
