"""The events of NormScope's own runs, as `metrics.jsonl` holds them."""

from collections.abc import Iterable, Mapping
from math import inf, nan
from typing import Any

from ..record import History, Recipe
from .rows import Row, history_of, numbers_in


def of_events(source: str, events: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> History:
    """The history of a run. config: the table of its config.toml. Raises ValueError for a run without an update."""
    return history_of(source, [row for event in events for row in _rows(event)], _recipe(config))


def _rows(event: Mapping[str, Any]) -> Iterable[Row]:
    update = int(event["update"])
    match event["event"]:
        case "update" | "monitor":
            yield update, numbers_in({name: value for name, value in event.items() if name != "update"})
        case "validation":
            yield update, {"validation/nll_nats": float(event["nll_nats"])}
        case "skipped" | "non-finite":
            yield update, {"loss_nats": nan}


def _recipe(config: Mapping[str, Any]) -> Recipe:
    """From what a resolved configuration holds."""
    optimizer, train = config.get("optimizer", {}), config.get("train", {})
    divides = optimizer.get("name") != "sgd" if "name" in optimizer else None
    epsilon = optimizer.get("epsilon") if divides else None
    clip = train.get("clip_norm", inf)
    return Recipe(clip_norm=float(clip), divides=divides, epsilon=None if epsilon is None else float(epsilon))
