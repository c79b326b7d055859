"""A run's log as columns, a row an update: in a few bytes a number, as a log may have millions."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .events import KINDS, LARGEST, Event

QUANTITIES: Mapping[str, Sequence[str]] = {
    "update": ("nll_nats", "gradient_norm", "lr", "target_tokens", "epoch"),
    "validation": ("nll_nats",),
}
"""The quantities that every event of a kind holds."""
_SCORES: Mapping[str, Sequence[str]] = {"update": (), "validation": ("bleu",)}
"""And what it holds where a run asks for it."""
UPDATE = "update"
METRIC = "metrics."
"""What stands before the names of a validation's further numbers, those of the user's."""
_MOST_METRICS = 20


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """The log of a run. NaN in a column stands for a quantity that an event does not hold."""

    columns: Mapping[str, Mapping[str, NDArray[np.float64]]]
    """The columns of each kind of `QUANTITIES`: by quantity, "update" included, a value for each
    event.
    """
    initialisations: Sequence[Event] = ()
    monitored: Sequence[Event] = ()
    last: Event | None = None
    """The last event; None for an empty log."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The user's own numbers of the last validation that has some, by name."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """The number of events of each kind that this version does not log."""

    def column(self, kind: str, quantity: str) -> NDArray[np.float64]:
        """Returns a quantity of every event of a kind, (events,)."""
        return self.columns[kind][quantity]

    @property
    def stopped_at(self) -> int | None:
        """The update whose loss, gradient or weights were not finite, so that the run ended."""
        stopped = self.last is not None and self.last["event"] == "non-finite"
        return self.last["update"] if stopped and self.last is not None else None

    @property
    def first_nats(self) -> float:
        """The loss of the first batch, before the first update, in nats; NaN where not known."""
        updates, nats = self.column("update", UPDATE), self.column("update", "nll_nats")
        return float(nats[0]) if len(updates) and updates[0] == 1 else float("nan")

    @property
    def absent(self) -> list[str]:
        """The quantities that some events lack, in words: "gradient_norm of 3 of 300 updates"."""
        found = []
        for kind, quantities in QUANTITIES.items():
            for quantity in quantities:
                column = self.column(kind, quantity)
                if count := int(np.isnan(column).sum()):
                    found.append(f"{quantity} of {count:,} of {len(column):,} {kind}s")
        return found


def record_of(events: Iterable[Event]) -> RunRecord:
    """Returns the record of events in their order, which are read one by one and not kept."""
    growing: dict[str, dict[str, array[float]]] = {}
    for kind, names in QUANTITIES.items():
        growing[kind] = {name: array("d") for name in (UPDATE, *names, *_SCORES[kind])}
    initialisations, monitored = list[Event](), list[Event]()
    unknown: Counter[str] = Counter()
    event: Event | None = None
    metrics: dict[str, float] = {}
    for event in events:
        kind = event["event"]
        if kind in growing:
            for name, column in growing[kind].items():
                column.append(event.get(name, np.nan))
            metrics = _metrics(event) or metrics
        elif kind == "initialisation":
            initialisations.append(event)
        elif kind == "monitor":
            monitored.append(event)
        elif kind not in KINDS:
            unknown[kind] += 1
    columns = {}
    for kind, several in growing.items():
        columns[kind] = {name: np.array(column) for name, column in several.items()}
    return RunRecord(columns, initialisations, monitored, event, metrics, unknown)


def _metrics(event: Event) -> dict[str, float]:
    """The finite numbers of an event that have a name of the user's, the first few of very many."""
    found: dict[str, float] = {}
    if event["event"] == "update":
        return found
    for name, value in event.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name.startswith(METRIC) and is_number and abs(value) <= LARGEST:
            found[name.removeprefix(METRIC)] = float(value)
    return dict(list(found.items())[:_MOST_METRICS])
