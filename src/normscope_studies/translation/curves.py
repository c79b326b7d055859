"""What the runs came to: the losses and BLEU of every checkpoint, and where a curve comes down to a loss."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .arms import Arm
from .cells import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Validations of one run; the lists are of one length."""

    updates: Sequence[int]
    nll_nats: Sequence[float]
    """Negative log-likelihood per target token of the whole validation split."""
    loss_nats: Sequence[float]
    """The same, label-smoothed: what is minimised, and what the paper shows in bits."""
    bleu: Sequence[float]
    """sacreBLEU of the first sentences of the split."""
    summed_lr: Sequence[float]
    """Rate summed over the updates up to each validation, as the run logged it."""
    first_nats: float
    """Of the first batch, before the first update."""
    ended: str
    """finished or non-finite."""

    @property
    def final_nats(self) -> float:
        """At the last checkpoint; of a run that did not stay finite, that of its first batch: it learned nothing."""
        return self.nll_nats[-1] if self.ended == "finished" else self.first_nats

    @property
    def final_bleu(self) -> float:
        """At the last checkpoint; 0 for a run that did not stay finite."""
        return self.bleu[-1] if self.ended == "finished" else 0.0

    def nats_at(self, update: int) -> float:
        """At the last validation up to that update. Raises ValueError where there is none."""
        found = [nats for at, nats in zip(self.updates, self.nll_nats, strict=True) if at <= update]
        if not found:
            raise ValueError(f"no validation up to update {update}")
        return found[-1]

    def updates_to(self, nats: float) -> float | None:
        """Where the curve first comes down to that loss, on a straight line between validations; None if never."""
        below = next((place for place, value in enumerate(self.nll_nats) if value <= nats), None)
        if below is None:
            return None
        if below == 0:
            return float(self.updates[0])
        before, after = self.nll_nats[below - 1], self.nll_nats[below]
        share = (before - nats) / (before - after)
        return float(self.updates[below - 1] + share * (self.updates[below] - self.updates[below - 1]))


Curves = dict[Arm, list[Curve]]
"""By arm, one a seed in their order."""


def curves_of(cells: Iterable[Cell]) -> Curves:
    """Of runs that are over. Raises KeyError for an event of another version."""
    found: Curves = {}
    for cell in cells:
        found.setdefault(cell.arm, []).append(_curve(cell))
    return found


def _curve(cell: Cell) -> Curve:
    events = cell.folder.events()
    trained = [event for event in events if event["event"] == "update"]
    validations = [event for event in events if event["event"] == "validation"]
    rates, summed = iter(trained), 0.0
    sums, event = [], next(rates, None)
    for validation in validations:
        while event is not None and event["update"] <= validation["update"]:
            summed, event = math.fsum((summed, event["lr"])), next(rates, None)
        sums.append(summed)
    return Curve(
        updates=[event["update"] for event in validations],
        nll_nats=[event["nll_nats"] for event in validations],
        loss_nats=[event["loss_nats"] for event in validations],
        bleu=[event["bleu"] for event in validations],
        summed_lr=sums,
        first_nats=trained[0]["nll_nats"] if trained else math.inf,
        ended=events[-1]["event"],
    )
